"""Which errors of a model's SDK pass by themselves: lost connections, and a server that is busy or in trouble.

No SDK is imported. An error is recognised by its HTTP status, or by its class and the library that the class is from.
"""

from __future__ import annotations

import errno
import socket

from perdure.workers.trouble import attribute

_BUSY = frozenset({408, 409, 425, 429})
"""The statuses below 500 that ask the client to try again."""
_LOST = frozenset({
    ("openai", "APIConnectionError"),
    ("anthropic", "APIConnectionError"),
    ("httpx", "TransportError"),
    ("httpx2", "TransportError"),
    ("httpcore", "NetworkError"),
    ("httpcore", "ProtocolError"),
    ("httpcore", "TimeoutException"),
    ("aiohttp", "ClientConnectionError"),
    ("aiohttp", "ClientPayloadError"),
    ("requests", "ConnectionError"),
    ("requests", "Timeout"),
    ("requests", "ChunkedEncodingError"),
    ("websockets", "ConnectionClosed"),
    ("http", "IncompleteRead"),
    ("ssl", "SSLEOFError"),
    ("ssl", "SSLZeroReturnError"),
})  # fmt: skip
"""Lost connections and missed deadlines, by library and class; subclasses count."""
_UNREACHABLE = frozenset({
    errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTUNREACH, errno.EHOSTDOWN
})  # fmt: skip
_LASTING = frozenset({
    "authentication_error", "billing_error", "content_filter", "insufficient_quota", "invalid_prompt",
    "invalid_request_error", "not_found_error", "permission_error", "request_too_large",
})  # fmt: skip
"""Words by which servers say that the same request would fail again."""


def transient(error: Exception) -> bool:
    """Whether an error may pass by itself, so that it makes sense to ask the model again.

    True for lost connections and time-outs (of Python, `openai`, `anthropic`, `httpx`, `aiohttp`, `requests`), for an
    error with the HTTP status 408, 409, 425, 429, or 500 and above, and for one that a server sent in the middle of a
    stream, unless it says that the same request would fail again. False for everything else.

    It is the default of `retry_on` in `serve`. To add errors:
    `retry_on=lambda error: transient(error) or isinstance(error, MyError)`.
    """
    if _word(error, "type") in _LASTING or _word(error, "code") in _LASTING:
        return False
    if _is_lost(error):
        return True
    status = _status(error)
    if status is not None and status >= 400:
        return status in _BUSY or status >= 500
    # Sent after the answer had begun: `openai` then has no status, and that of `anthropic` is 200.
    name = _name(type(error))
    return name == ("openai", "APIError") or (name == ("anthropic", "APIStatusError") and status == 200)


def _is_lost(error: BaseException) -> bool:
    """Is it about the connection?"""
    if isinstance(error, (ConnectionError, TimeoutError)) or not _LOST.isdisjoint(map(_name, type(error).__mro__)):
        return True
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return True
    reason = attribute(error, "reason") if _name(type(error)) == ("urllib", "URLError") else None
    return isinstance(reason, Exception) and _is_lost(reason)


def _status(error: Exception) -> int | None:
    """The HTTP status, where libraries have it; of most, `code` is something else."""
    holders = [(error, "status_code"), (error, "status"), (attribute(error, "response"), "status_code")]
    if _name(type(error))[0] in ("google", "urllib"):
        holders.append((error, "code"))
    statuses = [attribute(holder, name) for holder, name in holders]
    return next((int(each) for each in statuses if isinstance(each, int) and 100 <= each <= 599), None)


def _word(error: Exception, name: str) -> str:
    word = attribute(error, name)
    return word if isinstance(word, str) else ""


def _name(kind: type) -> tuple[str, str]:
    """The library of a class, and its name."""
    return str(kind.__module__).partition(".")[0], kind.__name__
