"""Who would own which unique value: the part of a transaction that constraints alone cannot decide.

A constraint sees one statement at a time, so whether a value may move between two rows of one transaction would depend
on the order of operations, which has no meaning. Rows of the same transaction are therefore compared here, before
anything is written; rows outside it are left to the constraint, and looked up only after it objected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.engines.mysql.connections.literals import equal
from perdure.engines.mysql.schema import names, quote
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Check, Delete, Patch, Put, Row
from perdure.kernel.schema import Key, Table

Group = tuple[str, ...]


class Owner(NamedTuple):
    """A conflict, and the query that returns a row if another owner of the value exists."""

    conflict: Conflict
    sql: str


class Claim(msgspec.Struct, gc=False):
    """A row before (`row`) and after (`new`, None for a removal) a write to a table with unique groups."""

    position: int
    table: Table
    key: Key
    row: Row | None
    new: dict[str, Any] | None

    def before(self, group: Group) -> tuple[Any, ...] | None:
        """The group's values as they were; None when the row did not occupy any."""
        return None if self.row is None else self._values(group, {}, self.row)

    def after(self, group: Group) -> tuple[Any, ...] | None:
        """The group's values as they will be; None when the row will occupy none."""
        return None if self.new is None else self._values(group, self.new, self.row)

    def _values(self, group: Group, new: dict[str, Any], row: Row | None) -> tuple[Any, ...] | None:
        keyed: dict[str, Any] = dict(zip(self.table.key_names, self.key, strict=True))
        values = []
        for name in group:
            if name in keyed:
                value = keyed[name]
            elif name in new:
                value = new[name]
            else:
                # A group that the operation does not touch was not read, and needs no look either.
                value = row[name] if row is not None and name in row.place else None
            if value is None:
                return None
            values.append(value)
        return tuple(values)

    def conflict(self, group: Group, values: tuple[Any, ...]) -> Conflict:
        """What a taken value is reported as."""
        return Conflict(self.position, "unique", None, dict(zip(group, values, strict=True)))

    def owners(self, scope: str) -> Iterator[Owner]:
        """For each group that this row takes a value of, a query for another row that has it."""
        for group in self.table.unique:
            values = self.after(group)
            if values is not None:
                taken = equal(("scope", *group), (scope, *values))
                other = f"NOT ({equal(self.table.key_names, self.key)})"
                sql = f"SELECT {names(self.table.key_names)} FROM {quote(self.table.name)} WHERE {taken} AND {other}"
                yield Owner(self.conflict(group, values), sql)


def check_claims(claims: Sequence[Claim]) -> None:
    """Raise when one row of a transaction takes what another row of it has or takes.

    A value that is released in the same transaction still counts as taken: engines would disagree.
    """
    if len(claims) < 2:
        return
    for claim in claims:
        for group in claim.table.unique:
            wanted = claim.after(group)
            if wanted is None:
                continue
            rivals = (c for c in claims if c is not claim and c.table is claim.table)
            if any(wanted in (rival.before(group), rival.after(group)) for rival in rivals):
                raise claim.conflict(group, wanted)


def group_columns(table: Table, op: Check | Put | Patch | Delete | None) -> set[str]:
    """Columns of unique groups that must be read: those of every group, or only of the ones a patch touches."""
    touched = table.unique
    if op is not None:
        touched = tuple(g for g in table.unique if isinstance(op, Patch) and any(name in op.set for name in g))
    return {name for group in touched for name in group if name not in table.key_names}
