"""Reads on one connection: the answers to `Get`, `Scan`, `Read`, `Heads` and `Now`.

`INDEXED BY` names the index that the declaration promises, so a plan cannot silently become a full scan. A `Read`
returns the driver's own tuples, without a line of Python per entry. Bodies are read as bytes: the database holds text,
and decoding it into a `str` only to parse it again would cost twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure import limits
from perdure.clock import Clock, system_clock
from perdure.engines.shared.references import Earlier
from perdure.engines.sql.ddl import quote
from perdure.engines.sql.dialect import Dialect, Marks
from perdure.engines.sql.embedded.schema import seq_index
from perdure.engines.sql.reads import JoinedReads, LogReads, TableReads, in_order_asked
from perdure.engines.sql.terms import ShapeCache, where_arguments, where_shape, where_terms
from perdure.errors import CorruptError
from perdure.kernel.joined import Chosen, Joined, Values
from perdure.kernel.ops import Get, Heads, LogEntry, Now, Read, ReadOp, Ref, Row, Scan, Segment
from perdure.kernel.schema import Log, Schema, Table

# Up to this many keys, one statement per key is faster than one statement that unpacks a JSON array of keys.
FEW_KEYS = 4
# The same for segments: a statement with plain parameters walks an index faster than one that unpacks JSON.
FEW_SEGMENTS = 8
# Whole milliseconds since 1970; `unixepoch('subsec')` needs SQLite 3.42.
SQLITE_CLOCK = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


def _listed(values: Any) -> str:
    return msgspec.json.encode(values).decode()


DIALECT = Dialect(
    mark=lambda _: "?",
    within="{0} IN (SELECT value FROM json_each({1}))",
    pack=_listed,
    hint=" INDEXED BY {0}",
    body="CAST({0} AS BLOB)",
)


class TableQueries:
    """Every read of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._width = len(table.key)
        self._reads = TableReads(table, DIALECT, quote(table.stored))
        self._by_key = self._reads.sql_get(Marks(DIALECT))
        self._by_keys = self._many()

    def _many(self) -> str:
        parts = [f"json_extract(j.value, '$[{n}]')" for n in range(self._width)] if self._width > 1 else ["j.value"]
        key = " AND ".join(f"t.{quote(c)} = {part}" for c, part in zip(self.table.key_names, parts, strict=True))
        source = f"json_each(?) AS j CROSS JOIN {self._reads.source} AS t"
        return f'SELECT {self._reads.chosen} FROM {source} WHERE t."scope" = ? AND {key}'

    def get(self, cursor: sqlite3.Cursor, scope: str, keys: Sequence[tuple[Any, ...]]) -> list[Row | None]:
        """Rows in the order of the keys, None for an absent one."""
        rows = self.existing(cursor, scope, keys)
        return in_order_asked(keys, rows) if len(keys) > 1 or not rows else [rows[0]]

    def existing(self, cursor: sqlite3.Cursor, scope: str, keys: Sequence[tuple[Any, ...]]) -> list[Row]:
        """The rows that exist, in the order of the keys."""
        if len(keys) <= FEW_KEYS:
            rows = [row for key in keys for row in cursor.execute(self._by_key, (scope, *key)).fetchall()]
        else:
            listed = _listed(keys if self._width > 1 else [key[0] for key in keys])
            rows = cursor.execute(self._by_keys, (listed, scope)).fetchall()
        return self._reads.rows(rows)

    def scan(self, cursor: sqlite3.Cursor, scope: str, scan: Scan, eq: tuple[Any, ...]) -> list[Row]:
        """Rows in the order of an index."""
        sql, arguments = self._reads.scan(scan, eq)
        return self._reads.rows(cursor.execute(sql, (scope, *arguments)).fetchall())


class JoinedQueries:
    """Scans of one table, each row with columns of another that has the same key."""

    def __init__(self, schema: Schema, chosen: Chosen) -> None:
        table = schema.table[chosen.table]
        self._reads = JoinedReads(table, DIALECT, quote(table.name), chosen, quote(chosen.other))

    def scan(self, cursor: sqlite3.Cursor, scope: str, scan: Scan) -> list[Values]:
        """The chosen columns, in the order of an index."""
        sql, arguments = self._reads.scan(scan, scan.eq)
        return cursor.execute(sql, (scope, *arguments)).fetchall()


