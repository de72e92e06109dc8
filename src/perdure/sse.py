"""Server-sent events: what a follower yields, as the bytes of a response that a browser's `EventSource` reads.

No framework is needed: return `stream(follower)` as the body of a response with `HEADERS`. Messages have an id, their
seq, which the browser sends back when it reconnects: `after_seq(header)` reads it, and following goes on from there.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, cast

import msgspec

from perdure import limits
from perdure.errors import InvalidError, PerdureError, UnavailableError, short_repr
from perdure.model.draft import Draft
from perdure.model.message import ALL, MessageRecord
from perdure.model.plain import check_json
from perdure.model.record import Record
from perdure.model.run import Run
from perdure.rules import checks
from perdure.stores.follower import Follower

HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
"""For the response: nothing on the way may keep the events back."""

_HEARTBEAT = b": \n\n"
_encode = msgspec.json.Encoder().encode


def stream(
    follower: Follower[Any],
    *,
    heartbeat: float = 15.0,
    retry_ms: int = 1_000,
    describe: Callable[[Any], Any] | None = None,
    stop: asyncio.Event | None = None,
) -> AsyncGenerator[bytes, None]:
    """What a follower yields, as server-sent events; the follower is closed with the stream.

    A message is an event of the default type, with its seq as the id. Anything else has the name of its record as its
    type, in small letters, such as `run`. If the store is unavailable, the stream ends, and the browser reconnects. Any
    other error of Perdure ends it with an event `failure` that says why.

    - `follower`: any follower, also a merged one.
    - `heartbeat`: seconds of silence after which a comment is sent, so that no proxy ends the response.
    - `retry_ms`: how long the browser waits before it reconnects.
    - `describe`: makes the JSON data of a record; None leaves the record out. By default it is `public_json()` of
      messages and runs, which has nothing that a user should not see, and `to_json()` of anything else; internal
      messages are left out. A draft that only grew has what is new as its `text`, and `append` is true.
    - `stop`: set it when the server shuts down: the stream ends, and the browser reconnects, perhaps elsewhere.
    """
    if not isinstance(cast(object, follower), Follower):
        hint = "pass chat.follow(), or several of them merged, of the asynchronous store"
        raise InvalidError(f"follower must be a follower, not {short_repr(follower)}", hint=hint)
    if type(heartbeat) not in (int, float) or not 0 < heartbeat <= limits.INTEGER_MAX:
        raise InvalidError(f"heartbeat must be a number of seconds, not {short_repr(heartbeat)}")
    if describe is not None and not callable(describe):
        raise InvalidError(f"describe must be a function, not {short_repr(describe)}")
    if stop is not None:
        _check_event(stop)
    first = b"retry: %d\n\n" % checks.check_count(retry_ms, "retry_ms")
    described = _Public() if describe is None else partial(_checked, describe)
    return _stream(_Owner(follower), heartbeat, first, described, stop or asyncio.Event())


class _Owner:
    """Closes a follower when its stream is gone, even one that was closed before its first read and so never began."""

    def __init__(self, follower: Follower[Any]) -> None:
        self.follower: Follower[Any] = follower

    def __del__(self) -> None:
        self.follower.close()


async def _stream(
    owner: _Owner, heartbeat: float, first: bytes, describe: Callable[[Any], Any], stop: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    async with owner.follower as follower:
        yield first
        reading, stopping = _begin(follower), asyncio.create_task(stop.wait(), name="perdure sse")
        try:
            while not stop.is_set():
                # The read goes on during a heartbeat: a slow one would never end, nor the follower's timeout.
                await asyncio.wait({reading, stopping}, timeout=heartbeat, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    return
                if not reading.done():
                    yield _HEARTBEAT
                    continue
                try:
                    record = reading.result()
                except PerdureError as error:
                    # The end alone makes the browser try again, here or, if the store is closed, at another process.
                    if not (error.retryable or isinstance(error, UnavailableError)):
                        yield event(error.to_json(), name="failure")
                    return
                if record is None:
                    return
                if (data := describe(record)) is not None:
                    yield _event(record, data)
                reading = _begin(follower)
        finally:
            reading.cancel()
            stopping.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)


def _begin(follower: Follower[Any]) -> asyncio.Task[Any]:
    async def read() -> Any:
        return await anext(follower, None)

    return asyncio.create_task(read(), name="perdure sse")


def _checked(describe: Callable[[Any], Any], record: Any) -> Any:
    """What the caller's function says of a record, if that is JSON."""
    data = describe(record)
    check_json(data, "data", limits.COMMIT_BYTES)
    return data


