"""A thread: a conversation's metadata, its place in the hierarchy and the pointers to its runs and branch."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model.faithful import NO_EXTRA, Extra, Faithful, Reader, write


class ThreadBody(Faithful, frozen=True):
    """The stored JSON of a thread's cold row."""

    custom: dict[str, Any] = {}
    extra: Extra = NO_EXTRA


class Thread(msgspec.Struct, frozen=True):
    """A conversation as it was when read.

    `version` counts its messages over all branches and guards commits; `rev` tags what people edit (title, custom,
    lineage) and guards `threads.update`. Times are milliseconds, UTC.
    """

    id: str
    title: str | None
    resource_id: str | None
    parent_thread_id: str | None
    custom: dict[str, Any]
    created_at: int
    updated_at: int
    version: int
    branch: int
    children: int
    fence: int | None
    active_run_id: str | None
    open_run_id: str | None
    latest_run_id: str | None
    rev: int


BODY_READER: Reader[ThreadBody] = Reader(ThreadBody)


def write_body(body: ThreadBody) -> bytes:
    """The stored JSON of a thread."""
    return write(body)
