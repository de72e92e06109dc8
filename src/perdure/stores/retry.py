"""Makes an attempt again when another writer was faster.

A store reads, plans a transaction on what it read, and lets the transaction refuse if that is no longer true. Each
attempt that fails has lost to another's success, so repeating it is safe and makes progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure import limits
from perdure.errors import ConflictError
from perdure.kernel.engine import Conflict

T = TypeVar("T")


class Stale(Exception):
    """Raised by an attempt that noticed, without a transaction, that it builds on an old reading."""


async def retry(
    kind: str,
    name: str,
    attempt: Callable[[], Awaitable[T]],
    *,
    on: tuple[type[Exception], ...] = (Conflict, Stale),
) -> T:
    """The result of `attempt`, called again while it raises one of `on`; `kind` and `name` say what is contended."""
    for _ in range(limits.CONTENTION_ATTEMPTS):
        try:
            return await attempt()
        except on:
            continue
    raise contention(kind, name)


def contention(kind: str, name: str) -> ConflictError:
    """The error of a call whose attempts were all overtaken; unlike other conflicts, it may succeed later."""
    error = ConflictError(f"{kind} {name!r} kept changing during this call", hint="try again")
    error.retryable = True
    return error
