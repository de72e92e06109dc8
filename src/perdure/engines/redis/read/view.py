"""Views: reads as the script gets them, and its reply as rows and entries.

A view is one script, whose reply is one msgpack array. Entries are stored in the form that callers get, so a long
history is decoded by one call in C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from perdure.engines.redis.connections.resp import Element
from perdure.engines.redis.read.decode import EntryDecoder, RowDecoder
from perdure.engines.redis.read.direct import DirectRead, DirectReads, Location
from perdure.engines.redis.schema.keys import encode_key, grouped, ordered, source, stored
from perdure.engines.redis.schema.layout import Layout
from perdure.errors import CorruptError
from perdure.kernel.ops import Get, Heads, Now, Read, ReadOp, Ref, Row, Scan
from perdure.kernel.schema import Column, Index, Table

_EQUAL, _AMONG, _AT_MOST, _AT_MOST_TIME = 1, 2, 3, 4
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
    high: str | int
    """A number, which only a claim has, is an offset from the clock: of the first ordering value."""
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
        self.direct = DirectReads(frozenset(log.name for log in layout.schema.logs if log.trim))
        self._sources = {table.name: _sources(table) for table in layout.schema.tables}
        self.rows = {table.name: RowDecoder(table) for table in layout.schema.tables}
        self._entries = {
            log.name: EntryDecoder(log, layout.columns[log.name], reordered=layout.order[log.name] is not None)
            for log in layout.schema.logs
        }

    def packed(self, reads: Sequence[ReadOp], clock: int | None, direct: DirectRead | None = None) -> list[Any]:
        """The argument of the script; without a `clock` the time is the server's."""
        requests = [self._ask(read, reads, clock) for read in reads]
        if direct is not None:
            requests[direct.number] += (True,)
        return requests

    def answers(self, reads: Sequence[ReadOp], data: bytes) -> list[Any]:
        """The answers in the reply of the script."""
        with self._reporting():
            return [self._answer(read, part) for read, part in zip(reads, _PARTS.decode(data), strict=True)]

    def element(self, direct: DirectRead) -> Element:
        """Decodes the entries that LRANGE sends, one by one, as they arrive."""
        return self._entries[direct.read.log].decode_one

    def direct_answers(self, reads: Sequence[ReadOp], direct: DirectRead, replies: list[Any]) -> list[Any] | None:
        """The answers in the replies of the script and of LRANGE; None if they do not belong together."""
        data, fetched = replies
        if type(data) is not bytes or type(fetched) is not list or set(map(type, fetched)) - {bytes, tuple}:
            return None
        decoder = self._entries[direct.read.log]
        with self._reporting():
            parts = _PARTS.decode(data)
            if len(parts) != len(reads):
                raise ValueError(f"{len(parts)} answers to {len(reads)} questions")
            location = Location(parts[direct.number])
            entries = self.direct.entries(direct, location, fetched)
            if entries is None or (entries and not decoder.is_same(entries[-1], location.last)):
                return None
            answers = [
                None if number == direct.number else self._answer(read, part)
                for number, (read, part) in enumerate(zip(reads, parts, strict=True))
            ]
            answers[direct.number] = decoder.decode_rest(entries, direct.read)
            return answers

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise CorruptError(f"stored data cannot be read: {error}", where=self._layout.prefix) from None

    def _answer(self, read: ReadOp, part: msgspec.Raw) -> Any:
        if isinstance(read, Get):
            rows = self.rows[read.table].decode(part)
            if not isinstance(read.keys, Ref):
                _refuse_other_count(len(rows), len(read.keys))
            return rows
        if isinstance(read, Scan):
            rows = self.rows[read.table].decode(part)
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
            table = self._layout.row_info[read.table]
            if isinstance(read.keys, Ref):
                return (1, table, False, self._reference(read.keys, reads))
            return (1, table, [encode_key(key) for key in read.keys], False)
        if isinstance(read, Scan):
            return self.scan(read, reads)
        if isinstance(read, Heads):
            return (4, read.log, list(read.partitions), self._layout.schema.log[read.log].trim)
        if isinstance(read, Now):
            return (5, _or_false(clock), read.plus)
        return self._read(read)

    def _reference(self, ref: Ref, reads: Sequence[ReadOp]) -> list[Any]:
        name = reads[ref.read].table  # type: ignore[union-attr]
        return [ref.read + 1, [self._sources[name][column] for column in ref.columns]]

    def scan(self, scan: Scan, reads: Sequence[ReadOp] = ()) -> ScanRequest:
        """A scan, which may refer to the reads before it."""
        table = self._layout.schema.table[scan.table]
        index = None if scan.index is None else table.index_by_name[scan.index]
        filters = self._row_filters(table, scan.where, scan.upto)
        parts = self._parts(table, index, scan.eq, reads)
        late_parts = parts if isinstance(parts, list) else False
        prefix = "" if isinstance(parts, list) else parts
        after = False if scan.after is None else encode_key(scan.after)
        if index is None:
            kinds, name = [], f"k:{table.name}"
            low, high = _bounds(prefix, len(scan.eq) == len(table.key), after, desc=scan.desc)
        else:
            kinds = [table.types[column] == "int" for column in index.order]
            name = f"i:{table.name}:{index.name}:{prefix}"
            low, high = _bounds("", False, after, desc=scan.desc)
        row, limit = self._layout.row_info[table.name], _or_false(scan.limit)
        return ScanRequest(2, row, kinds, name, low, high, limit, scan.desc, filters, late_parts, index is None, after)

    def _parts(
        self, table: Table, index: Index | None, eq: tuple[Any, ...], reads: Sequence[ReadOp]
    ) -> str | list[Any]:
        """The name of the group, or the prefix of members: text, or a list if a value comes from an earlier read."""
        parts: list[Any] = []
        for position, value in enumerate(eq):
            is_last = position == len(table.key) - 1
            if isinstance(value, Ref):
                form = _GROUP if index is not None else _key_form(table.key[position], is_last)
                parts.append([*self._reference(value, reads), form])
            else:
                parts.append(ordered(value, last=is_last) if index is None else grouped(value))
        return parts if any(isinstance(part, list) for part in parts) else "".join(parts)

    def _row_filters(self, table: Table, where: Mapping[str, Any], upto: Mapping[str, int | Now]) -> list[Any]:
        sources = self._sources[table.name]
        packed = [part for name, value in where.items() for part in (sources[name], *_filter(value))]
        return packed + [part for name, bound in upto.items() for part in (sources[name], *_most(bound))]

    def _read(self, read: Read) -> tuple[Any, ...]:
        log = self._layout.schema.log[read.log]
        columns = self._layout.columns[read.log]
        filters = [part for name, value in read.where.items() for part in (columns.index(name) + 1, *_filter(value))]
        choices = {name: value if isinstance(value, tuple) else (value,) for name, value in read.where.items()}
        unique = [name for name, values in choices.items() if name in log.unique and None not in values]
        lookup: Any = False
        segments: Any = False
        if read.segments is not None:
            segments = [(stored(s.value), s.after, _or_false(s.upto)) for s in read.segments]
        elif unique:
            lookup = (unique[0], [stored(value) for value in choices[unique[0]]])
        span = (read.after, _or_false(read.upto), _or_false(read.limit), read.desc)
        return (3, read.log, read.partition, *span, filters, lookup, segments, len(columns), log.trim)


