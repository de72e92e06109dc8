"""The rows of a pending queue: what each kind of change writes. Positions are dense from 1."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.kernel.ops import ABSENT, NOW, Applied, Delete, Op, Patch, Put, Row
from perdure.model.faithful import write
from perdure.model.message import Message
from perdure.model.pending import DeliveryMode, PendingBody, PendingMessage
from perdure.stores.records import pending_from
from perdure.stores.results import row_changed


class Entry(msgspec.Struct, frozen=True):
    """A pending message with the row that holds it."""

    item: PendingMessage
    row: Row

    @property
    def key(self) -> tuple[str, str]:
        """The row's key."""
        return self.item.thread_id, self.item.id


def entry_from(row: Row) -> Entry:
    """An entry from its row."""
    return Entry(pending_from(row), row)


def enqueued(
    thread_id: str, entries: Sequence[Entry], messages: Sequence[Message], mode: DeliveryMode
) -> list[PendingMessage]:
    """New messages behind the entries that are there; nothing of them is written yet."""
    return [
        PendingMessage(
            thread_id=thread_id,
            id=message.id or "",
            position=position,
            revision=1,
            message=message,
            mode=mode,
            created_at=0,
            updated_at=0,
        )
        for position, message in enumerate(messages, len(entries) + 1)
    ]


def renumbered(items: Sequence[PendingMessage], before: int) -> list[PendingMessage]:
    """The same messages, standing behind `before` others."""
    return [msgspec.structs.replace(item, position=position) for position, item in enumerate(items, before + 1)]


def added(item: PendingMessage) -> Put:
    """Write a new message."""
    columns = {"position": item.position, "revision": 1, "created_at": NOW, "updated_at": NOW}
    return Put("pending", (item.thread_id, item.id), columns, write(PendingBody(item.message, item.mode)), ABSENT)


def edited(entry: Entry, message: Message, mode: DeliveryMode | None) -> Patch:
    """Replace an entry's message, and its mode if one is given; the revision rises."""
    kept = msgspec.structs.replace(message, id=entry.item.id)
    body = write(PendingBody(kept, mode or entry.item.mode))
    columns = {"revision": entry.item.revision + 1, "updated_at": NOW}
    return Patch("pending", entry.key, columns, entry.row.rev, body)


def without(entries: Sequence[Entry], gone: set[str]) -> list[Op]:
    """Remove some entries and move the rest up; those whose place does not change are left alone."""
    ops: list[Op] = [Delete("pending", entry.key, entry.row.rev) for entry in entries if entry.item.id in gone]
    position = 0
    for entry in entries:
        if entry.item.id in gone:
            continue
        position += 1
        if entry.item.position != position:
            ops.append(Patch("pending", entry.key, {"position": position}, entry.row.rev))
    return ops


def requeued(order: Sequence[Entry]) -> list[Patch]:
    """Every entry at its new place; each revision rises, as the order is part of what a reader saw."""
    return [
        Patch(
            "pending",
            entry.key,
            {"position": position, "revision": entry.item.revision + 1, "updated_at": NOW},
            entry.row.rev,
        )
        for position, entry in enumerate(order, 1)
    ]


def changed(entries: Sequence[Entry], patches: Sequence[Patch], applied: Applied) -> list[PendingMessage]:
    """What these patches, each of the entry at its place, left of the entries."""
    return [pending_from(row_changed(entry.row, patch, applied)) for entry, patch in zip(entries, patches, strict=True)]
