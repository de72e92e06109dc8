"""Reading statements of one table or log, derived from the declarations and cached by shape.

Everything is text and arguments here; the engines send them. Statements come as `(sql, arguments)` where the arguments
leave out the scope, which is the first parameter of each. `sql_*` builds the text with the parameters of a caller, for
engines that put several reads into one statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perdure.engines.sql.ddl import index_name, unique_name
from perdure.engines.sql.dialect import Dialect, Marks
from perdure.engines.sql.terms import (
    Shape,
    ShapeCache,
    beyond_arguments,
    beyond_term,
    where_arguments,
    where_shape,
    where_terms,
)
from perdure.kernel.joined import Chosen
from perdure.kernel.ops import Now, Read, Ref, Row, Scan, Segment
from perdure.kernel.schema import Index, Log, Table

Statement = tuple[str, list[Any]]
Resolve = Callable[[Ref], str]


class TableReads:
    """How rows of one table are read. `source` is the table as the dialect names it."""

    def __init__(self, table: Table, dialect: Dialect, source: str) -> None:
        self.table = table
        self.source = source
        self._dialect = dialect
        quote = dialect.quote
        chosen = [f"t.{quote(c)}" for c in (*table.key_names, "rev")]
        chosen += [dialect.body.format(f"t.{quote('body')}"), *[f"t.{quote(c)}" for c in table.column_names]]
        self.chosen = ", ".join(chosen)
        """The columns of every answer, in the order that `rows` takes apart: key, rev, body, columns."""
        self.join = ""
        """What follows the table in a scan."""
        self._scans: ShapeCache[str] = ShapeCache()

    def rows(self, answers: Iterable[Any]) -> list[Row]:
        """Answers as rows."""
        width, positions = len(self.table.key), self.table.positions
        values = width + 2
        return [Row(row[:width], row[values:], row[width], row[width + 1], positions) for row in answers]

    def sql_get(self, marks: Marks) -> str:
        """One row by its key; the arguments are the key."""
        quote = self._dialect.quote
        key = [f"t.{quote('scope')} = {marks.scope()}"]
        key += [f"t.{quote(c)} = {marks.take()}" for c in self.table.key_names]
        return f"SELECT {self.chosen} FROM {self.source} t WHERE {' AND '.join(key)}"

    def scan(self, scan: Scan, eq: tuple[Any, ...]) -> Statement:
        """Rows in the order of an index; `eq` has no `Ref` any more."""
        shape = self.scan_shape(scan, eq)
        sql = self._scans.get(shape) or self._scans.keep(shape, self.sql_scan(scan, eq, Marks(self._dialect)))
        return sql, self.scan_arguments(scan, eq)

    def scan_shape(self, scan: Scan, eq: tuple[Any, ...]) -> Shape:
        """What of a scan its statement depends on."""
        return (
            scan.index,
            *[value if isinstance(value, Ref) else value is None for value in eq],
            scan.after is None,
            scan.desc,
            scan.limit is None,
            *where_shape(scan.where),
            *scan.upto,
            *[type(bound) is Now for bound in scan.upto.values()],
        )

    def scan_arguments(self, scan: Scan, eq: tuple[Any, ...]) -> list[Any]:
        """The values of a scan."""
        arguments = [value for value in eq if value is not None and type(value) is not Ref]
        if scan.after is not None:
            after = [scan.after[position] for position, _ in self._keyset(scan, len(eq))]
            arguments += beyond_arguments(self._dialect, after)
        arguments += where_arguments(self._dialect, scan.where)
        arguments += [bound.plus if type(bound) is Now else bound for bound in scan.upto.values()]
        if scan.limit is not None:
            arguments.append(scan.limit)
        return arguments

    def _keyset(self, scan: Scan, fixed: int) -> list[tuple[int, str]]:
        """Positions and names of the `after` values that matter: those that `eq` already fixes do not."""
        key = self.table.key_names
        index = self.table.index_by_name[scan.index] if scan.index is not None else None
        done = set(index.by if index else key[:fixed])
        order = (*index.order, *key) if index else key
        keyset = []
        for position, name in enumerate(order):
            if name not in done:
                keyset.append((position, name))
                done.add(name)
        return keyset

    def sql_scan(
        self, scan: Scan, eq: tuple[Any, ...], marks: Marks, resolve: Resolve | None = None, tail: str = ""
    ) -> str:
        """The text of a scan; `resolve` writes the value of a `Ref`, and `tail` ends the statement."""
        quote = self._dialect.quote
        index = self.table.index_by_name[scan.index] if scan.index is not None else None
        source = self._hinted(index, scan, len(eq))
        terms = [f"t.{quote('scope')} = {marks.scope()}"]
        terms += self.same(index, eq, marks, resolve)
        if index is not None:
            terms += [f"t.{quote(c)} IS NOT NULL" for c in index.order if c not in self.table.key_names]
        keyset = [f"t.{quote(name)}" for _, name in self._keyset(scan, len(eq))]
        if scan.after is not None and keyset:
            terms.append(beyond_term(self._dialect, keyset, marks, desc=scan.desc))
        filters = where_terms(self._dialect, scan.where, marks, "t.")
        bounds = {column: f"t.{quote(column)} <= {marks.bound(bound)}" for column, bound in scan.upto.items()}
        way = " DESC" if scan.desc else ""
        ordered = [*self.leading(index, eq), *keyset] if keyset else []
        order = f" ORDER BY {', '.join(c + way for c in ordered)}" if ordered else ""
        limit = "" if scan.limit is None else f" LIMIT {self._dialect.limit.format(marks.take())}"
        if self._dialect.walk and index is not None and not tail:
            # Parameters are numbered in such a dialect, so terms may stand in another order than their values.
            terms += [bounds.pop(column) for column in index.order if column in bounds]
            filters += bounds.values()
            if filters:
                walked = f"SELECT t.* FROM {source} WHERE {' AND '.join(terms)}{order}{self._dialect.walk}"
                return f"SELECT {self.chosen} FROM ({walked}) t{self.join} WHERE {' AND '.join(filters)}{limit}"
            bounds = {}
        terms += [*filters, *bounds.values()]
        return f"SELECT {self.chosen} FROM {source}{self.join} WHERE {' AND '.join(terms)}{order}{limit}{tail}"

    def same(self, index: Index | None, eq: tuple[Any, ...], marks: Marks, resolve: Resolve | None) -> list[str]:
        """The terms that give the first columns of the index, or of the key, these values."""
        by = index.by if index else self.table.key_names
        terms = []
        required = 0 if index is None else index.required
        for position, (column, value) in enumerate(zip(map(self._dialect.quote, by), eq, strict=False)):
            if value is None and position < required:
                # Rows without the value are not in the index; said in a way that lets an engine use it.
                terms.append(f"t.{column} IS NOT NULL AND 1 = 0")
            elif value is None:
                terms.append(f"t.{column} IS NULL")
            elif resolve is not None and isinstance(value, Ref):
                terms.append(f"t.{column} = {resolve(value)}")
            else:
                terms.append(f"t.{column} = {marks.take()}")
        return terms

    def leading(self, index: Index | None, eq: tuple[Any, ...]) -> list[str]:
        """Columns to name in front of the order of a scan though `eq` gives each of them one value."""
        return []

    def _hinted(self, index: Index | None, scan: Scan, fixed: int) -> str:
        """The table with the index that a scan must walk."""
        source = f"{self.source} t"
        if index is not None:
            return self._dialect.hinted(source, index_name(self.table.name, index.name))
        if not self._dialect.primary:
            return source
        # A filter that names the one row of a unique group is answered by that group's index.
        filtered = [name for name, value in scan.where.items() if value is not None and type(value) is not tuple]
        named = {*self.table.key_names[:fixed], *filtered}
        group = next((group for group in self.table.unique if named.issuperset(group)), None)
        name = self._dialect.primary if group is None else unique_name(self.table.name, group)
        return self._dialect.hinted(source, name)


class JoinedReads(TableReads):
    """How rows of one table are scanned together with those of another; `other` is that table as the dialect names it.

    An outer join: a row without a partner stays in the answer.
    """

    def __init__(self, table: Table, dialect: Dialect, source: str, chosen: Chosen, other: str) -> None:
        super().__init__(table, dialect, source)
        quote = dialect.quote
        columns = [f"{'t' if name == chosen.table else 'o'}.{quote(column)}" for name, column in chosen.columns]
        bodies = [column == "body" for _, column in chosen.columns]
        texts = [dialect.body.format(c) if body else c for c, body in zip(columns, bodies, strict=True)]
        self.chosen = ", ".join(texts)
        same = " AND ".join(f"o.{quote(c)} = t.{quote(c)}" for c in ("scope", *table.key_names))
        self.join = f" LEFT JOIN {other} o ON {same}"


class LogReads:
    """How entries of one log are read. `by_seq` names the index that carries its order."""

    def __init__(self, log: Log, dialect: Dialect, source: str, by_seq: str) -> None:
        self.log = log
        self.source = source
        self._dialect = dialect
        quote = dialect.quote
        chosen = [f"m.{quote(c)}" for c in ("seq", "rev", *log.column_names)]
        self.chosen = ", ".join([*chosen, dialect.body.format(f"m.{quote('body')}")])
        """The columns of every answer: an entry as the kernel has it."""
        self.in_order = dialect.hinted(f"{source} m", by_seq)
        self._by_unique = {c: dialect.hinted(f"{source} m", index_name(log.name, c)) for c in log.unique}
        self._reads: ShapeCache[str] = ShapeCache()

    def read(self, read: Read) -> Statement:
        """Entries of a partition, without regard to `segments`."""
        shape = self.read_shape(read)
        sql = self._reads.get(shape) or self._reads.keep(shape, self.sql_read(read, Marks(self._dialect)))
        return sql, self.read_arguments(read)

    def read_shape(self, read: Read) -> Shape:
        """What of a read its statement depends on."""
        return (not read.after, read.upto is None, read.desc, read.limit is None, *where_shape(read.where))

    def read_arguments(self, read: Read) -> list[Any]:
        """The values of a read."""
        arguments: list[Any] = [read.partition]
        if read.after:
            arguments.append(read.after)
        if read.upto is not None:
            arguments.append(read.upto)
        arguments += where_arguments(self._dialect, read.where)
        if read.limit is not None:
            arguments.append(read.limit)
        return arguments

    def partition_term(self, marks: Marks) -> str:
        """One partition of a scope."""
        quote = self._dialect.quote
        return f"m.{quote('scope')} = {marks.scope()} AND m.{quote(self.log.partition)} = {marks.take()}"

    def sql_read(self, read: Read, marks: Marks) -> str:
        """The text of a read."""
        seq = f"m.{self._dialect.quote('seq')}"
        terms = [self.partition_term(marks)]
        if read.after:
            terms.append(f"{seq} > {marks.take()}")
        if read.upto is not None:
            terms.append(f"{seq} <= {marks.take()}")
        filters = where_terms(self._dialect, read.where, marks, "m.")
        source = next((self._by_unique[c] for c in read.where if c in self._by_unique), self.in_order)
        order = f"{seq} DESC" if read.desc else seq
        limit = self._dialect.walk if read.limit is None else f" LIMIT {self._dialect.limit.format(marks.take())}"
        if self._dialect.walk and filters:
            walked = f"SELECT m.* FROM {source} WHERE {' AND '.join(terms)} ORDER BY {order}{self._dialect.walk}"
            return f"SELECT {self.chosen} FROM ({walked}) m WHERE {' AND '.join(filters)}{limit}"
        return f"SELECT {self.chosen} FROM {source} WHERE {' AND '.join(terms + filters)} ORDER BY {order}{limit}"

    def stretch(self, read: Read, segment: Segment, limit: int | None) -> Read:
        """The read of one segment by itself."""
        where = {**read.where, self.log.segment or "": segment.value}
        return Read(read.log, read.partition, segment.after, segment.upto, limit, desc=read.desc, where=where)

    def segments(self, read: Read) -> list[Segment]:
        """The segments within the read's own window, without those that it or a filter on them leaves empty."""
        column = self.log.segment or ""
        allowed = read.where.get(column)
        values = None if column not in read.where else allowed if isinstance(allowed, tuple) else (allowed,)
        clipped = []
        for segment in read.segments or ():
            after = max(read.after, segment.after)
            ends = [end for end in (read.upto, segment.upto) if end is not None]
            upto = min(ends) if ends else None
            if (upto is None or upto > after) and (values is None or segment.value in values):
                clipped.append(Segment(segment.value, after, upto))
        return clipped


def in_order_asked(keys: Sequence[Any], rows: Iterable[Row]) -> list[Row | None]:
    """Rows in any order, as `Get` answers them: in the order asked, None for an absent one."""
    by_key = {row.key: row for row in rows}
    return [by_key.get(key) for key in keys]
