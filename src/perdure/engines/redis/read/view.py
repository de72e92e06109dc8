"""Views: reads as the script gets them, and its reply as rows and entries.

A view is one script, whose reply is one msgpack array. Entries are stored in the form that callers get, so a long
history is decoded by one call in C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.engines.redis.read.decode import EntryDecoder, RowDecoder
from perdure.engines.redis.schema.keys import encode_key, grouped, ordered, source, stored
from perdure.engines.redis.schema.layout import Layout
from perdure.errors import CorruptError, InvalidError
from perdure.kernel.ops import Get, Heads, Now, Read, ReadOp, Ref, Row, Scan
from perdure.kernel.schema import Index, Table

_EQUAL, _AMONG, _AT_MOST = 1, 2, 3
_GROUP, _INTEGER, _TEXT, _LAST = 1, 2, 3, 4
_PARTS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_HEADS = msgspec.msgpack.Decoder(list[int])
_TIME = msgspec.msgpack.Decoder(int)


class ScanRequest(NamedTuple):
    """A scan as `lua/view.lua` and `lua/take.lua` get it: an array in this order, False where a value is absent."""

    kind: int
    table: msgspec.Raw
    order_types: list[bool]
    """Which of the ordering columns are integers."""
    sorted_set: str
    low: str
    high: str
    limit: int | bool
    desc: bool
    filters: list[Any]
    late_parts: list[Any] | bool
    """The parts of the group or prefix, if one of them comes from an earlier read."""
    by_key: bool
    after: str | bool


class Reads:
    """Translates views; holds no data."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._slots = {
            table.name: {name: position for position, name in enumerate(table.column_names, 2)}
            for table in layout.schema.tables
        }
        self.rows = {table.name: RowDecoder(table) for table in layout.schema.tables}
        self._entries = {
            log.name: EntryDecoder(log, layout.columns[log.name], reordered=layout.order[log.name] is not None)
            for log in layout.schema.logs
        }

    def packed(self, reads: Sequence[ReadOp], clock: int | None) -> list[Any]:
        """The argument of the script; without a `clock` the time is the server's."""
        return [self._ask(read, reads, clock) for read in reads]

    def answers(self, reads: Sequence[ReadOp], data: bytes) -> list[Any]:
        """The answers in the reply of the script."""
        try:
            return [self._answer(read, part) for read, part in zip(reads, _PARTS.decode(data), strict=True)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise CorruptError(f"stored data cannot be read: {error}", where=self._layout.prefix) from None

    def _answer(self, read: ReadOp, part: msgspec.Raw) -> Any:
        if isinstance(read, (Get, Scan)):
            rows = self.rows[read.table].decode(part)
            if isinstance(read, Get) and not isinstance(read.keys, Ref):
                _refuse_other_count(len(rows), len(read.keys))
            if isinstance(read, Scan):
                self._refuse_repeated_page(read, rows)
            return rows
        if isinstance(read, Read):
            return self._entries[read.log].decode(part, read)
        if isinstance(read, Now):
            return _TIME.decode(part)
        heads = _HEADS.decode(part)
        _refuse_other_count(len(heads), len(read.partitions))
        return heads

    def _refuse_repeated_page(self, scan: Scan, rows: Sequence[Row | None]) -> None:
        """A page that does not advance would be requested again and again."""
        last = rows[-1] if rows else None
        if scan.limit is not None and len(rows) > scan.limit:
            raise ValueError(f"the server sent {len(rows)} rows, the limit is {scan.limit}")
        if scan.after is None or last is None:
            return
        table = self._layout.schema.table[scan.table]
        order = () if scan.index is None else table.index_by_name[scan.index].order
        values = dict(zip(table.key_names, last.key, strict=True)) | last.columns
        reached = encode_key((*[values[name] for name in order], *last.key)).encode()
        after = encode_key(scan.after).encode()
        if reached >= after if scan.desc else reached <= after:
            raise ValueError(f"the rows of {scan.table} do not advance")

    def _ask(self, read: ReadOp, reads: Sequence[ReadOp], clock: int | None) -> tuple[Any, ...]:
        if isinstance(read, Get):
            table = self._layout.shapes.rows[read.table]
            if isinstance(read.keys, Ref):
                return (1, table, False, self._reference(read.keys, reads))
            return (1, table, [encode_key(key) for key in read.keys], False)
        if isinstance(read, Scan):
            return self.scan(read, reads)
        if isinstance(read, Heads):
            return (4, read.log, list(read.partitions))
        if isinstance(read, Now):
            return (5, False if clock is None else clock, read.plus)
        return self._read(read)

    def _reference(self, ref: Ref, reads: Sequence[ReadOp]) -> list[Any]:
        target = reads[ref.read]
        if not isinstance(target, (Get, Scan)):
            raise InvalidError("a Ref names a Get or a Scan")
        table = self._layout.schema.table[target.table]
        slots = self._slots[target.table]
        return [ref.read + 1, [source(table, name, slots) for name in ref.columns]]

    def scan(self, scan: Scan, reads: Sequence[ReadOp] = ()) -> ScanRequest:
        """A scan, which may refer to the reads before it."""
        table = self._layout.schema.table[scan.table]
        index = None if scan.index is None else table.index_by_name[scan.index]
        filters = self._row_filters(table, scan.where, scan.upto)
        parts = self._parts(table, index, scan.eq, reads)
        after: Any = False if scan.after is None else encode_key(scan.after)
        limit = False if scan.limit is None else scan.limit
        if index is None:
            kinds: list[bool] = []
            name, low, high = f"k:{table.name}", "-", "+"
            if scan.eq and not isinstance(parts, list):
                low, high = _bounds(parts, len(scan.eq) == len(table.key), after, desc=scan.desc)
            elif not scan.eq:
                low, high = _past("-", "+", after, desc=scan.desc)
        else:
            kinds = [table.types[column] == "int" for column in index.order]
            name = f"i:{table.name}:{index.name}:"
            low, high = _past("-", "+", after, desc=scan.desc)
            if not isinstance(parts, list):
                name += parts
        late_parts = parts if isinstance(parts, list) else False
        row = self._layout.shapes.rows[table.name]
        return ScanRequest(2, row, kinds, name, low, high, limit, scan.desc, filters, late_parts, index is None, after)

    def _parts(
        self, table: Table, index: Index | None, eq: tuple[Any, ...], reads: Sequence[ReadOp]
    ) -> str | list[Any]:
        """The name of the group, or the prefix of members: text, or a list if a value comes from an earlier read."""
        parts: list[Any] = []
        last = len(table.key) - 1
        for position, value in enumerate(eq):
            is_last = index is None and position == last
            if isinstance(value, Ref):
                if index is not None:
                    form = _GROUP
                elif table.key[position].type == "int":
                    form = _INTEGER
                else:
                    form = _LAST if is_last else _TEXT
                parts.append([*self._reference(value, reads), form])
            else:
                parts.append(grouped(value) if index is not None else ordered(value, last=is_last))
        return parts if any(isinstance(part, list) for part in parts) else "".join(parts)

    def _row_filters(self, table: Table, where: Mapping[str, Any], upto: Mapping[str, int]) -> list[Any]:
        slots = self._slots[table.name]
        packed: list[Any] = []
        for name, value in where.items():
            packed += (source(table, name, slots), *_filter(value))
        for name, bound in upto.items():
            packed += (source(table, name, slots), _AT_MOST, bound)
        return packed

    def _read(self, read: Read) -> tuple[Any, ...]:
        log = self._layout.schema.log[read.log]
        columns = self._layout.columns[read.log]
        filters: list[Any] = []
        for name, value in read.where.items():
            filters += (columns.index(name) + 1, *_filter(value))
        lookup: Any = False
        if read.segments is None:
            for name, value in read.where.items():
                values = value if isinstance(value, tuple) else (value,)
                if name in log.unique and None not in values:
                    lookup = (name, [stored(choice) for choice in values])
                    break
        segments: Any = False
        if read.segments is not None:
            segments = [(stored(s.value), s.after, False if s.upto is None else s.upto) for s in read.segments]
        upto = False if read.upto is None else read.upto
        limit = False if read.limit is None else read.limit
        return (
            3,
            read.log,
            read.partition,
            read.after,
            upto,
            limit,
            read.desc,
            filters,
            lookup,
            segments,
            len(columns),
        )


def _refuse_other_count(answers: int, questions: int) -> None:
    if answers != questions:
        raise ValueError(f"{answers} answers to {questions} questions")


def _filter(value: Any) -> tuple[int, Any]:
    if isinstance(value, tuple):
        return _AMONG, [stored(choice) for choice in value]
    return _EQUAL, stored(value)


def _past(low: str, high: str, after: Any, *, desc: bool) -> tuple[Any, Any]:
    if after is False:
        return low, high
    return (low, f"({after}") if desc else (f"({after}", high)


def _bounds(prefix: str, whole: bool, after: Any, *, desc: bool) -> tuple[Any, Any]:
    """The range of the members that begin with a prefix (or equal it), past a keyset."""
    # A prefix ends in NUL or a digit. With that character raised by one it sorts after all its members.
    upper = prefix if whole else prefix[:-1] + chr(ord(prefix[-1]) + 1)
    low, high = f"[{prefix}", f"[{prefix}" if whole else f"({upper}"
    if after is False:
        return low, high
    if desc:
        return (low, f"({after}") if after.encode() <= upper.encode() else (low, high)
    return (f"({after}", high) if after.encode() >= prefix.encode() else (low, high)
