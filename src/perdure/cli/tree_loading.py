"""From a store to a tree: reads a thread's records and branches and links them, a page at a time.

Records that no living branch leads to (their branches were deleted) are left out unless asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from perdure.cli.render import summary
from perdure.cli.tree_drawing import Node, Tree
from perdure.errors import CorruptError
from perdure.model.branch import Branch
from perdure.stores.store import Store


async def grow(store: Store, thread_id: str, *, everything: bool = False) -> Tree:
    """The tree of a thread. The branches are read first: what is written meanwhile is not on any of them yet."""
    branches = await store.branches.list(thread_id)
    current = next((branch for branch in branches if branch.current), None)
    if current is None:
        raise CorruptError("the current branch is missing", where=f"thread {thread_id!r}")
    nodes = await _nodes(store, thread_id)
    path = _reachable(nodes, [current.head_seq])
    living = set(nodes) if everything else _reachable(nodes, [branch.head_seq for branch in branches])
    labels = {label.seq: label.label for label in await store.branches.labels(thread_id)}
    tips = _tips(branches)
    full = {
        seq: msgspec.structs.replace(node, label=labels.get(seq), heads=tips.get(seq, ()), current=seq in path)
        for seq, node in nodes.items()
        if seq in living
    }
    children: dict[int | None, list[int]] = {}
    for seq, node in full.items():
        children.setdefault(node.parent, []).append(seq)
    return Tree(full, children, tips.get(0, ()), current.name)


async def _nodes(store: Store, thread_id: str) -> dict[int, Node]:
    """Every message of the log, linked to its parent."""
    nodes: dict[int, Node] = {}
    seqs: dict[str, int] = {}
    calls: dict[str, str] = {}
    async for record in store.messages.iter(thread_id):
        if record.parent_id is not None and record.parent_id not in seqs:
            raise CorruptError(f"the parent of message {record.seq} is missing", where=f"thread {thread_id!r}")
        seqs[record.message_id] = record.seq
        nodes[record.seq] = Node(
            seq=record.seq,
            id=record.message_id,
            parent=None if record.parent_id is None else seqs[record.parent_id],
            branch=record.branch,
            role=record.role,
            text=summary(record, calls),
            internal=record.visibility != "all",
        )
    return nodes


def _reachable(nodes: Mapping[int, Node], heads: Iterable[int]) -> set[int]:
    """The messages on the paths from these heads to their roots; each is visited once."""
    reached: set[int] = set()
    for head in heads:
        seq: int | None = head
        while seq is not None and seq not in reached and seq in nodes:
            reached.add(seq)
            seq = nodes[seq].parent
    return reached


def _tips(branches: Iterable[Branch]) -> dict[int, tuple[str, ...]]:
    """The names of living branches by the seq they end at; 0 for those without any message."""
    tips: dict[int, tuple[str, ...]] = {}
    for branch in branches:
        tips[branch.head_seq] = (*tips.get(branch.head_seq, ()), branch.name)
    return tips
