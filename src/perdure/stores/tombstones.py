"""What is left of a thread that was deleted, and what its body says about work that is not done yet.

A tombstone is a cold row without a hot one. Its body is empty, unless something is in progress: an import that hides
behind it, or a deletion that has more children to detach or delete than one transaction may change.
"""

from __future__ import annotations

from typing import Literal

from perdure.kernel.ops import Row

Dispersal = Literal["detach", "cascade"]
"""What becomes of the children of a thread that is deleted."""

ERASING = b"{}"
ARRIVING = b'{"arriving":true}'
"""The body of a tombstone that hides a thread while it is being imported; every chunk renews its `deleted_at`."""

DISPERSING: dict[Dispersal, bytes] = {
    "detach": b'{"children":"detach"}',
    "cascade": b'{"children":"cascade"}',
}
"""The body of a tombstone whose thread still has children: what is done with them, chunk by chunk."""
_DISPERSALS: dict[bytes, Dispersal] = {body: strategy for strategy, body in DISPERSING.items()}


def is_arriving(tombstone: Row) -> bool:
    """Is this the placeholder of an import that is in progress, or was interrupted?"""
    return _body(tombstone) == ARRIVING


def dispersal_of(tombstone: Row) -> Dispersal | None:
    """What is still to be done with the children of a deleted thread; None if nothing is."""
    return _DISPERSALS.get(_body(tombstone)) if tombstone["deleted_at"] is not None else None


def is_dispersing(tombstone: Row) -> bool:
    """Does the deleted thread still have children?"""
    return dispersal_of(tombstone) is not None


def is_unfinished(tombstone: Row) -> bool:
    """Is the deletion, or the import, behind this tombstone not complete?

    A process of an older release ignores the body: it erases the thread itself and leaves the children. So both the
    time and the body count.
    """
    return tombstone["erased_at"] is None or is_dispersing(tombstone)


def _body(tombstone: Row) -> bytes:
    body = tombstone.body
    return body.encode() if isinstance(body, str) else body or b""
