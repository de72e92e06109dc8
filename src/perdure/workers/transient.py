"""Which errors of a model's SDK pass by themselves: lost connections, and a server that is busy or in trouble.

No SDK is imported. An error is recognised by its HTTP status, or by its class and the library that the class is from.
"""

from __future__ import annotations

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
})  # fmt: skip
"""Lost connections and missed deadlines, by library and class; subclasses count."""


def transient(error: Exception) -> bool:
    """Whether an error may pass by itself, so that it makes sense to ask the model again.

    True for lost connections and time-outs (of Python, `openai`, `anthropic`, `httpx`, `aiohttp`, `requests`), for an
    error with the HTTP status 408, 409, 425, 429, or 500 and above, and for one that a server sent in the middle of a
    stream. False for everything else, such as a request that the server rejects.

    It is the default of `retry_on` in `serve`. To add errors:
    `retry_on=lambda error: transient(error) or isinstance(error, MyError)`.
    """
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if not _LOST.isdisjoint(map(_name, type(error).__mro__)):
        return True
    status = attribute(error, "status_code")
    if status is None:
        status = attribute(attribute(error, "response"), "status_code")
    if type(status) is int and status >= 400:
        return status in _BUSY or status >= 500
    return _is_of_a_stream(error, status) and _kind(error) not in ("invalid_request_error", "authentication_error")


def _is_of_a_stream(error: Exception, status: object) -> bool:
    """Did the server send it after the answer had begun? `openai` then has no status; that of `anthropic` is 200."""
    name = _name(type(error))
    return name == ("openai", "APIError") or (name == ("anthropic", "APIStatusError") and status == 200)


def _kind(error: Exception) -> object:
    """The word by which the server names the sort of error."""
    return attribute(error, "type")


def _name(kind: type) -> tuple[str, str]:
    return kind.__module__.partition(".")[0], kind.__name__
