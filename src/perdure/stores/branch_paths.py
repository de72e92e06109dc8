"""Reads the log entries of a branch's path, from one snapshot, usually in one trip.

The path is guessed from what this process saw last and checked against the thread's hot row in the same view. A thread
that never branched is always guessed right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import CorruptError, InvalidError, NotFoundError, short_repr
from perdure.kernel.ops import Get, LogEntry, Read, ReadOp, Row, Scan
from perdure.model.branch import MAIN
from perdure.model.message import MessageRecord
from perdure.rules import checks
from perdure.rules.branch_path import beyond, bounded, stretches
from perdure.stores.context import MAIN_LINE, Context, Line, require
from perdure.stores.records import MessageEntry, path_records
from perdure.stores.retry import Stale, retry

NO_SUCH_BRANCH = limits.BRANCHES_PER_THREAD
"""A number that no branch has."""


class PathRead(msgspec.Struct, frozen=True):
    """A path as one snapshot saw it. `entries` ascend, and `records` are the same as records, if the query wants them.

    `parent_id` is what the first of them hangs under, if the newest were asked for: None where the path begins.
    """

    head: Row
    branch_row: Row | None
    entries: list[LogEntry]
    parent_id: str | None
    also: list[Any]
    records: list[MessageRecord] = []


class PathQuery(msgspec.Struct, frozen=True):
    """Which path, how much of it, and what else to read from the same snapshot.

    `limit` keeps the newest entries, or with `oldest` the oldest; `where` filters them by column. With `decode`, they
    become records, each under the one before it.
    """

    branch: int | None = None
    after: int = 0
    upto: int | None = None
    limit: int | None = None
    oldest: bool = False
    where: Mapping[str, Any] = {}
    even_deleted: bool = False
    with_branch: bool = False
    decode: bool = False
    also: tuple[ReadOp, ...] = ()


async def read_path(context: Context, thread_id: str, query: PathQuery) -> PathRead:
    """Read a path; raises `NotFoundError` for a missing thread or branch."""

    async def attempt() -> PathRead:
        line = _guess(context, thread_id, query.branch) or await _look_up(context, thread_id, query.branch)
        path = await context.view_through(partial(_read, thread_id, line, query), *_reads(thread_id, line, query))
        if path is None:
            context.forget(thread_id)
            await _look_up(context, thread_id, query.branch)
            raise Stale
        return path

    return await retry("thread", thread_id, attempt)


def _read(thread_id: str, line: Line, query: PathQuery, answers: list[Any]) -> PathRead | None:
    """The path from the answers to `_reads`, None if the guessed line is not the one that is meant."""
    head, *results = answers
    row = require(head[0], f"thread {thread_id!r}")
    if _stale(row, line, query.branch):
        return None
    branch_row = None
    if _asks_branch(query):
        branch_row = results.pop(0)[0]
        if branch_row is None or (branch_row["deleted_at"] is not None and not query.even_deleted):
            raise NotFoundError(f"branch {line.branch} of thread {thread_id!r} does not exist")
    path = _finish(thread_id, row, branch_row, query, results)
    if not query.decode:
        return path
    return msgspec.structs.replace(path, records=path_records(thread_id, path.entries, path.parent_id))


def _asks_branch(query: PathQuery) -> bool:
    """The current branch is always alive; one that the caller names is looked at, and so is one that is wanted."""
    return query.branch is not None or query.with_branch


def _guess(context: Context, thread_id: str, branch: int | None) -> Line | None:
    number = context.current.get(thread_id, MAIN) if branch is None else branch
    return context.lines.get((thread_id, number)) or (MAIN_LINE if number == MAIN else None)


def _stale(head: Row, line: Line, branch: int | None) -> bool:
    if branch is None and head["branch"] != line.branch:
        return True
    return line.born is not None and line.born != head["born"]


async def _look_up(context: Context, thread_id: str, branch: int | None) -> Line:
    heads, rows = await context.view(Get("thread_heads", [(thread_id,)]), Scan("branches", eq=(thread_id,)))
    head = require(heads[0], f"thread {thread_id!r}")
    origins = {int(row.key[1]): (row["parent"], row["fork_seq"]) for row in rows}
    number = head["branch"] if branch is None else branch
    if number not in origins:
        raise NotFoundError(f"branch {number} of thread {thread_id!r} does not exist")
    line = Line(head["born"], number, stretches(number, origins, where=f"thread {thread_id!r}"))
    context.remember_current(thread_id, head["branch"])
    context.remember_line(thread_id, line)
    return line


def _reads(thread_id: str, line: Line, query: PathQuery) -> Sequence[ReadOp]:
    cut = line if query.upto is None else Line(line.born, line.branch, bounded(line.stretches, query.upto))
    cut = cut if not query.after else Line(cut.born, cut.branch, beyond(cut.stretches, query.after))
    newest = query.limit is not None and not query.oldest
    # The entry before the newest ones is the parent of the first.
    limit = query.limit + 1 if newest and query.limit is not None else query.limit
    log = Read("messages", thread_id, segments=cut.segments(), limit=limit, desc=newest, where=query.where)
    branch = (Get("branches", [(thread_id, line.branch)]),) if _asks_branch(query) else ()
    return (Get("thread_heads", [(thread_id,)]), *branch, log, *query.also)


def _finish(thread_id: str, head: Row, branch: Row | None, query: PathQuery, results: list[Any]) -> PathRead:
    entries, *also = results
    parent = None
    if query.oldest or query.where or query.after:
        return PathRead(head, branch, entries, None, also)
    if query.limit is not None:
        entries.reverse()
        if len(entries) > query.limit:
            parent = MessageEntry._make(entries[0]).id
            entries = entries[1:]
    elif head["branches"] == 1 and query.upto is None and len(entries) != head["version"]:
        raise CorruptError(
            f"{len(entries)} messages are there, the thread counts {head['version']}", where=f"thread {thread_id!r}"
        )
    return PathRead(head, branch, entries, parent, also)


async def resolve_branch(context: Context, thread_id: str, branch: int | str | None) -> int | None:
    """A branch's number from its number or name; None stays None (the current one)."""
    check_branch(branch)
    if branch is None or isinstance(branch, int):
        return branch
    heads, rows = await context.view(Get("thread_heads", [(thread_id,)]), _called(thread_id, branch))
    require(heads[0], f"thread {thread_id!r}")
    if not rows:
        raise NotFoundError(f"thread {thread_id!r} has no branch called {branch!r}")
    return int(rows[0].key[1])


def check_branch(branch: int | str | None) -> None:
    """Raise `InvalidError` for what can name no branch."""
    if branch is None or (type(branch) is int and abs(branch) <= limits.INTEGER_MAX):
        return
    if type(branch) is not str:
        raise InvalidError(f"a branch is named by its number or name, not {short_repr(branch)}")
    checks.check_id(branch, "branch name", most=limits.NAME_BYTES)


async def commit_target(context: Context, thread_id: str, name: str) -> int:
    """The number of the branch that a commit names, or `NO_SUCH_BRANCH`: such a commit is refused in the usual order,
    key first."""
    rows = (await context.view(_called(thread_id, name)))[0]
    return int(rows[0].key[1]) if rows else NO_SUCH_BRANCH


def _called(thread_id: str, name: str) -> Scan:
    return Scan("branches", eq=(thread_id,), where={"name": name}, limit=1)
