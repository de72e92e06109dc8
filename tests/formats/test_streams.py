"""Streamed answers: whole ones equal the answer without a stream, and one that was cut never passes for whole."""

from __future__ import annotations

import asyncio
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
