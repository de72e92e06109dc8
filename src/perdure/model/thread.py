"""The thread record: a conversation's metadata, its parent, and the pointers to its runs and its current branch."""

from __future__ import annotations

from typing import Any, TypedDict

from perdure.model.faithful import NO_EXTRA, Extra, Faithful
from perdure.model.public_json import thread_json
from perdure.model.record import Record
from perdure.model.stored_json import Reader, write


class ThreadBody(Faithful, frozen=True):
    """The stored JSON of a thread's cold row."""

    custom: dict[str, Any] = {}
    extra: Extra = NO_EXTRA


class Thread(Record, frozen=True):
    """A conversation as it was when read. Times are milliseconds since 1970, UTC."""

    id: str
    """Unique within the scope."""
    title: str | None
    """What people call it, or None."""
    resource_id: str | None
    """The user, account or object it belongs to; `threads.list` filters by it."""
    parent_thread_id: str | None
    """The thread above it in the hierarchy; None for a root."""
    custom: dict[str, Any]
    """Your own metadata, a JSON object; `threads.update` replaces it as a whole."""
    created_at: int
    """When it was created."""
    updated_at: int
    """When a commit or an edit last touched it; `threads.list` orders by it."""
    version: int
    """How many messages it has, over all branches. `commit(expect=…)` guards on it."""
    branch: int
    """The number of its current branch: the one that commits go to when they name none."""
    children: int
    """How many threads have it as their parent."""
    fence: int | None
    """The highest fence that a commit carried; lower ones are refused. None if none did."""
    active_run_id: str | None
    """The run that is running now."""
    open_run_id: str | None
    """A run that is not done yet: created, running or waiting."""
    latest_run_id: str | None
    """The run that was created, or changed while running, most recently."""
    rev: int
    """Changes when title, custom, resource or parent do. `threads.update(if_rev=…)` guards on it."""

    def public_json(self) -> dict[str, Any]:
        """JSON data for the browser of a user: title and times, without your own metadata."""
        return thread_json(self)


class NewThread(Record, frozen=True, kw_only=True):
    """What a thread is created with, for a commit that may create it. A thread that exists is left as it is."""

    title: str | None = None
    """What people call it."""
    resource_id: str | None = None
    """The user, account or object it belongs to."""
    parent_thread_id: str | None = None
    """The thread above it; it must exist."""
    custom: dict[str, Any] | None = None
    """Your own metadata, a JSON object."""


class ThreadOptions(TypedDict, total=False):
    """What `threads.create` and `threads.ensure` take besides the id: the fields of `NewThread`, by keyword."""

    title: str | None
    resource_id: str | None
    parent_thread_id: str | None
    custom: dict[str, Any] | None


BODY_READER: Reader[ThreadBody] = Reader(ThreadBody)


def write_body(body: ThreadBody) -> bytes:
    """The stored JSON of a thread."""
    return write(body)
