"""The SQL of one read of a view: its shape, its statement, its arguments, and how its rows become an answer.

The SQL engines share most of the statements; PostgreSQL adds arrays: many keys, many partitions and many segments are
each one parameter, unnested on the server. A segment is one range of the log's index. Bodies are read as text: a
connection of a caller's pool may decode JSON differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure import limits
from perdure.engines.postgres.read.index_scans import (
    ALL,
    DIALECT,
    OrderedReads,
    by_several,
    one_by_one,
    read_by,
    unique_filter,
)
from perdure.engines.postgres.schema.clock import SERVER_CLOCK, StampClock
from perdure.engines.postgres.schema.tables import SQL_TYPES, Layout
from perdure.engines.sql.ddl import quote
from perdure.engines.sql.dialect import Marks
from perdure.engines.sql.reads import LogReads, TableReads, in_order_asked
from perdure.engines.sql.terms import Shape, where_arguments, where_shape, where_terms
from perdure.kernel.ops import Get, Heads, Now, Read, ReadOp, Ref, Scan, Segment
from perdure.kernel.schema import Schema, Table


class ReadStatement(msgspec.Struct, frozen=True):
    """The SQL of a read. `types` are those of its columns; `bounded`: it ends in a LIMIT; `entries`: it reads a log;
    `tuned`: it relies on the settings of our sessions."""

    sql: str
    types: tuple[str, ...]
    bounded: bool = False
    entries: bool = False
    tuned: bool = False


class Parameters(Marks):
    """Numbered through the whole statement; the scope is the first of those that are `used` already."""

    def scope(self) -> str:
        """Always the first."""
        return "$1"


class ReadSql:
    """Writes the reads of one schema."""

    def __init__(self, layout: Layout, clock: StampClock) -> None:
        self._clock = clock
        self.schema: Schema = layout.schema
        self.tables = {t.name: OrderedReads(t, DIALECT, layout.table(t.name)) for t in self.schema.tables}
        self.logs = {log.name: LogReads(log, DIALECT, layout.table(log.name), "") for log in self.schema.logs}
        self._heads = {log.name: layout.heads(log.name) for log in self.schema.logs}

    def simplify(self, read: ReadOp) -> ReadOp:
        """The same read, with its segments cut to its window; a single one is a filter like any other."""
        if not isinstance(read, Read) or read.segments is None:
            return read
        log = self.logs[read.log]
        segments = log.segments(read)
        if len(segments) == 1:
            return log.stretch(read, segments[0], read.limit)
        return Read(read.log, read.partition, 0, None, read.limit, read.desc, read.where, tuple(segments))

    def shape(self, read: ReadOp) -> Shape:
        """The part of a read that its statement depends on."""
        if isinstance(read, Get):
            return (Get, read.table, read.keys if isinstance(read.keys, Ref) else min(len(read.keys), 2))
        if isinstance(read, Scan):
            return (Scan, read.table, *self.tables[read.table].scan_shape(read, read.eq))
        if isinstance(read, Heads):
            return (Heads, read.log)
        if isinstance(read, Now):
            return (Now,)
        if read.segments is None:
            return (Read, read.log, *self.logs[read.log].read_shape(read))
        return (Segment, not read.segments, read.log, read.desc, read.limit is None, *where_shape(read.where))

    def arguments(self, read: ReadOp) -> list[Any]:
        """The values of a read that can have an answer, without the scope."""
        if isinstance(read, Get):
            if isinstance(read.keys, Ref):
                return []
            if len(read.keys) == 1:
                return list(read.keys[0])
            return [list(values) for values in zip(*read.keys, strict=True)]
        if isinstance(read, Scan):
            return self.tables[read.table].scan_arguments(read, read.eq)
        if isinstance(read, Heads):
            return [list(read.partitions)]
        if isinstance(read, Now):
            return [self._clock.now(), read.plus]
        if read.segments is None:
            return self.logs[read.log].read_arguments(read)
        ordered = read.segments[::-1] if read.desc else read.segments
        arguments: list[Any] = [
            [s.value for s in ordered],
            [s.after for s in ordered],
            [limits.INTEGER_MAX if s.upto is None else s.upto for s in ordered],
            read.partition,
            *where_arguments(DIALECT, read.where),
        ]
        return arguments if read.limit is None else [*arguments, read.limit]

    def build(self, read: ReadOp, reads: Sequence[ReadOp], marks: Marks) -> ReadStatement | None:
        """The statement of a read; None for one that cannot have an answer."""
        if isinstance(read, Get):
            return self._get(self.tables[read.table], read, reads, marks)
        if isinstance(read, Scan):
            table = self.tables[read.table]
            sql = table.sql_scan(read, read.eq, marks, lambda ref: self._first_value(reads, ref))
            tuned = by_several(table.table.index_by_name.get(read.index or ""), read.eq)
            return ReadStatement(sql, _row_types(table.table), bounded=read.limit is not None, tuned=tuned)
        if isinstance(read, Heads):
            partition = quote(self.schema.log[read.log].partition)
            where = f'h."scope" = {marks.scope()} AND h.{partition} = k.k0'
            head = f'SELECT h.{partition}, h."last" FROM {self._heads[read.log]} h WHERE {where}'
            return ReadStatement(
                one_by_one("l.*", f"unnest({marks.take()}::text[]) AS k(k0)", head, "l"), ("text", "bigint")
            )
        if isinstance(read, Now):
            now = f"coalesce({marks.take()}::bigint, {SERVER_CLOCK}) + {marks.take()}::bigint"
            # Naming the scope gives its parameter a type where nothing else is read.
            return ReadStatement(f"SELECT {now} WHERE {marks.scope()}::text IS NOT NULL", ("bigint",))
        log = self.logs[read.log]
        types = ("bigint", "bigint", *[SQL_TYPES[kind] for kind in log.log.kinds], "text")
        if read.segments is None:
            unique = unique_filter(log, read)
            sql = log.sql_read(read, marks) if unique is None else read_by(unique, log, read, marks)
            return ReadStatement(sql, types, bounded=unique is None or read.limit is not None, entries=True)
        if not read.segments:
            return None
        return ReadStatement(_segmented(log, read, marks), types, bounded=read.limit is not None, entries=True)

    def _get(self, table: TableReads, read: Get, reads: Sequence[ReadOp], marks: Marks) -> ReadStatement | None:
        declared, keys = table.table, read.keys
        types = _row_types(declared)
        parts = [f"k{i}" for i in range(len(declared.key))]
        if isinstance(keys, Ref):
            columns = self._columns(reads, keys)
            chosen = ", ".join(f"{column} AS {part}" for column, part in zip(columns, parts, strict=True))
            present = " AND ".join(f"{column} IS NOT NULL" for column in columns)
            source = f"(SELECT {chosen} FROM r{keys.read} WHERE {present}) k"
        elif len(keys) > 1:
            arrays = ", ".join(f"{marks.take()}::{SQL_TYPES[c.type]}[]" for c in declared.key)
            source = f"unnest({arrays}) AS k({', '.join(parts)})"
        else:
            return ReadStatement(table.sql_get(marks), types) if keys else None
        terms = [f"t.{quote(c)} = k.{part}" for c, part in zip(declared.key_names, parts, strict=True)]
        where = " AND ".join([f't."scope" = {marks.scope()}', *terms])
        return ReadStatement(
            one_by_one(table.chosen, source, f"SELECT t.* FROM {table.source} t WHERE {where}", "t"), types
        )

    def _first_value(self, reads: Sequence[ReadOp], ref: Ref) -> str:
        (column,) = self._columns(reads, ref)
        return f"(SELECT {column} FROM r{ref.read} WHERE {column} IS NOT NULL LIMIT 1)"

    def _columns(self, reads: Sequence[ReadOp], ref: Ref) -> list[str]:
        """The columns that a `Ref` names, in the CTE of the read that it points at."""
        target: Any = reads[ref.read]
        table = self.schema.table[target.table]
        order = (*table.key_names, "rev", "body", *table.column_names)
        return [f"c{order.index(name)}" for name in ref.columns]

    def answer(self, read: ReadOp, result: list[Any]) -> Any:
        """The answer to a read, from its part of the result; entries of a log are answers as they are."""
        if isinstance(read, Get):
            rows = self.tables[read.table].rows(result)
            if isinstance(read.keys, Ref):
                return rows
            return in_order_asked(read.keys, rows)
        if isinstance(read, Scan):
            return self.tables[read.table].rows(result)
        if isinstance(read, Heads):
            last: dict[str, int] = dict(map(tuple, result))
            return [last.get(partition, 0) for partition in read.partitions]
        return result[0][0] if isinstance(read, Now) else result


def _row_types(table: Table) -> tuple[str, ...]:
    key = [SQL_TYPES[c.type] for c in table.key]
    return (*key, "bigint", "text", *[SQL_TYPES[c.type] for c in table.columns])


def _segmented(log: LogReads, read: Read, marks: Marks) -> str:
    segments = ", ".join(f"{marks.take()}::bigint[]" for _ in range(3))
    terms = [
        log.partition_term(marks),
        'm."seq" > s.lo AND m."seq" <= s.hi',
        f"m.{quote(log.log.segment or '')} = s.v",
        *where_terms(DIALECT, read.where, marks, "m."),
    ]
    direction = " DESC" if read.desc else ""
    # The LIMIT inside keeps each segment a separate range; the walk over them keeps their order.
    inner = f'{log.source} m WHERE {" AND ".join(terms)} ORDER BY m."seq"{direction}{ALL}'
    limit = "" if read.limit is None else f" LIMIT {marks.take()}"
    return f"SELECT e.* FROM unnest({segments}) AS s(v, lo, hi), LATERAL (SELECT {log.chosen} FROM {inner}) e{limit}"
