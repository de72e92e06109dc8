"""Reads written so that the planner uses the intended index, whatever it assumes about the data.

A server that has not analysed its tables yet guesses: one row in 200 has a certain scope, one in 200 a certain thread.
A store that is being filled is nothing like that, and a plan chosen by such guesses reads a whole scope, or a whole
thread, to answer with fifty rows. Our own sessions have settings against it (`SESSION`); those of a caller's pool do
not. These reads work in any session, and cost nothing where the planner has statistics:

- A limit that is known only at run time makes walking an index in order cheaper than collecting and sorting.
- Filters by other columns are applied outside that walk, so that they do not make it look short.
- Many keys are looked up one by one (LATERAL), which leaves no join to reorder.
- Of several indexes that lead to a row, a range and an order that fit no other select the intended one.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from perdure import limits
from perdure.engines.postgres.schema.tables import SQL_TYPES
from perdure.engines.sql.ddl import quote
from perdure.engines.sql.dialect import Dialect, Marks
from perdure.engines.sql.reads import LogReads, Resolve, TableReads
from perdure.engines.sql.terms import where_terms
from perdure.kernel.ops import Read, Ref
from perdure.kernel.schema import Index

ALL = f" LIMIT (SELECT {limits.INTEGER_MAX}::bigint)"
"""A limit without effect: for a number that is known only at run time, the planner assumes a tenth of the rows. A plain
parameter would not do: the first plans of a statement are made for the actual values."""
DIALECT = Dialect(
    mark=lambda n: f"${n}",
    within="{0} = ANY({1})",
    pack=list,
    body="{0}::text",
    limit="(SELECT {0}::bigint)",
    walk=ALL,
)


class OrderedReads(TableReads):
    """Reads of a table; a scan by several columns is written so that no other index can answer it in order.

    Example: runs by thread and status. There are indexes by thread and by status too, and to a planner without
    statistics each of the three finds one row. As one range of (thread, status), in the order of (thread, status,
    created), it fits only one of them. With statistics the range looks long, so such a scan is `tuned`: in a session
    that is not ours, it runs with our settings.
    """

    def same(self, index: Index | None, eq: tuple[Any, ...], marks: Marks, resolve: Resolve | None) -> list[str]:
        """A range of rows instead of an equality for each column."""
        if _by_sparse(index, eq):
            return self._ranges(index, eq, marks)
        if not by_several(index, eq):
            return super().same(index, eq, marks, resolve)
        columns = ", ".join(f"t.{quote(name)}" for name in index.by)
        values = ", ".join(f"{marks.take()}::{SQL_TYPES[self.table.types[name]]}" for name in index.by)
        return [f"({columns}) >= ({values})", f"({columns}) <= ({values})"]

    def _ranges(self, index: Index, eq: tuple[Any, ...], marks: Marks) -> list[str]:
        """A range of the first column, and the others as they are: several indexes begin with that column, and only
        one has the order as well. A range of all columns would not do: one of them may have to be NULL."""
        terms = []
        for position, (name, value) in enumerate(zip(index.by, eq, strict=True)):
            column = f"t.{quote(name)}"
            if value is None:
                terms.append(f"{column} IS NULL")
            elif position > 0:
                terms.append(f"{column} = {marks.take()}")
            else:
                mark = f"{marks.take()}::{SQL_TYPES[self.table.types[name]]}"
                terms += [f"{column} >= {mark}", f"{column} <= {mark}"]
        return terms

    def leading(self, index: Index | None, eq: tuple[Any, ...]) -> list[str]:
        """Those columns: to the planner they are not constant, so it uses an index that has them in order."""
        several = by_several(index, eq) or _by_sparse(index, eq)
        return [f"t.{quote(name)}" for name in index.by] if index is not None and several else []


def by_several(index: Index | None, eq: tuple[Any, ...]) -> TypeGuard[Index]:
    """True for a scan by more than one column of an index, with a value for each."""
    plain = not any(value is None or isinstance(value, Ref) for value in eq)
    return index is not None and len(index.by) == len(eq) > 1 and plain


def _by_sparse(index: Index | None, eq: tuple[Any, ...]) -> TypeGuard[Index]:
    """True for a scan by more than one column of a sparse index, with a value for each that must have one."""
    if index is None or not len(index.by) == len(eq) > 1 or any(isinstance(value, Ref) for value in eq):
        return False
    return index.required > 0 and None not in eq[: index.required]


def one_by_one(chosen: str, keys: str, row: str, alias: str) -> str:
    """For each of the keys, in their order, the row that it names. The LIMIT inside leaves the planner one choice: an
    index look-up per key. A join could be reordered, and then reads a whole scope to find fifty rows of it."""
    return f"SELECT {chosen} FROM {keys}, LATERAL ({row} LIMIT 1) {alias}"


def unique_filter(log: LogReads, read: Read) -> str | None:
    """The first unique column that a read names values of; NULL is not unique."""
    for name, value in read.where.items():
        values = value if isinstance(value, tuple) else (value,)
        if name in log.log.unique and None not in values:
            return name
    return None


def read_by(unique: str, log: LogReads, read: Read, marks: Marks) -> str:
    """Entries by the values of a unique column, through its index (scope, column, partition).

    The primary key (scope, partition, seq) would find them as well, by reading a whole partition, and to a planner that
    thinks partitions are short it looks as good. One range of (column, partition), in that order, fits one index only.
    """
    scope, partition = marks.scope(), f"{marks.take()}::text"
    filters = [f'm."seq" > {marks.take()}'] if read.after else []
    filters += [f'm."seq" <= {marks.take()}'] if read.upto is not None else []
    keys, key = "", ""
    for name, value in read.where.items():
        if name != unique:
            filters += where_terms(DIALECT, {name: value}, marks, "m.")
        elif isinstance(value, tuple):
            keys, key = (
                f"(SELECT DISTINCT unnest({marks.take()}::{SQL_TYPES[log.log.types[name]]}[]) AS k0) k, LATERAL ",
                "k.k0",
            )
        else:
            key = f"{marks.take()}::{SQL_TYPES[log.log.types[name]]}"
    columns = f"m.{quote(unique)}, m.{quote(log.log.partition)}"
    inner = (
        f'SELECT m.* FROM {log.source} m WHERE m."scope" = {scope} AND ({columns}) >= ({key}, {partition})'
        f" AND ({columns}) <= ({key}, {partition}) ORDER BY {columns} LIMIT 1"
    )
    where = f" WHERE {' AND '.join(filters)}" if filters else ""
    limit = "" if read.limit is None else f" LIMIT {marks.take()}"
    return f'SELECT {log.chosen} FROM {keys}({inner}) m{where} ORDER BY m."seq"{" DESC" if read.desc else ""}{limit}'
