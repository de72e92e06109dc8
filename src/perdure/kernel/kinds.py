"""Kinds: transactions that differ in their values alone.

A store sends few kinds of transactions, and sends them often. What follows from a kind (the shapes of its operations,
an engine's statements, where each argument is) is worked out once; a transaction of a known kind is then no more than
its values: one flat list, in the order of `kernel.shapes`, and the entries that it appends.

Example: a commit of two messages to thread `t` on branch 0 has a kind with the shapes

    Patch thread_heads {version: Inc, updated_at: NOW}, Patch branches {head, head_seq: Seq, length: Inc}, Append

and the values `["t", 2, "t", 0, "m-2", 0, 2, "t", 2]`, plus two entries. `Filled.operations` makes the same transaction
as a list of operations. That is the reference: engines without support for kinds take it, and so does every engine to
find out why a transaction was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from perdure.kernel.ops import Append, LogEntry, Op, Patch, Put
from perdure.kernel.shapes import DESCRIBE, Shape, Values


class Kind:
    """What transactions of one kind have in common.

    `shapes` are those of the operations, in order; `starts` says where the values of each begin in the flat list, and
    its last item is the length of that list. `append` is the position of the operation that appends, if there is one:
    a kind has at most one. `template` is a transaction of this kind, without its
    bodies. `owned` promises that all rows belong to the first
    one, which the transaction changes: two transactions that do not share their first row share no row (the rows of a
    commit belong to its thread). Kinds are compared by identity.
    """

    __slots__ = ("append", "owned", "shapes", "starts", "template")

    def __init__(self, template: Sequence[Op], *, owned: bool = False) -> None:
        self.owned: bool = owned
        self.template: Sequence[Op] = [_without_bodies(op) for op in template]
        described = [DESCRIBE[type(op)](op) for op in template]
        self.shapes: tuple[Shape, ...] = tuple(shape for shape, _ in described)
        self.starts: tuple[int, ...] = tuple(accumulate((len(values) for _, values in described), initial=0))
        self.append: int | None = next((i for i, op in enumerate(template) if type(op) is Append), None)


def _without_bodies(op: Op) -> Op:
    """The operation with an empty body in place of its own: a kind outlives the content of its first transaction."""
    if isinstance(op, Append):
        return msgspec.structs.replace(op, entries=[(*entry[:-1], b"{}") for entry in op.entries])
    if isinstance(op, (Put, Patch)) and op.body is not None:
        return msgspec.structs.replace(op, body=b"{}")
    return op


class Filled(msgspec.Struct, frozen=True, eq=False):
    """A transaction of a known kind. `operations` makes it as a list of operations, anew with each call."""

    kind: Kind
    values: Values
    entries: list[LogEntry]
    operations: Callable[[], list[Op]]


def values_of(ops: Sequence[Op]) -> Values:
    """The flat list of values of a transaction."""
    return [value for op in ops for value in _described_values(op)]


def _described_values(op: Op) -> Sequence[Any]:
    return DESCRIBE[type(op)](op)[1]
