"""Makes an attempt again when another writer was faster.

A store reads, plans a transaction on what it read, and lets the transaction refuse if that is no longer true. Each
attempt that fails has lost to another's success, so repeating it is safe and makes progress.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure import limits
from perdure.errors import ConflictError
from perdure.kernel.engine import Conflict

T = TypeVar("T")
_logger = logging.getLogger("perdure.commit")


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
    for number in range(1, limits.CONTENTION_ATTEMPTS + 1):
        try:
            return await attempt()
        except on:
            _logger.debug("%s %r changed during this call: attempt %d lost", kind, name, number)
    raise contention(kind, name)


def contention(kind: str, name: str) -> ConflictError:
    """The error of a call whose attempts were all overtaken; unlike other conflicts, it may succeed later."""
    _logger.warning("%s %r kept changing during this call, which gives up", kind, name)
    error = ConflictError(f"{kind} {name!r} kept changing during this call", hint="try again")
    error.retryable = True
    return error
