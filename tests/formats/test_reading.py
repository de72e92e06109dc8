"""What servers send that no specification allows is read all the same: the answer is paid for."""

from __future__ import annotations

from typing import Any

import pytest

import perdure.sync
from perdure import InvalidError, Message, Thinking
from perdure.formats import anthropic, openai, openai_responses


def _call(name: Any = "c1", **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}, **fields}


def _asked(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


@pytest.mark.parametrize(
    "call",
    [
        _call(type=None),
        _call(type=""),
        _call(function={"name": "f", "arguments": {"a": 1}}),
    ],
)
def test_odd_calls_are_calls(call: dict[str, Any]) -> None:
    message = openai.from_message(_asked(call))
    assert [(use.id, use.name, use.input) for use in message.tool_calls] == [("c1", "f", {"a": 1})]
    assert openai.to_messages([message]) == [_asked(_call())]


@pytest.mark.parametrize("name", ["", " ", None, "a\nb", "x" * 300])
def test_a_call_without_a_usable_id_gets_one(name: Any) -> None:
    message = openai.from_message(_asked(_call(name), _call(name)))
    ids = [call.id for call in message.tool_calls]
    assert len(set(ids)) == 2
    with perdure.sync.open("memory://") as store:
        store.commit("t", messages=[Message.user("Go."), message])
        assert [item.call.id for item in store.messages.unfinished_calls("t")] == ids


def test_calls_that_share_an_id_are_told_apart() -> None:
    calls = _asked(_call("c"), _call("c"), _call("c-2"))
    assert [call.id for call in openai.from_message(calls).tool_calls] == ["c", "c-3", "c-2"]
    blocks = [{"type": "tool_use", "id": "c", "name": "f", "input": {}}] * 2
    assert [call.id for call in anthropic.from_response({"content": blocks}).tool_calls] == ["c", "c-2"]
    items = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}] * 2
    response = openai_responses.from_response({"status": "completed", "output": items})
    assert [call.id for call in response.tool_calls] == ["c", "c-2"]


@pytest.mark.parametrize("name", ["", "c"])
def test_results_follow_the_calls_that_were_renamed(name: str) -> None:
    results = [{"role": "tool", "tool_call_id": name, "content": text} for text in ("one", "two")]
    asked, first, second = openai.from_messages([_asked(_call(name), _call(name)), *results])
    assert [first.tool_call_id, second.tool_call_id] == [call.id for call in asked.tool_calls]
    later = openai.from_messages([_asked(_call("c"), _call("c")), *results, _asked(_call("c")), results[0]])
    assert later[-1].tool_call_id == ("c" if name else "")


def test_an_empty_signature_is_none() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    message = anthropic.from_response({"content": [block, {"type": "text", "text": "x"}]})
    assert message.content[0] == Thinking("Hm.")
    assert anthropic.to_messages([message])[1] == [{"role": "assistant", "content": "x"}]


@pytest.mark.parametrize(
    "read",
    [
        openai.to_messages,
        openai.from_messages,
        openai.from_message,
        openai.from_response,
        anthropic.to_messages,
        anthropic.from_messages,
        anthropic.from_response,
        openai_responses.to_input,
        openai_responses.from_input,
        openai_responses.from_response,
    ],
)
@pytest.mark.parametrize("value", [None, 5, b"x", {"role": "critic"}])
def test_what_is_no_conversation_is_refused(read: Any, value: Any) -> None:
    with pytest.raises(InvalidError):
        read(value)


def test_a_choice_is_a_number() -> None:
    choice: Any = "0"
    with pytest.raises(InvalidError, match="no choice '0'"):
        openai.from_response({"choices": [{"message": {"role": "assistant", "content": "x"}}]}, choice=choice)
