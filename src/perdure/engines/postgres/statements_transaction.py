"""A transaction taken apart: its operations in the order in which their rows are locked, and how it may be run.

Heads of logs come first, because others use the seqs they give, then tables as declared, each by key: whoever follows
this order never waits in a circle with somebody who does too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.engines.postgres.statements import Shape, Values, describe
from perdure.kernel.ops import ABSENT, ANY, Append, Delete, Drop, Op, Patch, Put
from perdure.kernel.schema import Schema

_TOGETHER_BYTES = 64 * 1024
_ALONE_MOST = 32
"""Beyond this many operations a statement with a CTE for each is not worth its parsing: they become rows, or steps."""

Name = tuple[Any, ...]
"""A row or partition: scope, place in the lock order, key."""


class Member(NamedTuple):
    """An operation of a transaction in lock order: its number in the transaction, its shape and its values."""

    number: int
    op: Any
    shape: Shape
    values: Values


class Transaction:
    """A transaction taken apart: members in lock order, and what decides how it may be run.

    `kind` is what transactions that share a statement have in common; `lasts` are the places of the first append to
    each log. It is made for every commit, hence the one loop.
    """

    __slots__ = ("careful", "kind", "large", "lasts", "members", "names", "rev", "scope", "shape", "together")

    def __init__(
        self, scope: str, rev: int, ops: Sequence[Op], order: dict[str, int], unique: dict[str, frozenset[str]]
    ) -> None:
        self.scope = scope
        self.rev = rev
        self.names: list[Name] = []
        self.members: list[Member] = []
        self.lasts: dict[str, int] = {}
        self.careful = False
        groups: dict[str, Shape] = {}
        shapes: list[Shape] = []
        alike, size = True, 0
        for place, key, number, op in _in_order(ops, order):
            shape, values = describe(op)
            kind, owner = shape[0], shape[1]
            if groups.setdefault(owner, shape) is not shape:
                # Entries of two partitions of one log would not know whose seqs are whose.
                alike = alike and kind is not Append and groups[owner] == shape
            if kind is Append:
                first = self.lasts.get(owner)
                if first is None or self.members[first].number > number:
                    self.lasts[owner] = len(shapes)
                size += sum([len(entry[-1]) for entry in op.entries])
            elif kind is Put or kind is Patch:
                alike = alike and (kind is Put or shape[5] is None)
                size += len(op.body or b"")
            elif kind is Drop or (kind is Delete and (shape[2] is ANY or shape[2] is ABSENT)):
                self.careful = True
            self.names.append((scope, place, key))
            self.members.append(Member(number, op, shape, values))
            shapes.append(shape)
        if len(groups) < len(shapes) and not self.careful:
            self.careful = any(passes_on(self.members, name, unique[name]) for name in groups.keys() & unique.keys())
        self.shape = (*shapes, *self.lasts.values())
        self.kind = tuple(groups.values())
        self.together = alike and not self.careful and size <= _TOGETHER_BYTES
        self.large = alike and not self.careful and len(ops) > _ALONE_MOST
        self.careful = self.careful or (len(ops) > _ALONE_MOST and not alike)


def _in_order(ops: Sequence[Op], order: dict[str, int]) -> list[tuple[int, Any, int, Any]]:
    found: list[tuple[int, Any, int, Any]] = []
    for number, op in enumerate(ops):
        if type(op) is Append or type(op) is Drop:
            found.append((order[op.log], (op.partition,), number, op))
        else:
            found.append((order[op.table], op.key, number, op))  # type: ignore[union-attr]
    # No row is named twice, so no comparison comes as far as the operation.
    found.sort()
    return found


def passes_on(members: list[Member], table: str, unique: frozenset[str]) -> bool:
    """True when one row of a table may give up a value of its `unique` columns that another takes."""
    here = [member.shape for member in members if member.shape[1] == table]
    if len(here) < 2:
        return False
    gives = [_gives(shape, unique) for shape in here]
    takes = [_takes(shape, unique) for shape in here]
    return any(gives[i] and takes[j] for i in range(len(here)) for j in range(len(here)) if i != j)


def _gives(shape: Shape, unique: frozenset[str]) -> bool:
    kind = shape[0]
    if kind is Patch:
        return not unique.isdisjoint(shape[2])
    return kind is Delete or (kind is Put and shape[4] is not ABSENT)


def _takes(shape: Shape, unique: frozenset[str]) -> bool:
    kind = shape[0]
    if kind is Put:
        return not unique.isdisjoint(shape[2])
    return kind is Patch and not (unique.isdisjoint(shape[2]) and (not shape[5] or unique.isdisjoint(shape[5][0])))


def lock_order(schema: Schema) -> dict[str, int]:
    """Where each log and table stands in the order of locks."""
    return {
        name: place for place, name in enumerate([log.name for log in schema.logs] + [t.name for t in schema.tables])
    }


def unique_columns(schema: Schema) -> dict[str, frozenset[str]]:
    """The columns that make up the unique groups of each table that has any; keys never change hands."""
    return {
        table.name: frozenset(name for group in table.unique for name in group if name not in table.key_names)
        for table in schema.tables
        if table.unique
    }
