"""Answers to `Get`, `Scan`, `Read` and `Heads`, with the statements that the SQL engines share.

A read is a generator: it yields its statements and receives their rows, so that `view` can put the statements of many
reads into one packet. `FORCE INDEX` names the index that the declaration promises, so a plan cannot silently become a
scan of the table.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from perdure.clock import Clock, system_clock
from perdure.engines.mysql.connections.driver import Rows
from perdure.engines.mysql.connections.literals import equal, literal, literals, one_of
from perdure.engines.mysql.schema import DIALECT, names, quote
from perdure.engines.shared.references import Earlier
from perdure.engines.sql.ddl import heads_name
from perdure.engines.sql.dialect import Marks
from perdure.engines.sql.reads import LogReads, Statement, TableReads, in_order_asked
from perdure.engines.sql.terms import ShapeCache, where_arguments, where_terms
from perdure.kernel.ops import Get, Heads, LogEntry, Now, Read, ReadOp, Ref, Scan, Segment
from perdure.kernel.schema import Log, Schema, Table

T = TypeVar("T")
CLOCK = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
"""The server's time. It is the same throughout a statement."""
SERVER_CLOCK = f"SELECT {CLOCK}"
Answering = Generator[list[str], list[Rows], Any]

KEYS_AT_ONCE = 500
"""The optimiser may rewrite longer lists (MariaDB makes a join of 1,000 values)."""
SEGMENTS_AT_ONCE = 32
"""Every entry is compared with every segment of its statement."""


class TableQueries:
    """Every read of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._reads = TableReads(table, DIALECT, quote(table.stored))
        self.rows = self._reads.rows

    def get(self, scope: str, read: Get, earlier: Earlier) -> Answering:
        """Rows in the order of their keys, None for an absent one; behind a `Ref`, only those that exist."""
        keys = earlier.keys(read.keys) if isinstance(read.keys, Ref) else read.keys
        chunked = chunks(list(dict.fromkeys(keys)), KEYS_AT_ONCE)
        results = (yield [self._sql_get(scope, chunk) for chunk in chunked]) if keys else []
        rows = in_order_asked(keys, chain.from_iterable(map(self.rows, results)))
        return [row for row in rows if row is not None] if isinstance(read.keys, Ref) else rows

    def _sql_get(self, scope: str, keys: Sequence[tuple[Any, ...]]) -> str:
        source = DIALECT.hinted(f"{self._reads.source} t", "PRIMARY")
        where = f"{equal(('scope',), (scope,))} AND ({one_of(self.table.key_names, keys)})"
        return f"SELECT {self._reads.chosen} FROM {source} WHERE {where}"

    def scan(self, scope: str, read: Scan, earlier: Earlier) -> Answering:
        """Rows in the order of an index."""
        eq = earlier.eq(read.eq)
        if eq is None:
            return []
        (result,) = yield [self.sql_scan(scope, read, eq)]
        return self.rows(result)

    def sql_scan(self, scope: str, scan: Scan, eq: tuple[Any, ...]) -> str:
        """The statement of a scan; `eq` has no `Ref` any more."""
        return bound(scope, self._reads.scan(scan, eq))


class _ClaimMarks(Marks):
    def bound(self, value: Any) -> str:
        return f"{CLOCK} + {self.take()}" if type(value) is Now else self.take()


class ClaimQueries(TableReads):
    """The locking reads of one table. Each row comes with the time by which the statement selected it."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, DIALECT, quote(table.stored))
        self.chosen += f", {CLOCK}"
        self._claims: ShapeCache[str] = ShapeCache()

    def sql_claim(self, scope: str, scan: Scan) -> str:
        """The first rows of an index that no other transaction holds."""
        shape, eq = self.scan_shape(scan, scan.eq), scan.eq
        sql = self._claims.get(shape) or self._claims.keep(
            shape, self.sql_scan(scan, eq, _ClaimMarks(DIALECT), tail=" FOR UPDATE SKIP LOCKED")
        )
        return bound(scope, (sql, self.scan_arguments(scan, eq)))


