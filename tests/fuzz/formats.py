"""Formats: answers, requests and streams of providers, read from JSON of any shape.

What is refused is refused with an error of ours. What is read can be written again by the same format, and then reads
the same; it can be committed, or the commit refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.comparing import insist_alike
from tests.fuzz.mutate import edited, values
from tests.fuzz.spelling import deep
from tests.fuzz.target import Broken, Target, refusal

import perdure.sync
from perdure import InvalidError, Message
from perdure.errors import PerdureError
from perdure.formats import anthropic, openai, openai_responses

_KEYS = (
    *("role", "content", "type", "text", "tool_calls", "tool_call_id", "id", "name", "arguments", "function", "custom"),
    *("image_url", "url", "input_audio", "file", "file_data", "filename", "source", "media_type", "data", "thinking"),
    *("signature", "tool_use_id", "is_error", "input", "call_id", "output", "summary", "encrypted_content", "status"),
    *("choices", "message", "usage", "model", "finish_reason", "delta", "index", "error", "response", "content_block"),
)
_numbers = count()
_READERS: dict[str, tuple[Callable[[Any], list[Message]], Callable[[list[Message]], Any]]] = {
    "openai": (openai.from_messages, openai.to_messages),
    "anthropic": (anthropic.from_messages, lambda messages: anthropic.to_messages(messages)[1]),
    "openai_responses": (openai_responses.from_input, openai_responses.to_input),
}
_ANSWERS: dict[str, tuple[str, Callable[[Any], Message]]] = {
    "openai answer": ("openai", openai.from_response),
    "anthropic answer": ("anthropic", anthropic.from_response),
    "openai_responses answer": ("openai_responses", openai_responses.from_response),
}
_STREAMS: dict[str, tuple[str, Callable[[], Any]]] = {
    "openai stream": ("openai", openai.Stream),
    "anthropic stream": ("anthropic", anthropic.Stream),
    "openai_responses stream": ("openai_responses", openai_responses.Stream),
}
_WAYS = (*_READERS, *_ANSWERS, *_STREAMS)


@cache
def _store() -> perdure.sync.Store:
    return perdure.sync.open("memory://", housekeeping=False)


def _cases(seeds: Sequence[Any]) -> st.SearchStrategy[Any]:
    bodies = [seed["body"] for seed in seeds]
    return st.fixed_dictionaries({"way": st.sampled_from(_WAYS), "body": edited(bodies, odd=(), keys=_KEYS) | values})


def _check(case: Any) -> str:
    if not isinstance(case, dict) or case.get("way") not in _WAYS:
        return "no case"
    try:
        with deep():
            form, messages = _read(case["way"], case.get("body"))
    except PerdureError as error:
        return refusal(error)
    with deep():
        _insist_stable(form, messages)
    return f"{case['way']}: {_commit(messages)}"


def _read(way: str, body: Any) -> tuple[str, list[Message]]:
    if way in _READERS:
        listed = body if isinstance(body, list) else [body]
        return way, _READERS[way][0](listed)
    if way in _ANSWERS:
        form, read = _ANSWERS[way]
        return form, [read(body)]
    form, make = _STREAMS[way]
    stream = make()
    for chunk in body if isinstance(body, list) else [body]:
        stream.add(chunk)
    message = stream.message()
    if not stream.done:
        raise Broken("a stream that is not done gives a message")
    return form, [message]


def _insist_stable(form: str, messages: list[Message]) -> None:
    """A second trip changes nothing; the first may, where the format cannot carry something."""
    read, write = _READERS[form]
    try:
        sent = write(messages)
        again = read(sent)
        third = write(again)
    except InvalidError:
        return
    insist_alike(third, sent, f"{form} sends something else the second time")


def _commit(messages: list[Message]) -> str:
    store, thread = _store(), f"t{next(_numbers)}"
    store.threads.create(thread)
    try:
        store.commit(thread, messages=messages)
    except PerdureError as error:
        return f"commit: {refusal(error)}"
    else:
        stored = [record.message for record in store.messages.list(thread).items]
        if [message.content for message in stored] != [message.content for message in messages[: len(stored)]]:
            raise Broken("a commit changes what a format read")
        return "committed"
    finally:
        store.threads.delete(thread)


FORMATS = Target("formats", "from_messages, from_response, Stream of every format, and back", _cases, _check, short=300)
