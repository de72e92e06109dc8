"""A transaction ready to be written: its operations in lock order, and the ways in which it may run.

Rows are locked in one order: heads of logs first, because other operations use the seqs they give, then tables as
declared, each by key. Transactions that follow it never wait for each other in a circle. What depends on the shapes of
the operations alone is computed once and cached as a `Form`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.engines.sql.terms import ShapeCache
from perdure.kernel.ops import ABSENT, ANY, Append, Delete, Drop, Op, Patch, Put, Trim
from perdure.kernel.schema import Schema
from perdure.kernel.shapes import DESCRIBE, LogShape, RowShape, Shape, Values

BATCHABLE_BYTES = 64 * 1024
_SOLO_OPERATIONS = 32
"""Beyond this many operations a statement with a CTE for each is not worth its parsing: they become rows, or steps."""
_SOLO_ROWS = 2
"""With more rows of one table than this they are arrays: a statement for every number of state documents, and for every
mix of guarded and unguarded ones, would be hundreds, and each takes half a megabyte of the server's memory."""

RowName = tuple[str, int, tuple[Any, ...]]
"""A row or partition: scope, position of its table or log in the lock order, key."""


class Member(msgspec.Struct, frozen=True):
    """An operation of a transaction in lock order; `number` is its position in the transaction as submitted."""

    number: int
    op: Any
    shape: Shape
    values: Values


class Form:
    """What transactions of the same shapes have in common.

    `kind` is equal for transactions that may share a statement: the shapes of their operations, each once; `groups`
    holds, for every operation, the position of its shape in `kind`. `appends` are the positions of all appends, `lasts`
    those of the first to each log. A `batchable` transaction may share a statement; a `bulk` one is sent as arrays even
    when it runs solo; a `stepwise` one runs as steps. `statements` caches its solo statements.
    """

    __slots__ = ("appends", "batchable", "bulk", "groups", "kind", "lasts", "statements", "stepwise")

    def __init__(self, members: Sequence[Member]) -> None:
        self.lasts: dict[str, int] = {}
        self.statements: dict[Any, Any] = {}
        self.kind = _kind(members)
        self.groups = [self.kind.index(member.shape) for member in members]
        owners = Counter(member.shape.owner for member in members)
        self.appends = [position for position, member in enumerate(members) if member.shape.op is Append]
        for position in self.appends:
            first = self.lasts.setdefault(members[position].shape.owner, position)
            if members[first].number > members[position].number:
                self.lasts[members[position].shape.owner] = position
        stepwise = any(_needs_steps(member.shape) for member in members)
        # Entries of two partitions of one log could not tell their seqs apart.
        arrays = not stepwise and len(self.lasts) == len(self.appends)
        arrays = arrays and not any(isinstance(m.shape, RowShape) and m.shape.default for m in members)
        # Where entries start is one parameter, which the rows of an array could not tell an existing head.
        arrays = arrays and not any(isinstance(m.shape, LogShape) and m.shape.starts for m in members)
        many = len(members) > _SOLO_OPERATIONS
        self.batchable = arrays and len(self.kind) == len(owners)
        self.bulk = arrays and (many or max(owners.values()) > _SOLO_ROWS)
        self.stepwise = stepwise or (many and not arrays)


def _needs_steps(shape: Shape) -> bool:
    """True for an operation on what may be absent, which no lock protects: see `stepwise`."""
    if isinstance(shape, LogShape):
        return shape.op is Drop or shape.op is Trim
    return shape.op is Delete and (shape.condition is ANY or shape.condition is ABSENT)


def _kind(members: Sequence[Member]) -> tuple[Shape, ...]:
    """The shapes, each once; those of one table always in the same order, whatever their rows."""
    owners = list(dict.fromkeys(member.shape.owner for member in members))
    shapes = dict.fromkeys(member.shape for member in members)
    if len(shapes) == len(owners):
        return tuple(shapes)
    return tuple(sorted(shapes, key=lambda shape: (owners.index(shape.owner), repr(shape))))


class Transaction(msgspec.Struct, frozen=True):
    """An analysed transaction: its form, its members in lock order and the names of their rows."""

    scope: str
    rev: int
    form: Form
    members: list[Member]
    names: list[RowName]

    @property
    def batch_key(self) -> tuple[Shape, ...]:
        """Equal for transactions that may share a statement."""
        return self.form.kind

    def batchable(self) -> bool:
        """True when it may share a statement with others: by its form, and small enough."""
        if not self.form.batchable:
            return False
        size = 0
        for member in self.members:
            op = member.op
            if type(op) is Append:
                size += sum([len(entry[-1]) for entry in op.entries])
            elif type(op) is Put or type(op) is Patch:
                size += len(op.body or b"")
        return size <= BATCHABLE_BYTES


class Analyser:
    """Analyses transactions on one schema."""

    def __init__(self, schema: Schema) -> None:
        self._lock_order = {name: position for position, name in enumerate((*schema.log, *schema.table))}
        self._forms: ShapeCache[Form] = ShapeCache()

    def analyse(self, scope: str, rev: int, ops: Sequence[Op]) -> Transaction:
        """Every commit comes through here, hence the one loop."""
        order = self._lock_order
        located: list[tuple[int, Any, Member]] = []
        partitions = 0
        for number, op in enumerate(ops):
            shape, values = DESCRIBE[type(op)](op)
            is_log = isinstance(shape, LogShape)
            partitions += is_log
            key = (values[0],) if is_log else op.key  # type: ignore[union-attr]
            located.append((order[shape.owner], key, Member(number, op, shape, values)))
        # No row is named twice, so no comparison reaches the member.
        located.sort()
        members = [member for _, _, member in located]
        # Which of several appends to a log is the first depends on their numbers too.
        cache_key: tuple[Any, ...] = tuple([member.shape for member in members])
        if partitions > 1:
            cache_key = (*cache_key, *[member.number for member in members])
        form = self._forms.get(cache_key) or self._forms.keep(cache_key, Form(members))
        return Transaction(scope, rev, form, members, [(scope, position, key) for position, key, _ in located])
