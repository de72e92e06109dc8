"""Streamed answers: whole ones equal the answer without a stream, and one that was cut never passes for whole."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from tests.formats.samples import ANSWER, CHUNKS, COMPLETION, EVENTS, RESPONSE, RESPONSE_EVENTS

from perdure import InvalidError, Message
from perdure.formats import anthropic, openai, openai_responses

STREAMS: dict[str, tuple[Any, list[dict[str, Any]], Message, Any]] = {
    "openai": (openai.Stream, CHUNKS, openai.from_response(COMPLETION), ChatCompletionChunk),
    "anthropic": (anthropic.Stream, EVENTS, anthropic.from_response(ANSWER), RawMessageStreamEvent),
    "openai_responses": (
        openai_responses.Stream,
        RESPONSE_EVENTS,
        openai_responses.from_response(RESPONSE),
        ResponseStreamEvent,
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_whole_stream_is_the_answer_without_one(name: str) -> None:
    make, chunks, expected, kind = STREAMS[name]
    adapter = TypeAdapter(kind)
    objects = [chunk if chunk.get("type") == "ping" else adapter.validate_python(chunk) for chunk in chunks]
    for given in (chunks, objects):
        stream = make()
        texts = [stream.add(chunk) for chunk in given]
        assert stream.done
        assert stream.message() == expected
        assert "".join(text for text in texts if text) == "Let me look."
        assert "" not in texts


def test_a_character_that_a_server_split_is_whole_again() -> None:
    stream = openai.Stream()
    deltas = [{"content": text} for text in ("a ", "\ud83d", "\ude00 b", "\ud83d")]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    texts = [stream.add(chunk) for chunk in chunks]
    stream.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    assert texts == ["a ", None, "😀 b", None]
    assert stream.message().text == "a 😀 b\ufffd", "a half that stays alone cannot be stored"


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_was_cut_is_an_error(name: str) -> None:
    make, chunks, _, _ = STREAMS[name]
    needed = [chunk for chunk in chunks if chunk.get("choices") != []]  # without the usage of Chat Completions
    for end in range(len(needed)):
        stream = make()
        for chunk in needed[:end]:
            stream.add(chunk)
        assert not stream.done
        with pytest.raises(InvalidError, match="ended before"):
            stream.message()


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_lost_a_chunk_within_is_no_partial_message(name: str) -> None:
    """The end alone is not enough: a chunk of a call that was lost shows in its arguments, never as another call."""
    make, chunks, expected, _ = STREAMS[name]
    for lost in range(len(chunks) - 1):
        stream = make()
        try:
            for i, chunk in enumerate(chunks):
                if i != lost:
                    stream.add(chunk)
            message = stream.message()
        except InvalidError:
            continue
        assert len(message.tool_calls) <= len(expected.tool_calls)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_works_with_async_for(name: str) -> None:
    make, chunks, expected, _ = STREAMS[name]

    async def arriving() -> AsyncIterator[dict[str, Any]]:
        for chunk in chunks:
            yield chunk

    async def run() -> Message:
        stream = make()
        async for chunk in arriving():
            stream.add(chunk)
        return stream.message(id="m-1")

    assert asyncio.run(run()).content == expected.content


def test_usage_that_was_not_promised_is_not_waited_for() -> None:
    stream = openai.Stream()
    for chunk in CHUNKS[:-1]:
        stream.add({name: value for name, value in chunk.items() if name != "usage"})
    assert stream.message().usage is None


@pytest.mark.parametrize(
    ("make", "event"),
    [
        (openai.Stream, {"error": {"message": "overloaded"}}),
        (anthropic.Stream, {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}),
        (anthropic.Stream, {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}}),
        (openai_responses.Stream, {"type": "error", "message": "overloaded"}),
        (openai_responses.Stream, {"type": "response.failed", "response": {"error": {"message": "overloaded"}}}),
    ],
)
def test_an_error_within_a_stream_is_raised(make: Any, event: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        make().add(event)


def test_calls_of_servers_that_send_no_index() -> None:
    stream = openai.Stream()
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": f"[{i}]"}} for i in range(2)]
    for call in calls:
        stream.add({"choices": [{"delta": {"tool_calls": [call]}}]})
    stream.add({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    assert [(call.id, call.input) for call in stream.message().tool_calls] == [("c0", [0]), ("c1", [1])]


def _calls_in(pieces: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    stream = openai.Stream()
    for piece in pieces:
        stream.add({"choices": [{"delta": {"tool_calls": [piece]}}]})
    stream.add({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    return [(call.id, call.input) for call in stream.message().tool_calls]


def _piece(index: int, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": "f"} if name else {})}
    return {"index": index, "function": function, **({} if name is None else {"id": name, "type": "function"})}


def test_calls_of_servers_that_send_one_index_for_all() -> None:
    whole = [_piece(0, "a", "[1]"), _piece(0, "b", "[2]")]
    assert _calls_in(whole) == [("a", [1]), ("b", [2])]
    in_pieces = [
        _piece(0, "a", "["),
        _piece(0, None, "1]"),
        _piece(0, "b", "["),
        _piece(0, "", "2"),
        _piece(0, "b", "]"),
    ]
    assert _calls_in(in_pieces) == [("a", [1]), ("b", [2])]
    woven = [_piece(0, "a", "["), _piece(0, "b", "["), _piece(0, "a", "1]"), _piece(0, "b", "2]")]
    assert _calls_in(woven) == [("a", [1]), ("b", [2])]


def test_calls_come_in_the_order_of_their_indexes() -> None:
    pieces = [_piece(1, "b", "["), _piece(0, "a", "[1]"), _piece(1, None, "2]"), _piece(1, "c", "[3]")]
    assert _calls_in(pieces) == [("a", [1]), ("b", [2]), ("c", [3])]


def test_usage_that_was_promised_and_never_came() -> None:
    stream = openai.Stream()
    for chunk in CHUNKS[:-1]:
        stream.add(chunk)
    assert not stream.done, "it may still come"
    message = stream.message()
    assert (message.usage, message.content) == (None, openai.from_response(COMPLETION).content)
    assert stream.done


def test_a_message_that_never_started_is_not_whole() -> None:
    stream = anthropic.Stream()
    for event in EVENTS[1:]:
        stream.add(event)
    assert not stream.done
    with pytest.raises(InvalidError, match="message_start"):
        stream.message()


def test_a_message_that_starts_again_is_the_second_one() -> None:
    stream = anthropic.Stream()
    for event in [*EVENTS[:8], *EVENTS]:
        stream.add(event)
    assert stream.message() == anthropic.from_response(ANSWER)


def test_a_response_without_its_output_has_the_streamed_items() -> None:
    items = [
        {"type": "response.output_item.done", "output_index": i, "item": item}
        for i, item in enumerate(RESPONSE["output"])
    ]
    stream = openai_responses.Stream()
    for event in [*items[::-1], {"type": "response.completed", "response": {**RESPONSE, "output": []}}]:
        stream.add(event)
    assert stream.message() == openai_responses.from_response(RESPONSE)


def test_a_stream_leaves_its_chunks_alone() -> None:
    for make, chunks, _, _ in STREAMS.values():
        before = copy.deepcopy(chunks)
        stream = make()
        for chunk in chunks:
            stream.add(chunk)
        stream.message()
        assert chunks == before


def test_citations_are_collected() -> None:
    stream = anthropic.Stream()
    stream.add({"type": "message_start", "message": {"role": "assistant", "content": []}})
    stream.add(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x", "citations": []}}
    )
    for i in range(3):
        delta = {"type": "citations_delta", "citation": {"number": i}}
        stream.add({"type": "content_block_delta", "index": 0, "delta": delta})
    stream.add({"type": "message_stop"})
    [block] = stream.message().content
    assert block.to_json()["anthropic"] == {"citations": [{"number": 0}, {"number": 1}, {"number": 2}]}


class _Counted(str):
    """Text that counts how often it is made longer."""

    __slots__ = ()
    joined = 0

    def __add__(self, other: str) -> str:
        type(self).joined += 1
        return _Counted(str(self) + other)


@pytest.mark.parametrize("field", ["content", "refusal"])
def test_text_is_not_joined_at_every_chunk(field: str) -> None:
    """Joining as they come would take time that grows with the square of the length."""
    stream, _Counted.joined = openai.Stream(), 0
    for _ in range(50):
        stream.add({"choices": [{"delta": {field: _Counted("ab")}}]})
    stream.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    message = stream.message()
    assert _Counted.joined == 0
    assert message.text == "ab" * 50


def test_the_words_of_a_refusal_are_shown_as_they_come() -> None:
    stream = openai.Stream()
    deltas = [{"role": "assistant", "content": "", "refusal": None}, {"refusal": "I can"}, {"refusal": "not."}, {}]
    chunks = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks[-1]["choices"][0]["finish_reason"] = "stop"
    assert [stream.add(chunk) for chunk in chunks] == [None, "I can", "not.", None]
    message = stream.message()
    assert message.text == "I cannot."
    assert openai.to_messages([message]) == [{"role": "assistant", "content": "", "refusal": "I cannot."}]