class LogQueries:
    """Every read of one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._reads = LogReads(log, DIALECT, quote(log.stored), "PRIMARY")

    def read(self, scope: str, read: Read) -> Answering:
        """Entries of a partition."""
        if read.segments is None:
            (result,) = yield [bound(scope, self._reads.read(read))]
            return list(result)
        segments = self._reads.segments(read)
        groups = list(chunks(segments[::-1] if read.desc else segments, SEGMENTS_AT_ONCE))
        if read.limit is None and groups:
            results = yield [self._within(scope, read, group, None) for group in groups]
            return list(chain.from_iterable(results))
        entries: list[LogEntry] = []
        for group in groups:
            (result,) = yield [self._within(scope, read, group, (read.limit or 0) - len(entries))]
            entries += result
            if len(entries) == read.limit:
                break
        return entries

    def _within(self, scope: str, read: Read, segments: Sequence[Segment], limit: int | None) -> str:
        """Entries of some segments: each is a range of the primary key."""
        marks = Marks(DIALECT)
        terms = [self._reads.partition_term(marks), *where_terms(DIALECT, read.where, marks, "m.")]
        sql, arguments = " AND ".join(terms), [read.partition, *where_arguments(DIALECT, read.where)]
        ranges = " OR ".join([self._range(segment) for segment in segments])
        end = (" DESC" if read.desc else "") + ("" if limit is None else f" LIMIT {limit}")
        where = f"{bound(scope, (sql, arguments))} AND ({ranges})"
        return f"SELECT {self._reads.chosen} FROM {self._reads.in_order} WHERE {where} ORDER BY m.`seq`{end}"

    def _range(self, segment: Segment) -> str:
        upto = "" if segment.upto is None else f" AND m.`seq` <= {segment.upto}"
        return f"(m.`seq` > {segment.after}{upto} AND m.{quote(self.log.segment or '')} = {segment.value})"

    def heads(self, scope: str, read: Heads) -> Answering:
        """The last seqs of partitions, 0 for an empty one."""
        chunked = chunks(list(dict.fromkeys(read.partitions)), KEYS_AT_ONCE)
        results = (yield [self._sql_heads(scope, chunk) for chunk in chunked]) if read.partitions else []
        last: dict[str, int] = dict(chain.from_iterable(results))
        return [last.get(partition, 0) for partition in read.partitions]

    def _sql_heads(self, scope: str, partitions: Sequence[str]) -> str:
        source = DIALECT.hinted(quote(heads_name(self.log.name)), "PRIMARY")
        where = f"{equal(('scope',), (scope,))} AND {quote(self.log.partition)} IN ({literals(partitions)})"
        return f"SELECT {names((self.log.partition, 'last'))} FROM {source} WHERE {where}"


class Queries:
    """The reads of a whole schema. `Now` reads `clock`; the system's clock means the server's own."""

    def __init__(self, schema: Schema, clock: Clock) -> None:
        self.schema = schema
        self.clock = clock
        self.tables = {table.name: TableQueries(table) for table in schema.tables}
        self.claims = {table.name: ClaimQueries(table) for table in schema.tables}
        self.logs = {log.name: LogQueries(log) for log in schema.logs}

    def answering(self, scope: str, read: ReadOp, earlier: Earlier) -> Answering:
        """The generator that answers one read; the read that its `Ref` names, if any, has been answered."""
        if isinstance(read, Get):
            return self.tables[read.table].get(scope, read, earlier)
        if isinstance(read, Scan):
            return self.tables[read.table].scan(scope, read, earlier)
        if isinstance(read, Heads):
            return self.logs[read.log].heads(scope, read)
        return self._now(read) if isinstance(read, Now) else self.logs[read.log].read(scope, read)

    def in_stages(self, read: ReadOp) -> bool:
        """True for a read that may need an answer before it knows its next statement."""
        return isinstance(read, Read) and read.limit is not None and len(read.segments or ()) > SEGMENTS_AT_ONCE

    def _now(self, read: Now) -> Answering:
        if self.clock is not system_clock:
            return self.clock() + read.plus
        (result,) = yield [SERVER_CLOCK]
        return int(result[0][0]) + read.plus


def bound(scope: str, statement: Statement) -> str:
    """A shared statement with its values filled in."""
    sql, arguments = statement
    return sql % tuple([literal(value) for value in (scope, *arguments)])


def chunks(values: Sequence[T], most: int) -> Iterator[list[T]]:
    """The values, at most `most` at a time."""
    rest = iter(values)
    while chunk := list(islice(rest, most)):
        yield chunk
