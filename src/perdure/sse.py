"""Server-sent events: what a follower yields, as the bytes of a response that a browser's `EventSource` reads.

No framework is needed: return `stream(follower)` as the body of a response with `HEADERS`. Messages have an id, their
seq, which the browser sends back when it reconnects: `after_seq(header)` reads it, and following goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import InvalidError, PerdureError, UnavailableError, short_repr
from perdure.model.message import ALL, MessageRecord
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
      messages are left out.
    """
    if type(heartbeat) not in (int, float) or not heartbeat > 0:
        raise InvalidError(f"heartbeat must be a number of seconds, not {short_repr(heartbeat)}")
    checks.check_count(retry_ms, "retry_ms")
    return _stream(follower, heartbeat, b"retry: %d\n\n" % retry_ms, describe or _to_json)


async def _stream(
    follower: Follower[Any], heartbeat: float, first: bytes, describe: Callable[[Any], Any]
) -> AsyncGenerator[bytes, None]:
    async with follower:
        yield first
        reading = _begin(follower)
        try:
            while True:
                # The read goes on during a heartbeat: a slow one would never end, nor the follower's timeout.
                done, _ = await asyncio.wait({reading}, timeout=heartbeat)
                if not done:
                    yield _HEARTBEAT
                    continue
                record = reading.result()
                if record is None:
                    return
                if (data := describe(record)) is not None:
                    yield _event(record, data)
                reading = _begin(follower)
        except PerdureError as error:
            # The end alone makes the browser try again, at this process or, if its store is closed, at another.
            if not (error.retryable or isinstance(error, UnavailableError)):
                yield event(error.to_json(), name="failure")
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


def _begin(follower: Follower[Any]) -> asyncio.Task[Any]:
    async def read() -> Any:
        return await anext(follower, None)

    return asyncio.create_task(read(), name="perdure sse")


def _to_json(record: Record) -> Any:
    if isinstance(record, MessageRecord) and record.visibility != ALL:
        return None
    return record.public_json() if isinstance(record, (MessageRecord, Run)) else record.to_json()


def _event(record: Any, data: Any) -> bytes:
    if isinstance(record, MessageRecord):
        return event(data, event_id=str(record.seq))
    return event(data, name=type(record).__name__.lower())


def event(data: Any, *, name: str | None = None, event_id: str | None = None) -> bytes:
    """One event as bytes.

    - `data`: JSON data.
    - `name`: its type; without one, the browser calls `onmessage`.
    - `event_id`: what the browser sends back as `Last-Event-ID` when it reconnects.
    """
    lines = b""
    for field, value in (("id", event_id), ("event", name)):
        if value is not None:
            if not value or any(character in value for character in "\r\n\0"):
                raise InvalidError(f"{field} must be one line of text, not {short_repr(value)}")
            lines += f"{field}: {value}\n".encode()
    text = _encode(data)  # JSON on one line, though some clients take these three characters for line breaks, too
    for character in "\x85\u2028\u2029":
        text = text.replace(character.encode(), b"\\u%04x" % ord(character))
    return b"%bdata: %b\n\n" % (lines, text)


def after_seq(last_event_id: str | None, default: int = 0) -> int:
    """Where a browser that reconnects goes on: pass it as `after_seq=` to `messages.follow`.

    - `last_event_id`: the header `Last-Event-ID` of the request, or None.
    - `default`: what a browser that has seen no event yet begins after.
    """
    if not last_event_id:
        return checks.check_count(default, "after_seq", least=0)
    digits = type(last_event_id) is str and last_event_id.isascii() and last_event_id.isdigit()
    if not (digits and len(last_event_id) <= 16 and int(last_event_id) <= limits.INTEGER_MAX):
        raise InvalidError(f"Last-Event-ID must be a seq, not {short_repr(last_event_id)}", hint="load the page again")
    return int(last_event_id)
