"""From what people type to what it names: threads and runs by the beginning of their ids, branches, messages.

Nothing here reads more than a handful of records, however many a store has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from perdure.cli.hints import command_line
from perdure.errors import InvalidError, NotFoundError
from perdure.model.branch import Branch
from perdure.model.message import MessageRecord
from perdure.model.run import Run
from perdure.stores.store import Store

_LISTED = 5
"""How many candidates an ambiguous beginning lists."""


class Named(Protocol):
    """A record with an id."""

    @property
    def id(self) -> str:
        """Its id."""
        ...


Record = TypeVar("Record", bound=Named)


async def find_thread(store: Store, text: str) -> str:
    """The id of the thread that `text` names: its id, or the only id that starts with it."""
    threads = await store.threads.with_prefix(text, limit=_LISTED + 1)
    return _only(threads, text, "thread", "perdure threads lists them").id


async def find_run(store: Store, text: str) -> Run:
    """The run that `text` names: by its id, or by the only id that starts with it."""
    runs = await store.runs.with_prefix(text, limit=_LISTED + 1)
    return _only(runs, text, "run", "perdure runs lists them")


def _only(records: Sequence[Record], text: str, noun: str, hint: str) -> Record:
    if not records:
        raise NotFoundError(f"no {noun} id is or starts with {text!r}", hint=hint)
    if len(records) > 1 and records[0].id != text:
        more = ", …" if len(records) > _LISTED else ""
        listed = ", ".join(record.id for record in records[:_LISTED]) + more
        raise InvalidError(f"{text!r} is the beginning of several {noun}s: {listed}", hint="give more of the id")
    return records[0]


def whole_number(text: str) -> int | None:
    """The number that these ASCII digits spell; None for anything else, and for what no number in a store can be."""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


async def find_branch(store: Store, thread_id: str, text: str) -> Branch:
    """The branch that `text` names: by name, or by number."""
    with suppress(NotFoundError):
        return await store.branches.get(thread_id, text)
    number = whole_number(text)
    if number is not None:
        with suppress(NotFoundError):
            return await store.branches.get(thread_id, number)
    what = "called" if number is None else "number"
    hint = f"{command_line('branch', thread_id)} lists them"
    raise NotFoundError(f"thread {thread_id!r} has no branch {what} {text!r}", hint=hint)


async def find_message(store: Store, thread_id: str, text: str) -> MessageRecord:
    """The message that `text` names: by id, or by its number in the log."""
    record = await store.messages.find(thread_id, text)
    seq = whole_number(text.removeprefix("#"))
    if record is None and seq:
        records = await store.messages.range(thread_id, seq, seq)
        record = records[0] if records else None
    if record is None:
        raise NotFoundError(
            f"thread {thread_id!r} has no message {text!r}",
            hint=f"give its id or its number; {command_line('tree', thread_id)} shows them",
        )
    return record