class LogQueries:
    """Every read of one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        name = quote(log.stored)
        self.head = f'SELECT max("seq") FROM {name} WHERE "scope" = ? AND {quote(log.partition)} = ?'
        self._reads = LogReads(log, DIALECT, name, seq_index(log))
        self._segmented: ShapeCache[str] = ShapeCache()

    def last(self, cursor: sqlite3.Cursor, scope: str, partition: str) -> int:
        """The last seq of a partition, 0 if it is empty."""
        seq = cursor.execute(self.head, (scope, partition)).fetchone()[0]
        if seq is None:
            return 0
        if type(seq) is not int or seq < 0:
            raise CorruptError(f"its last seq is {seq!r:.80}", where=f"{self.log.name} {partition!r}")
        return seq

    def read(self, cursor: sqlite3.Cursor, scope: str, read: Read) -> list[LogEntry]:
        """Entries of a partition."""
        if read.segments is not None:
            return self._read_segments(cursor, scope, read, self._reads.segments(read))
        sql, arguments = self._reads.read(read)
        return cursor.execute(sql, (scope, *arguments)).fetchall()

    def _read_segments(self, cursor: sqlite3.Cursor, scope: str, read: Read, segments: list[Segment]) -> list[LogEntry]:
        if len(segments) <= FEW_SEGMENTS or (read.desc and read.limit is not None):
            return self._one_by_one(cursor, scope, read, segments)
        # One statement for any number of segments: each is one range of the index. They are disjoint and ascending and
        # CROSS JOIN keeps them outermost, so entries come out in order and nothing has to be sorted.
        listed = _listed([(s.value, s.after, s.upto) for s in segments])
        arguments = [listed, scope, read.partition, *where_arguments(DIALECT, read.where)]
        if read.limit is not None:
            arguments.append(read.limit)
        shape = (read.limit is None, *where_shape(read.where))
        sql = self._segmented.get(shape) or self._segmented.keep(shape, self._sql_segments(read))
        entries: list[LogEntry] = cursor.execute(sql, arguments).fetchall()
        if read.desc:
            entries.reverse()
        return entries

    def _one_by_one(self, cursor: sqlite3.Cursor, scope: str, read: Read, segments: list[Segment]) -> list[LogEntry]:
        """Segment by segment, from the end for a descending read, and no further than the limit."""
        entries: list[LogEntry] = []
        for segment in reversed(segments) if read.desc else segments:
            rest = None if read.limit is None else read.limit - len(entries)
            if rest == 0:
                break
            entries += self.read(cursor, scope, self._reads.stretch(read, segment, rest))
        return entries

    def _sql_segments(self, read: Read) -> str:
        marks = Marks(DIALECT)
        source = f"json_each({marks.take()}) AS s CROSS JOIN {self._reads.in_order}"
        terms = [
            self._reads.partition_term(marks),
            "m.\"seq\" > json_extract(s.value, '$[1]')",
            f"m.\"seq\" <= ifnull(json_extract(s.value, '$[2]'), {limits.INTEGER_MAX})",
            f"m.{quote(self.log.segment or '')} = json_extract(s.value, '$[0]')",
            *where_terms(DIALECT, read.where, marks, "m."),
        ]
        limit = "" if read.limit is None else f" LIMIT {marks.take()}"
        return f"SELECT {self._reads.chosen} FROM {source} WHERE {' AND '.join(terms)}{limit}"


class Queries:
    """The reading statements of a whole schema, and the answer to each read.

    `clock` is what `Now` reads; the system's clock means SQLite's own, which all processes of a machine share.
    """

    def __init__(self, schema: Schema, clock: Clock = system_clock) -> None:
        self.schema = schema
        self.clock = clock
        self.tables = {table.name: TableQueries(table) for table in schema.tables}
        self.logs = {log.name: LogQueries(log) for log in schema.logs}
        self._joined: dict[Chosen, JoinedQueries] = {}

    def view(self, cursor: sqlite3.Cursor, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """The answers to several reads, in order; the caller provides one snapshot for all of them."""
        answers: list[Any] = []
        earlier = Earlier(self.schema, reads, answers)
        for read in reads:
            answers.append(self._answer(cursor, scope, read, earlier))  # noqa: PERF401 - `earlier` sees it grow
        return answers

    def view_joined(self, cursor: sqlite3.Cursor, scope: str, joined: Joined) -> list[list[Values]]:
        """The answers to the scans, in order; the caller provides one snapshot for all of them."""
        queries = self._joined.get(joined.chosen)
        if queries is None:
            queries = self._joined[joined.chosen] = JoinedQueries(self.schema, joined.chosen)
        return [queries.scan(cursor, scope, scan) for scan in joined.scans]

    def now(self, cursor: sqlite3.Cursor) -> int:
        """The engine's time."""
        if self.clock is not system_clock:
            return self.clock()
        return int(cursor.execute(f"SELECT {SQLITE_CLOCK}").fetchone()[0])

    def _answer(self, cursor: sqlite3.Cursor, scope: str, read: ReadOp, earlier: Earlier) -> Any:
        if isinstance(read, Get):
            table = self.tables[read.table]
            if isinstance(read.keys, Ref):
                return table.existing(cursor, scope, earlier.keys(read.keys))
            return table.get(cursor, scope, read.keys)
        if isinstance(read, Scan):
            eq = earlier.eq(read.eq)
            return [] if eq is None else self.tables[read.table].scan(cursor, scope, read, eq)
        if isinstance(read, Now):
            return self.now(cursor) + read.plus
        log = self.logs[read.log]
        if isinstance(read, Heads):
            return [log.last(cursor, scope, partition) for partition in read.partitions]
        return log.read(cursor, scope, read)
