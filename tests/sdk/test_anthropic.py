"""The `anthropic` package, unchanged, against a running fleet."""

import json

import anthropic
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_a_message(claude, model):
    answer = claude.messages.create(model=model, max_tokens=24, messages=QUESTION, extra_body={"temperature": 0})
    assert "Paris" in answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0
    assert answer._request_id


def test_a_streamed_message_is_the_same_text(claude, model):
    ask = dict(model=model, max_tokens=24, messages=QUESTION, extra_body={"temperature": 0})
    whole = claude.messages.create(**ask)
    with claude.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_system_and_blocks_and_stop_sequences(claude, model):
    answer = claude.messages.create(
        model=model,
        max_tokens=32,
        system=[{"type": "text", "text": "You answer briefly."}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "What is the capital of France?"}]}],
        stop_sequences=["Paris"],
        extra_body={"temperature": 0},
    )
    if answer.stop_reason == "stop_sequence":
        assert answer.stop_sequence == "Paris" and "Paris" not in answer.content[0].text


def test_a_json_schema(claude, model):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    }
    answer = claude.messages.create(
        model=model,
        max_tokens=64,
        messages=QUESTION,
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert set(json.loads(answer.content[0].text)) == {"city"}


def test_counting_tokens_is_what_a_message_uses(claude, model):
    count = claude.messages.count_tokens(model=model, messages=QUESTION)
    answer = claude.messages.create(model=model, max_tokens=1, messages=QUESTION)
    assert count.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


def test_errors_are_of_the_right_kind(claude, model):
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="claude-x", max_tokens=1, messages=QUESTION)
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model=model, max_tokens=0, messages=QUESTION)
    assert refused.value.body["type"] == "error"
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.BadRequestError):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
        claude.messages.create(model=model, max_tokens=1, messages=[{"role": "user", "content": [image]}])
