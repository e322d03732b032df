"""Tools, by both packages, against a model whose chat template knows them. The model itself is too small to
choose well, so that a call is asked for where one is to come."""

import json

import openai
import pytest

QUESTION = [{"role": "user", "content": "How is the weather in Paris?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 16}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "description": "The weather in a city", "parameters": PARAMETERS, "strict": True}
TOOLS = [{"type": "function", "function": FUNCTION}]


@pytest.fixture
def ask(tools_url):
    client = openai.OpenAI(base_url=f"{tools_url}/v1", api_key="none", max_retries=0, timeout=60)
    (model,) = client.models.list()

    def create(**more):
        defaults = dict(model=model.id, messages=QUESTION, tools=TOOLS, temperature=0, max_tokens=160)
        return client.chat.completions.create(**{**defaults, **more})

    return create


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_comes_whole_and_its_result_is_taken_back(ask, choice):
    answer = ask(tool_choice=choice)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls" and not message.content
    assert choice == "required" or len(message.tool_calls) == 1
    for call in message.tool_calls:
        assert call.function.name == "weather" and set(json.loads(call.function.arguments)) == {"city"}
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in message.tool_calls]
    after = ask(messages=[*QUESTION, message, *results], max_tokens=8)
    assert after.usage.prompt_tokens > answer.usage.prompt_tokens


def test_a_streamed_call_is_the_same(ask):
    whole = ask(tool_choice="required").choices[0].message.tool_calls
    calls = {}
    for chunk in ask(tool_choice="required", stream=True):
        for delta in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(delta.index, {"id": None, "name": "", "arguments": ""})
            call["id"] = delta.id or call["id"]
            call["name"] += delta.function.name or ""
            call["arguments"] += delta.function.arguments or ""
    assert [(c["name"], c["arguments"]) for c in calls.values()] == [
        (call.function.name, call.function.arguments) for call in whole
    ]
    assert all(call["id"] for call in calls.values())


def test_calls_in_anthropics_words(claude_tools, ask):
    tools = [{"name": "weather", "description": FUNCTION["description"], "input_schema": PARAMETERS}]
    model = ask(max_tokens=1).model
    answer = claude_tools.messages.create(
        model=model,
        max_tokens=160,
        messages=QUESTION,
        tools=tools,
        tool_choice={"type": "any"},
        extra_body={"temperature": 0},
    )
    uses = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and uses
    assert all(use.name == "weather" and set(use.input) == {"city"} for use in uses)
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": "sun"} for use in uses]
    turns = [*QUESTION, {"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    after = claude_tools.messages.create(model=model, max_tokens=8, messages=turns, tools=tools)
    assert after.stop_reason in ("max_tokens", "end_turn", "tool_use")
