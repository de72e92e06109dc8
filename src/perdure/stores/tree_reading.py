"""From a store to a tree: reads a thread's branches, labels and messages and links them, a page at a time.

Messages that no living branch leads to (their branches were deleted) are left out unless asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from perdure import limits
from perdure.errors import CorruptError, InvalidError
from perdure.kernel.ops import Get, Read, Row, Scan
from perdure.model.tree import Tree, TreeNode
from perdure.rules.branch_path import Origin, Reach, reach
from perdure.stores.context import Context, require
from perdure.stores.path_lengths import fork_point, inherited_lengths
from perdure.stores.previews import preview
from perdure.stores.records import MessageEntry, branch_from, message_record
from perdure.stores.retry import Stale, retry
from perdure.stores.summaries import summary

_TEXT_MOST = 400


class _Rows(msgspec.Struct, frozen=True):
    """Everything of a thread but its messages, from one snapshot."""

    thread_id: str
    head: Row
    branches: Mapping[int, Row]
    labels: Mapping[int, str]

    @property
    def alive(self) -> set[int]:
        """The numbers of the branches that were not deleted."""
        return {number for number, row in self.branches.items() if row["deleted_at"] is None}

    def reach(self, chosen: set[int]) -> dict[int, Reach]:
        """How far along each branch the chosen ones lead."""
        return reach(origins(self.branches), chosen, where=f"thread {self.thread_id!r}")


def origins(branches: Mapping[int, Row]) -> dict[int, Origin]:
    """Where each branch hangs."""
    return {number: (row["parent"], row["fork_seq"]) for number, row in branches.items()}


async def read_tree(context: Context, thread_id: str, *, everything: bool, most: int | None) -> Tree:
    """The tree of a thread as it is now, unless it has more messages than `most`."""

    async def attempt() -> Tree:
        heads, rows, labels = await context.view(
            Get("thread_heads", [(thread_id,)]), Scan("branches", eq=(thread_id,)), Scan("labels", eq=(thread_id,))
        )
        head = require(heads[0], f"thread {thread_id!r}")
        if most is not None and head["version"] > most:
            raise InvalidError(
                f"a tree of {head['version']:,} messages, the limit is {most:,}",
                hint="pass most=None, or read its branches with branches.list and messages.page",
            )
        branches = {int(row.key[1]): row for row in rows}
        if head["branch"] not in branches:
            raise CorruptError(f"the current branch {head['branch']} is missing", where=f"thread {thread_id!r}")
        names = {row["seq"]: row["label"] for row in labels}
        return await _grow(context, _Rows(thread_id, head, branches, names), everything)

    return await retry("thread", thread_id, attempt, on=(Stale,))


async def _grow(context: Context, rows: _Rows, everything: bool) -> Tree:
    alive = rows.alive
    leads = rows.reach(set(rows.branches) if everything else alive)
    path = rows.reach({rows.head["branch"]})
    tips: dict[int, tuple[str, ...]] = {}
    for number in sorted(alive):
        row = rows.branches[number]
        tips[row["head_seq"]] = (*tips.get(row["head_seq"], ()), row["name"] or "")
    nodes: list[TreeNode] = []
    newest: dict[int, int] = {}
    calls: dict[str, str] = {}
    previews: dict[int, str] = {}
    async for entry in _entries(context, rows):
        if entry.branch not in leads or entry.seq > leads[entry.branch].upto:
            continue
        before = newest.get(entry.branch) or rows.branches[entry.branch]["fork_seq"] or None
        newest[entry.branch] = entry.seq
        if entry.seq in tips:
            previews[entry.seq] = preview(rows.thread_id, entry)
        nodes.append(
            TreeNode(
                seq=entry.seq,
                id=entry.id,
                parent=before,
                branch=entry.branch,
                role=entry.role,
                text=_short(summary(message_record(rows.thread_id, entry, None), calls)),
                label=rows.labels.get(entry.seq),
                internal=entry.visibility != "all",
                current=entry.branch in path and entry.seq <= path[entry.branch].upto,
                heads=tips.get(entry.seq, ()),
            )
        )
    living = [rows.branches[number] for number in sorted(alive)]
    every_row = list(rows.branches.values())
    lengths = await inherited_lengths(context, rows.head, every_row, map(fork_point, living))
    branches = [
        branch_from(row, rows.head["branch"], lengths[fork_point(row)], previews.get(row["head_seq"])) for row in living
    ]
    return Tree(thread_id=rows.thread_id, nodes=nodes, branches=branches)


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MOST else text[: _TEXT_MOST - 1] + "…"


async def _entries(context: Context, rows: _Rows) -> AsyncIterator[MessageEntry]:
    """Every message that the thread had when its rows were read."""
    thread_id, version, seq = rows.thread_id, rows.head["version"], 0
    while seq < version:
        heads, entries = await context.view(
            Get("thread_heads", [(thread_id,)]),
            Read("messages", thread_id, after=seq, upto=version, limit=limits.PAGE_MAX),
        )
        if require(heads[0], f"thread {thread_id!r}")["born"] != rows.head["born"]:
            raise Stale
        if not entries:
            raise CorruptError(f"message {seq + 1} is missing", where=f"thread {thread_id!r}")
        for entry in entries:
            yield MessageEntry._make(entry)
        seq = entries[-1][0]