class _Public:
    """The data of records for one browser; of a draft, only the words that are new to it."""

    def __init__(self) -> None:
        self._drafts: dict[str, str] = {}
        """What the browser shows, by run."""

    def __call__(self, record: Record) -> Any:
        if isinstance(record, MessageRecord) and record.visibility != ALL:
            return None
        if isinstance(record, Draft):
            return self._draft(record)
        return record.public_json() if isinstance(record, (MessageRecord, Run)) else record.to_json()

    def _draft(self, draft: Draft) -> dict[str, Any]:
        before, text = self._drafts.pop(draft.run_id, ""), draft.text
        if text is not None:
            self._drafts[draft.run_id] = text
        grew = bool(text and before) and str(text).startswith(before)
        return {**draft.to_json(), "text": str(text)[len(before) :] if grew else text, "append": grew}


def _event(record: Any, data: Any) -> bytes:
    """The event of a record; `data` is JSON, and may nest deeper than what callers may pass: it is around theirs."""
    if isinstance(record, MessageRecord):
        return _written(data, None, str(record.seq))
    return _written(data, type(record).__name__.lower(), None)


def event(data: Any, *, name: str | None = None, event_id: str | None = None) -> bytes:
    """One event as bytes.

    - `data`: JSON data.
    - `name`: its type; without one, the browser calls `onmessage`.
    - `event_id`: what the browser sends back as `Last-Event-ID` when it reconnects.
    """
    check_json(data, "data", limits.COMMIT_BYTES)
    return _written(data, name, event_id)


def _written(data: Any, name: str | None, event_id: str | None) -> bytes:
    lines = b""
    for field, value in (("id", event_id), ("event", name)):
        if value is not None:
            lines += b"%b: %b\n" % (field.encode(), _one_line(field, value))
    text = _encode(data)  # JSON on one line, though some clients take these three characters for line breaks, too
    for character in "\x85\u2028\u2029":
        text = text.replace(character.encode(), b"\\u%04x" % ord(character))
    return b"%bdata: %b\n\n" % (lines, text)


def _one_line(field: str, value: str) -> bytes:
    if type(value) is str and value and not any(character in value for character in "\r\n\0"):
        with suppress(UnicodeEncodeError):
            return value.encode()
    raise InvalidError(f"{field} must be one line of text, not {short_repr(value)}")


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` when the process gets SIGTERM or SIGINT, and then let the server do what it does on this signal.

    Servers wait for open responses before they shut the application down, and the stream of a tab has no end of its
    own. Call this once the server has its own handlers, in the `lifespan` of FastAPI or Starlette. In any other thread
    than the main one, as under a test client, it does nothing.

    - `stop`: the event that every `stream(stop=…)` gets.
    """
    _check_event(stop)
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        then = signal.getsignal(number)
        # The process ignores the signal, or has a handler that is not Python's and could not be called.
        if then not in (signal.SIG_IGN, None):
            signal.signal(number, partial(_stop, loop, stop, then))


def _check_event(stop: object) -> None:
    if not isinstance(stop, asyncio.Event):
        raise InvalidError(f"stop must be an asyncio.Event, not {short_repr(stop)}")


def _stop(
    loop: asyncio.AbstractEventLoop, stop: asyncio.Event, then: Any, number: int, frame: FrameType | None
) -> None:
    """React to a signal; `then` is the handler that was there before."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(stop.set)
    if callable(then):
        then(number, frame)
    else:  # the default, such as the end of the process
        signal.signal(number, then)
        signal.raise_signal(number)


def after_seq(last_event_id: str | None, default: int = 0) -> int:
    """Where a browser that reconnects goes on: pass it as `after_seq=` to `messages.follow`.

    - `last_event_id`: the header `Last-Event-ID` of the request, or None.
    - `default`: what a browser that has seen no event yet begins after.
    """
    if last_event_id is None or (type(last_event_id) is str and not last_event_id):
        return checks.check_count(default, "after_seq", least=0)
    digits = type(last_event_id) is str and last_event_id.isascii() and last_event_id.isdigit()
    if not (digits and len(last_event_id) <= 16 and int(last_event_id) <= limits.INTEGER_MAX):
        raise InvalidError(f"Last-Event-ID must be a seq, not {short_repr(last_event_id)}", hint="load the page again")
    return int(last_event_id)
