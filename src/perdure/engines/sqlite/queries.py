"""Reading statements and their answers: `Get`, `Scan`, `Read` and `Heads` on one connection.

Like writing statements they are cached by shape. `INDEXED BY` names the index that the declaration promises, so a
plan cannot silently become a scan; a `Read` comes back as the driver's own tuples, without a line of Python per
entry. Bodies are read as bytes: the file holds text, and decoding it into a `str` only to parse it again would cost
twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure import limits
from perdure.engines.sqlite.layout import index_name, quote, seq_index
from perdure.engines.sqlite.statements import SHAPES_KEPT, Shape
from perdure.errors import InvalidError
from perdure.kernel.ops import Ask, Get, Heads, LogEntry, Read, Ref, Row, Scan, Segment
from perdure.kernel.schema import Log, Schema, Table

# Up to here a statement per key is quicker than handing the keys over as one JSON array.
FEW_KEYS = 4
# The same for segments: a statement with plain parameters walks an index faster than one that unpacks JSON per entry.
FEW_SEGMENTS = 8


class TableQueries:
    """Every reading statement of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._columns = table.column_names
        self._width = len(table.key)
        self._name = quote(table.name)
        chosen = [f"t.{quote(c)}" for c in (*table.key_names, "rev", "body", *table.column_names)]
        self._select = _select(chosen)
        key = " AND ".join(f"t.{quote(c)} = ?" for c in ("scope", *table.key_names))
        self._by_key = f"{self._select} FROM {self._name} AS t WHERE {key}"
        self._by_keys = self._many()
        self._shapes: dict[Shape, str] = {}

    def _many(self) -> str:
        parts = [f"json_extract(j.value, '$[{n}]')" for n in range(self._width)] if self._width > 1 else ["j.value"]
        key = " AND ".join(f"t.{quote(c)} = {part}" for c, part in zip(self.table.key_names, parts, strict=True))
        return f'{self._select} FROM json_each(?) AS j CROSS JOIN {self._name} AS t WHERE t."scope" = ? AND {key}'

    def rows(self, cursor: sqlite3.Cursor) -> list[Row]:
        """The cursor's result as rows."""
        width, place = self._width, self.table.place
        values = width + 2
        return [
            Row(found[:width], found[values:], found[width], found[width + 1], place) for found in cursor.fetchall()
        ]

    def get(self, cursor: sqlite3.Cursor, scope: str, keys: Sequence[tuple[Any, ...]]) -> list[Row | None]:
        """Rows in the order asked, None for an absent one."""
        if len(keys) <= FEW_KEYS:
            found = [self.rows(cursor.execute(self._by_key, (scope, *key))) for key in keys]
            return [rows[0] if rows else None for rows in found]
        rows = {row.key: row for row in self._existing(cursor, scope, keys)}
        return [rows.get(key) for key in keys]

    def _existing(self, cursor: sqlite3.Cursor, scope: str, keys: Sequence[tuple[Any, ...]]) -> list[Row]:
        listed = msgspec.json.encode(keys if self._width > 1 else [key[0] for key in keys]).decode()
        return self.rows(cursor.execute(self._by_keys, (listed, scope)))

    def existing(self, cursor: sqlite3.Cursor, scope: str, keys: Sequence[tuple[Any, ...]]) -> list[Row]:
        """The rows that exist, in the order asked."""
        if len(keys) <= FEW_KEYS:
            return [row for row in self.get(cursor, scope, keys) if row is not None]
        return self._existing(cursor, scope, keys)

    def scan(self, cursor: sqlite3.Cursor, scope: str, scan: Scan, eq: tuple[Any, ...]) -> list[Row]:
        """Rows in the order of an index."""
        shape = (
            scan.index,
            *[value is None for value in eq],
            scan.after is None,
            scan.desc,
            scan.limit is None,
            *_where_shape(scan.where),
            *scan.upto,
        )
        sql = self._shapes.get(shape)
        if sql is None:
            if len(self._shapes) >= SHAPES_KEPT:
                self._shapes.clear()
            sql = self._shapes[shape] = self._scan(scan, eq)
        arguments = [scope, *[value for value in eq if value is not None]]
        if scan.after is not None:
            arguments += [scan.after[place] for place, _ in self._keyset(scan, len(eq))]
        arguments += [*_where_arguments(scan.where), *scan.upto.values()]
        if scan.limit is not None:
            arguments.append(scan.limit)
        return self.rows(cursor.execute(sql, arguments))

    def _keyset(self, scan: Scan, fixed: int) -> list[tuple[int, str]]:
        """Places and names of the `after` values that matter: those that `eq` already fixes do not."""
        key = self.table.key_names
        index = self.table.index_by_name[scan.index] if scan.index is not None else None
        done = set(index.by if index else key[:fixed])
        order = (*index.order, *key) if index else key
        keyset = []
        for place, name in enumerate(order):
            if name not in done:
                keyset.append((place, name))
                done.add(name)
        return keyset

    def _scan(self, scan: Scan, eq: tuple[Any, ...]) -> str:
        index = self.table.index_by_name[scan.index] if scan.index is not None else None
        source = f"{self._name} AS t"
        if index is not None:
            source += f" INDEXED BY {quote(index_name(self.table.name, index.name))}"
        by = index.by if index else self.table.key_names
        terms = ['t."scope" = ?']
        terms += [f"{quote(c)} IS NULL" if v is None else f"{quote(c)} = ?" for c, v in zip(by, eq, strict=False)]
        if index is not None:
            terms += [f"{quote(c)} IS NOT NULL" for c in index.order if c not in self.table.key_names]
        keyset = [quote(name) for _, name in self._keyset(scan, len(eq))]
        if scan.after is not None and keyset:
            marks = ", ".join("?" * len(keyset))
            terms.append(f"({', '.join(keyset)}) {'<' if scan.desc else '>'} ({marks})")
        terms += _where_terms(scan.where)
        terms += [f"{quote(c)} <= ?" for c in scan.upto]
        way = " DESC" if scan.desc else ""
        order = f" ORDER BY {', '.join(c + way for c in keyset)}" if keyset else ""
        limit = "" if scan.limit is None else " LIMIT ?"
        return f"{self._select} FROM {source} WHERE {' AND '.join(terms)}{order}{limit}"


