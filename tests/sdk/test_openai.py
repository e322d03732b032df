"""The `openai` package, unchanged, against a running fleet."""

import asyncio
import json

import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_models(client, model):
    assert [m.id for m in client.models.list()] == [model]
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_a_chat(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=16)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id


def test_a_streamed_chat_is_the_same_text(client, model):
    ask = dict(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].delta.role for c in chunks if c.choices and c.choices[0].delta.role] == ["assistant"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])


def test_the_streaming_helper_of_the_sdk(client, model):
    with client.chat.completions.stream(model=model, messages=QUESTION, temperature=0, max_tokens=16) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert "Paris" in final.choices[0].message.content


def test_several_choices(client, model):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, n=3, temperature=1.5, seed=7, max_tokens=12
    )
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len({c.message.content for c in answer.choices}) > 1
    again = client.chat.completions.create(
        model=model, messages=QUESTION, n=3, temperature=1.5, seed=7, max_tokens=12
    )
    assert [c.message.content for c in again.choices] == [c.message.content for c in answer.choices]


def test_stop_texts(client, model):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=32, stop=["Par", "zzz"]
    )
    assert answer.choices[0].finish_reason == "stop"
    assert "Par" not in answer.choices[0].message.content


def test_log_probabilities(client, model):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == 4
    assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in content)
    assert content[0].token == content[0].top_logprobs[0].token


def test_bias_and_penalties(client, model):
    free = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=1, logprobs=True
    )
    token = client.post(
        "/../tokenize", body={"model": model, "prompt": free.choices[0].message.content}, cast_to=object
    )["tokens"][0]
    barred = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=1, logit_bias={str(token): -100}
    )
    assert barred.choices[0].message.content != free.choices[0].message.content
    client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=4, presence_penalty=0.5, frequency_penalty=-0.5, top_p=0.9
    )


def test_a_json_schema(client, model):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "people": {"type": "integer", "maximum": 99999}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model=model,
        messages=QUESTION,
        max_tokens=64,
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}},
    )
    value = json.loads(answer.choices[0].message.content)
    assert set(value) == {"city", "people"} and isinstance(value["people"], int)


def test_json_mode(client, model):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=200, temperature=0, response_format={"type": "json_object"}
    )
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)


def test_completions_with_several_prompts(client, model):
    answer = client.completions.create(model=model, prompt=["One two", "Three four"], n=2, max_tokens=3, temperature=0)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text == answer.choices[1].text
    tokens = client.completions.create(model=model, prompt=[[100, 200, 300]], max_tokens=2, echo=True)
    assert tokens.usage.prompt_tokens == 3


def test_responses(client, model):
    answer = client.responses.create(model=model, input="What is the capital of France?", temperature=0, max_output_tokens=24)
    assert "Paris" in answer.output_text
    events = list(
        client.responses.create(
            model=model, input="What is the capital of France?", temperature=0, max_output_tokens=24, stream=True
        )
    )
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == answer.output_text
    # What clients send that keep the conversation themselves.
    handed_back = client.responses.create(
        model=model,
        input=[{"role": "user", "content": "What is the capital of France?"}, *answer.output, {"role": "user", "content": "Yes?"}],
        include=["reasoning.encrypted_content"],
        store=False,
        max_output_tokens=8,
    )
    assert handed_back.usage.input_tokens > answer.usage.input_tokens
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=model, input="x", previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"


@pytest.mark.parametrize(
    "change, param",
    [
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"audio": {"voice": "alloy", "format": "wav"}}, "audio"),
        ({"extra_body": {"no_such_thing": 1}}, "no_such_thing"),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(client, model, change, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{"model": model, "messages": QUESTION, **change})
    assert refused.value.param == param


def test_errors_are_of_the_right_kind(client, model):
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="gpt-4", messages=QUESTION)
    assert refused.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * 9000}])
    assert refused.value.code == "context_length_exceeded" and "maximum context length is" in str(refused.value)
    with pytest.raises(openai.APIStatusError):
        client.embeddings.create(model=model, input="x")


def test_many_at_once(url, model):
    async def one(client, n):
        stream = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": f"Count to {n}."}], max_tokens=8, stream=True
        )
        return [chunk async for chunk in stream]

    async def all_of_them():
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        return await asyncio.gather(*(one(client, n) for n in range(8)))

    for chunks in asyncio.run(all_of_them()):
        assert chunks[-1].choices[0].finish_reason in ("stop", "length")
