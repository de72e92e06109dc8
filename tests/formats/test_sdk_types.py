"""The types of the real SDKs accept what we send, field by field, and what they produce is read."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import MessageParam, TextBlockParam
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.responses import Response, ResponseInputItemParam
from pydantic import TypeAdapter, ValidationError
from tests.formats.round_trips import travel
from tests.formats.samples import ANSWER, CALLS, COMPLETION, RESPONSE
from tests.formats.strict_types import strict

from perdure import Message, Text, Thinking, ToolUse, Usage
from perdure.formats import anthropic, openai, openai_responses

CHAT = strict(ChatCompletionMessageParam)
TURNS = strict(MessageParam)
SYSTEM = strict(TextBlockParam)
ITEMS = strict(ResponseInputItemParam)
COUNT = 60


def insist(adapter: TypeAdapter[Any], sent: Any) -> None:
    """Every field is one that a request may have."""
    assert adapter.validate_python(sent) == sent


def test_openai_takes_what_we_send() -> None:
    for seed in range(COUNT):
        insist(CHAT, travel("openai", seed))


def test_anthropic_takes_what_we_send() -> None:
    for seed in range(COUNT):
        system, turns = travel("anthropic", seed)
        insist(SYSTEM, system)
        insist(TURNS, turns)


def test_responses_takes_what_we_send() -> None:
    for seed in range(COUNT):
        insist(ITEMS, travel("openai_responses", seed))


def test_an_unknown_field_would_be_noticed() -> None:
    for adapter, kind in ((CHAT, "text"), (TURNS, "text"), (ITEMS, "input_text")):
        insist(adapter, [{"role": "user", "content": [{"type": kind, "text": "x"}]}])
        with pytest.raises(ValidationError):
            insist(adapter, [{"role": "user", "content": "x", "surprise": 1}])
        with pytest.raises(ValidationError):
            insist(adapter, [{"role": "user", "content": [{"type": kind, "text": "x", "surprise": 1}]}])
    with pytest.raises(ValidationError):
        insist(TURNS, [{"role": "assistant", "content": [{"type": "text", "text": "x", "parsed_output": 1}]}])


def test_a_chat_completion() -> None:
    response = ChatCompletion.model_validate(COMPLETION)
    expected = Message.assistant(
        [Text("Let me look."), *CALLS],
        model="gpt-x-2026",
        stop_reason="tool_calls",
        usage=Usage(120, 18, 64, 16, 10, extra={"openai": {"prompt_tokens_details": {"audio_tokens": 3}}}),
    )
    for given in (response, response.model_dump(), COMPLETION):
        assert openai.from_response(given) == expected
    said = openai.from_message(response.choices[0].message, id="m-1")
    assert (said.content, said.id, said.usage) == (expected.content, "m-1", None)
    insist(CHAT, openai.to_messages([expected]))


def test_an_anthropic_message() -> None:
    response = AnthropicMessage.model_validate(ANSWER)
    expected = Message.assistant(
        [Thinking("Hm.", "sig"), Text("Let me look."), *CALLS],
        model="claude-x",
        stop_reason="tool_use",
        usage=Usage(120, 18, 64, 16, 10, extra={"anthropic": {"service_tier": "standard"}}),
    )
    for given in (response, response.model_dump(), ANSWER):
        assert anthropic.from_response(given) == expected
        assert anthropic.from_message(given) == expected
    assert anthropic.from_messages([{"role": "assistant", "content": response.content}])[0].content == expected.content
    insist(TURNS, anthropic.to_messages([expected])[1])


def test_a_response() -> None:
    response = Response.model_validate(RESPONSE)
    message = openai_responses.from_response(response)
    for given in (response.model_dump(), RESPONSE):
        assert openai_responses.from_response(given) == message
    assert message.usage == Usage(120, 18, 64, 16, 10)
    assert (message.model, message.stop_reason) == ("gpt-x-2026", "completed")
    assert message.extra == {"openai_responses": {"response_id": "resp_1"}}
    assert (message.text, message.content[0]) == ("Let me look.", message.content[0])
    assert isinstance(message.content[0], Thinking)
    assert [(call.id, call.name, call.input) for call in message.tool_calls] == [(c.id, c.name, c.input) for c in CALLS]
    sent = openai_responses.to_input([message])
    insist(ITEMS, sent)
    assert sent == RESPONSE["output"]
    assert openai_responses.from_input(response.output)[0].content == message.content


@pytest.mark.parametrize("call", [ToolUse("c1", "f", {}), ToolUse("c1", "f", None)])
def test_calls_of_other_origin_are_valid_everywhere(call: ToolUse) -> None:
    talk = [Message.user("Go."), Message.assistant([call]), Message.tool("c1", "done", is_error=True)]
    insist(CHAT, openai.to_messages(talk))
    insist(TURNS, anthropic.to_messages(talk)[1])
    insist(ITEMS, openai_responses.to_input(talk))