def _refuse_other_count(answers: int, questions: int) -> None:
    if answers != questions:
        raise ValueError(f"{answers} answers to {questions} questions")


def _filter(value: Any) -> tuple[int, Any]:
    if isinstance(value, tuple):
        return _AMONG, [stored(choice) for choice in value]
    return _EQUAL, stored(value)


def _most(bound: int | Now) -> tuple[int, int]:
    return (_AT_MOST_TIME, bound.plus) if isinstance(bound, Now) else (_AT_MOST, bound)


def _key_form(column: Column, is_last: bool) -> int:
    text = _LAST if is_last else _TEXT
    return _INTEGER if column.type == "int" else text


def _or_false(value: int | None) -> int | bool:
    """A value as scripts get it: NULL would be a hole in a Lua table."""
    return False if value is None else value


def _sources(table: Table) -> dict[str, int]:
    slots = {name: position for position, name in enumerate(table.column_names, 2)}
    return {name: source(table, name, slots) for name in table.types}


def _bounds(prefix: str, whole: bool, after: str | bool, *, desc: bool) -> tuple[str, str]:
    """The range of the members that begin with a prefix (or equal it, if it is a whole key), past a keyset."""
    low, high, upper = "-", "+", None
    if prefix or whole:
        # A prefix ends in NUL or a digit. With that character raised by one it sorts after all its members.
        upper = prefix if whole else prefix[:-1] + chr(ord(prefix[-1]) + 1)
        low, high = f"[{prefix}", f"[{prefix}" if whole else f"({upper}"
    if isinstance(after, str) and desc and (upper is None or after.encode() <= upper.encode()):
        high = f"({after}"
    elif isinstance(after, str) and not desc and after.encode() >= prefix.encode():
        low = f"({after}"
    return low, high
