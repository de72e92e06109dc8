"""The rows of a pending queue: what each kind of change writes. Positions are dense from 1."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.kernel.ops import ABSENT, NOW, Delete, Op, Patch, Put, Row
from perdure.model.faithful import write
from perdure.model.message import Message
from perdure.model.pending import DeliveryMode, PendingBody, PendingMessage
from perdure.stores.records import pending_from


class Entry(msgspec.Struct, frozen=True):
    """A pending message with the rev of its row (None: not written yet)."""

    item: PendingMessage
    rev: int | None

    @property
    def key(self) -> tuple[str, str]:
        """The row's key."""
        return self.item.thread_id, self.item.id

    def put(self) -> Op:
        """Write a new entry."""
        columns = {"position": self.item.position, "revision": 1, "created_at": NOW, "updated_at": NOW}
        return Put("pending", self.key, columns, write(PendingBody(self.item.message, self.item.mode)), ABSENT)


def entry_from(row: Row) -> Entry:
    """An entry from its row."""
    return Entry(pending_from(row), row.rev)


def enqueued(thread_id: str, entries: Sequence[Entry], messages: Sequence[Message], mode: DeliveryMode) -> list[Entry]:
    """New entries behind the ones that are there."""
    return [
        Entry(
            PendingMessage(
                thread_id=thread_id,
                id=message.id or "",
                position=position,
                revision=1,
                message=message,
                mode=mode,
                created_at=0,
                updated_at=0,
            ),
            None,
        )
        for position, message in enumerate(messages, len(entries) + 1)
    ]


def renumbered(entries: Sequence[Entry], before: int) -> list[Entry]:
    """The same entries, standing behind `before` others."""
    return [
        Entry(msgspec.structs.replace(entry.item, position=position), entry.rev)
        for position, entry in enumerate(entries, before + 1)
    ]


def edited(entry: Entry, message: Message, mode: DeliveryMode | None) -> Op:
    """Replace an entry's message, and its mode if one is given; the revision rises."""
    kept = msgspec.structs.replace(message, id=entry.item.id)
    body = write(PendingBody(kept, mode or entry.item.mode))
    columns = {"revision": entry.item.revision + 1, "updated_at": NOW}
    return Patch("pending", entry.key, columns, _rev(entry), body)


def without(entries: Sequence[Entry], gone: set[str]) -> list[Op]:
    """Remove some entries and move the rest up; those whose place does not change are left alone."""
    ops: list[Op] = [Delete("pending", entry.key, _rev(entry)) for entry in entries if entry.item.id in gone]
    position = 0
    for entry in entries:
        if entry.item.id in gone:
            continue
        position += 1
        if entry.item.position != position:
            ops.append(Patch("pending", entry.key, {"position": position}, _rev(entry)))
    return ops


def requeued(order: Sequence[Entry]) -> list[Op]:
    """Every entry at its new place; each revision rises, as the order is part of what a reader saw."""
    return [
        Patch(
            "pending",
            entry.key,
            {"position": position, "revision": entry.item.revision + 1, "updated_at": NOW},
            _rev(entry),
        )
        for position, entry in enumerate(order, 1)
    ]


def _rev(entry: Entry) -> int:
    return entry.rev or 0
