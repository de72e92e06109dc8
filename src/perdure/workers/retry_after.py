"""How long a server asks to be left alone: the header `retry-after` of its answer, which the errors of SDKs carry."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Any


def asked_pause(error: BaseException) -> float:
    """How many seconds to wait at least, as the answer behind an error says; 0 if it says nothing."""
    if isinstance(error, BaseExceptionGroup):
        return max(map(asked_pause, error.exceptions), default=0.0)
    try:
        headers: Any = getattr(getattr(error, "response", None), "headers", None)
        if headers is None:
            return 0.0
        return _seconds(_header(headers, "Retry-After"), _header(headers, "Date"))
    except Exception:  # noqa: BLE001 - an error of another library may hold anything, and reading it may raise anything
        return 0.0


def _header(headers: Any, name: str) -> str:
    """A header; the names are not always compared without their case."""
    value = headers.get(name) or headers.get(name.lower())
    return value if isinstance(value, str) else ""


def _seconds(text: str, sent: str) -> float:
    """The pause as a number: it is given in seconds, or as the time when it ends, by the server's clock."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = (parsedate_to_datetime(text) - parsedate_to_datetime(sent)).total_seconds()
    return seconds if seconds > 0 else 0.0
