"""From a store to a tree: reads a thread's records and branches and links them, a page at a time.

Records that no living branch leads to (their branches were deleted) are left out unless asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from perdure import limits
from perdure.cli.render import summary
from perdure.cli.tree_drawing import Node, Tree
from perdure.errors import CorruptError, NotFoundError
from perdure.kernel.ops import Get, Read, Row, Scan
from perdure.model.message import MessageRecord
from perdure.stores.records import message_record
from perdure.stores.store import Store

_FOREVER = 1 << 60


async def grow(store: Store, thread_id: str, *, everything: bool = False) -> Tree:
    """The tree of a thread as it is now."""
    scope_context = store._context  # noqa: SLF001 - deleted branches still carry others, and no list shows them
    heads, rows = await scope_context.view(Get("thread_heads", [(thread_id,)]), Scan("branches", eq=(thread_id,)))
    if heads[0] is None:
        raise NotFoundError(f"thread {thread_id!r} does not exist")
    branches: dict[int, Row] = {int(row.key[1]): row for row in rows}
    current = heads[0]["branch"]
    if current not in branches:
        raise CorruptError(f"the current branch {current} is missing", where=f"thread {thread_id!r}")
    reach = _reach(branches, {n for n, row in branches.items() if everything or row["deleted_at"] is None}, thread_id)
    nodes = await _nodes(store, thread_id, heads[0]["version"], reach, branches)
    path = _reach(branches, {current}, thread_id)
    labels = {label.seq: label.label for label in await store.branches.labels(thread_id)}
    tips = _tips(branches)
    full = {
        seq: msgspec.structs.replace(
            node, label=labels.get(seq), heads=tips.get(seq, ()), current=seq <= path.get(node.branch, 0)
        )
        for seq, node in nodes.items()
    }
    children: dict[int | None, list[int]] = {}
    for seq, node in full.items():
        children.setdefault(node.parent, []).append(seq)
    return Tree(full, children, tips.get(0, ()), branches[current]["name"] or "")


def _reach(branches: Mapping[int, Row], chosen: set[int], thread_id: str) -> dict[int, int]:
    """How far along each branch the chosen ones lead. A parent is older than its forks, so one pass will do."""
    reach = dict.fromkeys(chosen, _FOREVER)
    for number in sorted(branches, reverse=True):
        parent = branches[number]["parent"]
        if number not in reach or parent is None:
            continue
        if parent not in branches or parent >= number:
            raise CorruptError(f"branch {number} hangs under branch {parent}", where=f"thread {thread_id!r}")
        reach[parent] = max(reach.get(parent, 0), branches[number]["fork_seq"])
    return reach


async def _records(store: Store, thread_id: str, version: int) -> AsyncIterator[MessageRecord]:
    """Every record, without its parent: a list would look each parent up, and here it is known already."""
    scope_context = store._context  # noqa: SLF001 - see above
    seq = 0
    while seq < version:
        entries = (
            await scope_context.view(Read("messages", thread_id, after=seq, upto=version, limit=limits.PAGE_MAX))
        )[0]
        if not entries:
            raise CorruptError(f"message {seq + 1} is missing", where=f"thread {thread_id!r}")
        for entry in entries:
            yield message_record(thread_id, entry, None)
        seq = entries[-1][0]


async def _nodes(
    store: Store, thread_id: str, version: int, reach: Mapping[int, int], branches: Mapping[int, Row]
) -> dict[int, Node]:
    nodes: dict[int, Node] = {}
    newest: dict[int, int] = {}
    calls: dict[str, str] = {}
    async for record in _records(store, thread_id, version):
        if record.seq > reach.get(record.branch, 0):
            continue
        before = newest.get(record.branch) or branches[record.branch]["fork_seq"] or None
        newest[record.branch] = record.seq
        nodes[record.seq] = Node(
            seq=record.seq,
            id=record.message_id,
            parent=before,
            branch=record.branch,
            role=record.role,
            text=summary(record, calls),
            internal=record.visibility != "all",
        )
    return nodes


def _tips(branches: Mapping[int, Row]) -> dict[int, tuple[str, ...]]:
    """The names of living branches by the seq they end at; 0 for those without any message."""
    tips: dict[int, tuple[str, ...]] = {}
    for row in branches.values():
        if row["deleted_at"] is None:
            tips[row["head_seq"]] = (*tips.get(row["head_seq"], ()), row["name"] or "")
    return tips