class LogQueries:
    """Every reading statement of one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._select = _select([f"m.{quote(c)}" for c in ("seq", "rev", *log.column_names, "body")])
        self._partition = f'm."scope" = ? AND m.{quote(log.partition)} = ?'
        name = quote(log.name)
        self.head = f'SELECT max("seq") FROM {name} WHERE "scope" = ? AND {quote(log.partition)} = ?'
        self._in_order = f"{name} AS m INDEXED BY {quote(seq_index(log))}"
        self._by_unique = {c: f"{name} AS m INDEXED BY {quote(index_name(log.name, c))}" for c in log.unique}
        self._shapes: dict[Shape, str] = {}

    def read(self, cursor: sqlite3.Cursor, scope: str, read: Read) -> list[LogEntry]:
        """Entries of a partition."""
        if read.segments is not None:
            return self._read_segments(cursor, scope, read, _clip(read, self.log.segment or ""))
        sql = self._statement(read)
        arguments: list[Any] = [scope, read.partition]
        if read.after:
            arguments.append(read.after)
        if read.upto is not None:
            arguments.append(read.upto)
        arguments += _where_arguments(read.where)
        if read.limit is not None:
            arguments.append(read.limit)
        return cursor.execute(sql, arguments).fetchall()

    def _read_segments(self, cursor: sqlite3.Cursor, scope: str, read: Read, segments: list[Segment]) -> list[LogEntry]:
        if len(segments) <= FEW_SEGMENTS or (read.desc and read.limit is not None):
            return self._one_by_one(cursor, scope, read, segments)
        # One statement for any number of segments: each is one range of the index. They are disjoint and ascending and
        # CROSS JOIN keeps them outermost, so entries come out in order and nothing has to be sorted.
        listed = msgspec.json.encode([(s.value, s.after, s.upto) for s in segments]).decode()
        arguments = [listed, scope, read.partition, *_where_arguments(read.where)]
        if read.limit is not None:
            arguments.append(read.limit)
        found = cursor.execute(self._segment_statement(read), arguments).fetchall()
        if read.desc:
            found.reverse()
        return found

    def _one_by_one(self, cursor: sqlite3.Cursor, scope: str, read: Read, segments: list[Segment]) -> list[LogEntry]:
        """Segment by segment, from the end if that is wanted, and no further than the limit."""
        found: list[LogEntry] = []
        for segment in reversed(segments) if read.desc else segments:
            rest = None if read.limit is None else read.limit - len(found)
            if rest == 0:
                break
            where = {**read.where, self.log.segment or "": segment.value}
            stretch = Read(read.log, read.partition, segment.after, segment.upto, rest, desc=read.desc, where=where)
            found += self.read(cursor, scope, stretch)
        return found

    def _statement(self, read: Read) -> str:
        shape = (
            not read.after,
            read.upto is None,
            read.desc,
            read.limit is None,
            *_where_shape(read.where),
        )
        return self._shapes.get(shape) or self._keep(shape, self._plain(read))

    def _segment_statement(self, read: Read) -> str:
        shape = ("segments", read.limit is None, *_where_shape(read.where))
        return self._shapes.get(shape) or self._keep(shape, self._segmented(read))

    def _keep(self, shape: Shape, sql: str) -> str:
        if len(self._shapes) >= SHAPES_KEPT:
            self._shapes.clear()
        self._shapes[shape] = sql
        return sql

    def _plain(self, read: Read) -> str:
        terms = [self._partition]
        if read.after:
            terms.append('m."seq" > ?')
        if read.upto is not None:
            terms.append('m."seq" <= ?')
        terms += _where_terms(read.where, "m.")
        source = next((self._by_unique[c] for c in read.where if c in self._by_unique), self._in_order)
        order = 'm."seq" DESC' if read.desc else 'm."seq"'
        limit = "" if read.limit is None else " LIMIT ?"
        return f"{self._select} FROM {source} WHERE {' AND '.join(terms)} ORDER BY {order}{limit}"

    def _segmented(self, read: Read) -> str:
        terms = [
            self._partition,
            "m.\"seq\" > json_extract(s.value, '$[1]')",
            f"m.\"seq\" <= ifnull(json_extract(s.value, '$[2]'), {limits.INTEGER_MAX})",
            f"m.{quote(self.log.segment or '')} = json_extract(s.value, '$[0]')",
            *_where_terms(read.where, "m."),
        ]
        limit = "" if read.limit is None else " LIMIT ?"
        return f"{self._select} FROM json_each(?) AS s CROSS JOIN {self._in_order} WHERE {' AND '.join(terms)}{limit}"


class Queries:
    """The reading statements of a whole schema, and what each read answers."""

    def __init__(self, schema: Schema) -> None:
        self.tables = {table.name: TableQueries(table) for table in schema.tables}
        self.logs = {log.name: LogQueries(log) for log in schema.logs}

    def view(self, cursor: sqlite3.Cursor, scope: str, reads: Sequence[Ask]) -> list[Any]:
        """The answers to several reads, in order; the caller holds them to one snapshot."""
        answers: list[Any] = []
        for read in reads:
            answers.append(self._answer(cursor, scope, read, Earlier(self, reads, answers)))
        return answers

    def _answer(self, cursor: sqlite3.Cursor, scope: str, read: Ask, earlier: Earlier) -> Any:
        if isinstance(read, Get):
            table = self.tables[read.table]
            if isinstance(read.keys, Ref):
                return table.existing(cursor, scope, earlier.keys(read.keys))
            return table.get(cursor, scope, read.keys)
        if isinstance(read, Scan):
            eq = earlier.eq(read.eq)
            return [] if eq is None else self.tables[read.table].scan(cursor, scope, read, eq)
        log = self.logs[read.log]
        if isinstance(read, Heads):
            heads = [cursor.execute(log.head, (scope, partition)).fetchone()[0] for partition in read.partitions]
            return [head or 0 for head in heads]
        return log.read(cursor, scope, read)


class Earlier:
    """What a `Ref` can point at: the reads before it and their rows."""

    def __init__(self, queries: Queries, reads: Sequence[Ask], answers: Sequence[Any]) -> None:
        self._queries = queries
        self._reads = reads
        self._answers = answers

    def keys(self, ref: Ref) -> list[tuple[Any, ...]]:
        """The values of the named columns, without those that hold a NULL."""
        read = self._reads[ref.read]
        if not isinstance(read, (Get, Scan)):
            raise InvalidError("a Ref names a Get or a Scan")
        key_names = self._queries.tables[read.table].table.key_names
        rows: list[Row] = [row for row in self._answers[ref.read] if row is not None]
        if ref.columns == key_names:
            return [row.key for row in rows]
        keys = [
            tuple(row.key[key_names.index(name)] if name in key_names else row[name] for name in ref.columns)
            for row in rows
        ]
        return [key for key in keys if None not in key]

    def eq(self, eq: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """`eq` with its `Ref` replaced by the first value it leads to; None when it leads nowhere."""
        if not any(isinstance(value, Ref) for value in eq):
            return eq
        found = [self.keys(value)[:1] if isinstance(value, Ref) else [(value,)] for value in eq]
        return tuple(keys[0][0] for keys in found) if all(found) else None


def _select(columns: list[str]) -> str:
    chosen = [f"CAST({c} AS BLOB)" if c.endswith('."body"') else c for c in columns]
    return f"SELECT {', '.join(chosen)}"


def _clip(read: Read, column: str) -> list[Segment]:
    """The segments within the read's own window, without those that the window or a filter on segments leaves empty."""
    clipped = []
    wanted = read.where.get(column)
    values = None if column not in read.where else wanted if isinstance(wanted, tuple) else (wanted,)
    for segment in read.segments or ():
        after = max(read.after, segment.after)
        ends = [end for end in (read.upto, segment.upto) if end is not None]
        upto = min(ends) if ends else None
        if (upto is None or upto > after) and (values is None or segment.value in values):
            clipped.append(Segment(segment.value, after, upto))
    return clipped


def _where_shape(where: Mapping[str, Any]) -> Shape:
    return tuple((name, _kind(value)) for name, value in where.items())


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if type(value) is tuple:
        return "in or null" if None in value else "in"
    return "="


def _where_terms(where: Mapping[str, Any], prefix: str = "") -> list[str]:
    return [_TERMS[_kind(value)].format(prefix + quote(name)) for name, value in where.items()]


_TERMS = {
    "null": "{0} IS NULL",
    "=": "{0} = ?",
    "in": "{0} IN (SELECT value FROM json_each(?))",
    "in or null": "({0} IN (SELECT value FROM json_each(?)) OR {0} IS NULL)",
}


def _where_arguments(where: Mapping[str, Any]) -> list[Any]:
    return [
        msgspec.json.encode([v for v in value if v is not None]).decode() if type(value) is tuple else value
        for value in where.values()
        if value is not None
    ]
