"""The operations of a pending queue: what each kind of change writes to its rows.

Positions are dense from 1. Nothing here reads: a change is planned on the entries of one snapshot, and the queue's
guard row refuses it if they changed since.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.kernel.ops import ABSENT, NOW, Applied, Delete, Op, Patch, Put, Row
from perdure.model.message import Message
from perdure.model.pending import DeliveryMode, PendingBody, PendingMessage
from perdure.model.stored_json import write
from perdure.stores.records import pending_from
from perdure.stores.results import row_after_patch


class Entry(msgspec.Struct, frozen=True):
    """A pending message with the row that holds it."""

    item: PendingMessage
    row: Row

    @property
    def key(self) -> tuple[str, str]:
        """The row's key."""
        return self.item.thread_id, self.item.id


def entry_from(row: Row) -> Entry:
    """Decode a row, and keep it for the conditions of a change."""
    return Entry(pending_from(row), row)


def new_items(
    thread_id: str, entries: Sequence[Entry], messages: Sequence[Message], mode: DeliveryMode
) -> list[PendingMessage]:
    """New messages positioned behind the existing entries, not yet written."""
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
    """The same messages, positioned behind `before` others."""
    return [msgspec.structs.replace(item, position=position) for position, item in enumerate(items, before + 1)]


def insert_op(item: PendingMessage) -> Put:
    """Write a new message."""
    columns = {"position": item.position, "revision": 1, "created_at": NOW, "updated_at": NOW}
    return Put("pending", (item.thread_id, item.id), columns, write(PendingBody(item.message, item.mode)), ABSENT)


def edit_op(entry: Entry, message: Message, mode: DeliveryMode | None) -> Patch:
    """Replace an entry's message, and its mode if one is passed; the revision rises."""
    message = msgspec.structs.replace(message, id=entry.item.id)
    body = write(PendingBody(message, mode or entry.item.mode))
    columns = {"revision": entry.item.revision + 1, "updated_at": NOW}
    return Patch("pending", entry.key, columns, entry.row.rev, body)


def removal_ops(entries: Sequence[Entry], ids: set[str]) -> list[Op]:
    """Remove the entries with these ids and move the rest up; those whose position stays are left alone."""
    ops: list[Op] = [Delete("pending", entry.key, entry.row.rev) for entry in entries if entry.item.id in ids]
    position = 0
    for entry in entries:
        if entry.item.id in ids:
            continue
        position += 1
        if entry.item.position != position:
            ops.append(Patch("pending", entry.key, {"position": position}, entry.row.rev))
    return ops


def reorder_ops(order: Sequence[Entry]) -> list[Patch]:
    """Give every entry its new position; each revision rises, as the order is part of what a reader saw."""
    return [
        Patch(
            "pending",
            entry.key,
            {"position": position, "revision": entry.item.revision + 1, "updated_at": NOW},
            entry.row.rev,
        )
        for position, entry in enumerate(order, 1)
    ]


def items_after(entries: Sequence[Entry], patches: Sequence[Patch], applied: Applied) -> list[PendingMessage]:
    """The entries after these patches, one for each entry in order."""
    rows = [row_after_patch(entry.row, patch, applied) for entry, patch in zip(entries, patches, strict=True)]
    return [pending_from(row) for row in rows]
