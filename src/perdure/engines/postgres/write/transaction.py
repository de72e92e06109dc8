"""A transaction taken apart: its operations in the order in which their rows are locked, and how it may be run.

Heads of logs come first, because others use the seqs they give, then tables as declared, each by key: whoever follows
this order never waits in a circle with somebody who does too. All that follows from the shapes of the operations alone
is worked out once and kept as a `Form`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.engines.postgres.write.operation_shapes import DESCRIBE, Shape, Values
from perdure.kernel.ops import ABSENT, ANY, Append, Delete, Drop, Op, Patch, Put
from perdure.kernel.schema import Schema

_TOGETHER_BYTES = 64 * 1024
_ALONE_MOST = 32
"""Beyond this many operations a statement with a CTE for each is not worth its parsing: they become rows, or steps."""
_FORMS_KEPT = 1_000
_ROWS_ALONE = 2
"""With more rows of one table than this they are arrays: a statement for every number of state documents, and for every
way of guarding some of them, would be hundreds, and each takes half a megabyte of the server's memory."""
_FEW_APPENDS = 2
"""With more of them the numbers of their entries are not told apart: there would be too many statements."""

Name = tuple[Any, ...]
"""A row or partition: scope, place in the lock order, key."""


class Member(msgspec.Struct, frozen=True):
    """An operation of a transaction in lock order: its number in the transaction, its shape and its values."""

    number: int
    op: Any
    shape: Shape
    values: Values


class Form:
    """What transactions of the same shapes have in common.

    `kind` is what transactions that share a statement have in common: the shapes of their operations, each once, and
    `groups` says for every operation which of them it is. `lasts` are the places of the first append to each log;
    `alike` ones may share a statement, `large` ones are sent as arrays even when they go alone, `careful` ones go step
    by step; `plans` are the statements so far.
    """

    __slots__ = ("alike", "careful", "few_appends", "groups", "kind", "large", "lasts", "plans")

    def __init__(self, members: Sequence[Member], unique: dict[str, frozenset[str]]) -> None:
        self.lasts: dict[str, int] = {}
        self.plans: dict[Any, Any] = {}
        self.kind = _kind(members)
        self.groups = [self.kind.index(member.shape) for member in members]
        owners = Counter(member.shape[1] for member in members)
        appends = [member.shape[1] for member in members if member.shape[0] is Append]
        # Entries of two partitions of one log would not know whose seqs are whose.
        arrays, careful = len(set(appends)) == len(appends), False
        for place, member in enumerate(members):
            kind, owner = member.shape[0], member.shape[1]
            if kind is Append:
                first = self.lasts.get(owner)
                if first is None or members[first].number > member.number:
                    self.lasts[owner] = place
            elif kind is Patch:
                arrays = arrays and member.shape[5] is None
            elif kind is Drop or (kind is Delete and (member.shape[2] is ANY or member.shape[2] is ABSENT)):
                careful = True
        if len(owners) < len(members) and not careful:
            careful = any(passes_on(members, name, unique[name]) for name in owners.keys() & unique.keys())
        many = len(members) > _ALONE_MOST
        arrays = arrays and not careful
        self.few_appends = len(appends) <= _FEW_APPENDS
        self.alike = arrays and len(self.kind) == len(owners)
        self.large = arrays and (many or max(owners.values()) > _ROWS_ALONE)
        self.careful = careful or (many and not arrays)


def _kind(members: Sequence[Member]) -> tuple[Shape, ...]:
    """The shapes, each once; those of one table always in the same order, whichever rows they are for."""
    places: dict[str, int] = {}
    for member in members:
        places.setdefault(member.shape[1], len(places))
    shapes = dict.fromkeys(member.shape for member in members)
    if len(shapes) == len(places):
        return tuple(shapes)
    return tuple(sorted(shapes, key=lambda shape: (places[shape[1]], repr(shape))))


class Transaction:
    """A transaction taken apart: its form, its members in lock order and the names of their rows."""

    __slots__ = ("form", "members", "names", "rev", "scope")

    def __init__(self, scope: str, rev: int, form: Form, members: list[Member], names: list[Name]) -> None:
        self.scope = scope
        self.rev = rev
        self.form = form
        self.members = members
        self.names = names

    def may_travel(self) -> bool:
        """True when it may share a statement with others."""
        if not self.form.alike:
            return False
        size = 0
        for member in self.members:
            if member.shape[0] is Append:
                size += sum([len(entry[-1]) for entry in member.op.entries])
            elif member.shape[0] is Put or member.shape[0] is Patch:
                size += len(member.op.body or b"")
        return size <= _TOGETHER_BYTES


class Forms:
    """Takes transactions on one schema apart."""

    def __init__(self, schema: Schema) -> None:
        self._order = _lock_order(schema)
        self._unique = unique_columns(schema)
        self._known: dict[tuple[Any, ...], Form] = {}

    def take_apart(self, scope: str, rev: int, ops: Sequence[Op]) -> Transaction:
        """It is done for every commit, hence the one loop."""
        order = self._order
        found: list[tuple[int, Any, Member]] = []
        numbers: list[int] = []
        for number, op in enumerate(ops):
            shape, values = DESCRIBE[type(op)](op)
            member = Member(number, op, shape, values)
            if shape[0] is Append or shape[0] is Drop:
                found.append((order[shape[1]], (values[0],), member))
                numbers.append(number)
            else:
                found.append((order[shape[1]], op.key, member))  # type: ignore[union-attr]
        # No row is named twice, so no comparison comes as far as the operation.
        found.sort()
        members = [member for _, _, member in found]
        # Which of several appends to a log is the first depends on their numbers too.
        shapes: tuple[Any, ...] = tuple([member.shape for member in members])
        key = shapes if len(numbers) < 2 else (*shapes, *[member.number for member in members])
        form = self._known.get(key)
        if form is None:
            form = self._learn(key, members)
        return Transaction(scope, rev, form, members, [(scope, place, name) for place, name, _ in found])

    def _learn(self, key: tuple[Any, ...], members: list[Member]) -> Form:
        if len(self._known) >= _FORMS_KEPT:
            self._known.clear()
        form = self._known[key] = Form(members, self._unique)
        return form


def passes_on(members: Sequence[Member], table: str, unique: frozenset[str]) -> bool:
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


def _lock_order(schema: Schema) -> dict[str, int]:
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
