"""The one error tree of Perdure.

Every failure a caller can meet is a `PerdureError` with a stable `code`, a `hint` that says what to do next and a
`retryable` flag. Branch on the class; show the message to people. `http_status` and `to_json` are for web applications.
Exceptions of database drivers never leak: engines translate them here and nowhere else. Not found, refused, unavailable
and corrupt are different types, so a failed read can never be mistaken for an empty one.
"""

from __future__ import annotations

from itertools import islice
from typing import Any


class PerdureError(Exception):
    """Base of every error that Perdure raises on purpose."""

    code = "error"
    retryable = False
    http_status = 500
    _public = "the server failed"
    """What a client learns where the cause is the server's: the message may name hosts and files."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = _cut(message)
        super().__init__(message)
        self.message: str = message
        self.hint: str | None = hint if hint is None else _cut(hint)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def to_json(self) -> dict[str, Any]:
        """The error as the body of a response: `code`, `message`, `hint` and `retryable`.

        Where `http_status` is 500 or above, the message is a general one and the hint None: the client cannot act on
        the cause, and it may name hosts, files or stored data. Log `str(error)`.
        """
        server = self.http_status >= 500
        message, hint = (self._public, None) if server else (self.message, self.hint)
        return {"code": self.code, "message": message, "hint": hint, "retryable": self.retryable}


class InvalidError(PerdureError, ValueError):
    """The request itself is wrong; nothing was written. `path` names the offending part when there is one."""

    code = "invalid"
    http_status = 422

    def __init__(self, message: str, *, hint: str | None = None, path: str | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, hint=hint)
        self.path = path


class IncompleteStream(InvalidError):
    """The stream of a model's answer ended early or with an error: there is no message. Ask the model again."""

    code = "incomplete_stream"
    retryable = True


class NotFoundError(PerdureError, LookupError):
    """What was named does not exist (or was deleted)."""

    code = "not_found"
    http_status = 404


class ConflictError(PerdureError):
    """The stored data did not meet a condition of the request; nothing was written. `actual` is as observed."""

    code = "conflict"
    http_status = 409

    def __init__(self, message: str, *, expected: Any = None, actual: Any = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.actual = actual


class VersionConflict(ConflictError):
    """Another writer was first: the version, head or revision named by the caller is stale."""

    code = "version_conflict"


class AlreadyExists(ConflictError):
    """An id or name that must be unique already exists."""

    code = "already_exists"


class KeyReused(ConflictError):
    """An idempotency key was used again with different content."""

    code = "key_reused"


class StaleClaim(ConflictError):
    """The write carries a lower fence than the thread has seen: another worker has taken over."""

    code = "stale_claim"


class IllegalTransition(ConflictError):
    """The run's status does not allow this change."""

    code = "illegal_transition"


class SelectionConflict(ConflictError):
    """A freeze would take other pending messages than the caller named, or has none to start a new run with."""

    code = "selection_conflict"


class ThreadBusy(ConflictError):
    """A run was to start only on an idle thread, and another run is running or waiting; `actual` is its id."""

    code = "thread_busy"


class HasChildren(ConflictError):
    """A thread with child threads could not be deleted with the `reject` strategy."""

    code = "has_children"


class CursorExpired(PerdureError):
    """A page cursor was valid once: another version of Perdure made it, or the branch it continues was deleted.

    Or a follower begins after a seq that the thread does not have: it was of another thread, which was deleted.
    """

    code = "cursor_expired"
    http_status = 410


class UnavailableError(PerdureError):
    """The store cannot serve the request now; nothing was written.

    `retryable` is False where the same call can never succeed: the store was closed.
    """

    code = "unavailable"
    http_status = 503
    _public = "the store is unavailable"
    retryable: bool = True

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable


class OutcomeUnknown(PerdureError):
    """The answer was lost: the commit may have landed. Retrying with the same idempotency key is safe."""

    code = "outcome_unknown"
    http_status = 503
    _public = "the outcome is unknown"
    retryable = True

    def __init__(self, message: str, *, rev: int, key: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.rev = rev
        self.key = key


class CorruptError(PerdureError):
    """Stored data contradicts itself; `where` names the record. Damage is reported, never served.

    Both are cut where they echo stored data: a damaged id may be as long as a book.
    """

    code = "corrupt"

    def __init__(self, message: str, *, where: str, hint: str | None = None) -> None:
        where = shortened(where)
        super().__init__(f"{where}: {shortened(message)}", hint=hint)
        self.where = where


def shortened(text: str, most: int = 500) -> str:
    """Text that may echo stored data, cut to a length that fits an error."""
    return text if len(text) <= most else text[: most - 1] + "…"


class UnsupportedError(PerdureError):
    """This engine, schema or build does not support the request."""

    code = "unsupported"


_MESSAGE_MOST = 2_000
"""Longest message, in characters: some echo what a store or a server sent, which may be a megabyte."""


def _cut(text: str) -> str:
    return (
        text if len(text) <= _MESSAGE_MOST else f"{text[:_MESSAGE_MOST]}… ({len(text) - _MESSAGE_MOST} more characters)"
    )


_SHOWN = 80
_SHOWN_ITEMS = 6
_SHOWN_LEVELS = 3
_BRACKETS: dict[Any, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}


def named_type(kind: type) -> str:
    """A type with its article: `a set`, `an int`."""
    name = kind.__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def short_repr(value: Any) -> str:
    """A value as an error message shows it: at most 80 characters, whatever it is and however deep or long.

    A caller may pass anything where an id belongs. `repr` of a list nested 10,000 deep raises `RecursionError`, that of
    a huge integer `ValueError`, and that of a long list takes as long as the list; none may spoil the refusal.
    """
    try:
        text = _represent(value, _SHOWN_LEVELS)
    except Exception:  # noqa: BLE001 - a caller's own __repr__ may raise anything
        text = f"a {type(value).__name__}"
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return text.encode("utf-8", "backslashreplace").decode()[:_SHOWN]


def _represent(value: Any, levels: int) -> str:
    """`repr`, looking only at the beginning of what is long; exact types only, as a subclass may do anything."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return repr(value[: _SHOWN + 1])
    if kind is int:
        return repr(value) if value.bit_length() <= 256 else f"an integer of {value.bit_length():,} bits"
    brackets = _BRACKETS.get(kind)
    if brackets is None:
        return str.__getitem__(repr(value), slice(0, _SHOWN + 1))
    if levels == 0:
        return brackets[0] + "..." + brackets[1]
    parts = [_represent(item, levels - 1) for item in islice(value, _SHOWN_ITEMS)]
    if kind is dict:
        held = zip(parts, islice(value.values(), _SHOWN_ITEMS), strict=True)
        parts = [f"{key}: {_represent(item, levels - 1)}" for key, item in held]
    more = ["..."] if len(value) > _SHOWN_ITEMS else []
    return brackets[0] + ", ".join([*parts, *more]) + brackets[1]
