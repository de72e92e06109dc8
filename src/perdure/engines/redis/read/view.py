"""Reads as the script gets them, and its answers as rows and entries.

A view is one script, whose answer is one msgpack array: entries come out of the store already packed in the form in
which callers want them, so that a long history is decoded by one call in C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.engines.redis.read.decode import EntryDecoder, RowDecoder
from perdure.engines.redis.schema.keys import encode_key, grouped, ordered, source, stored
from perdure.engines.redis.schema.layout import Layout
from perdure.errors import CorruptError, InvalidError
from perdure.kernel.ops import Ask, Get, Heads, Now, Read, Ref, Row, Scan
from perdure.kernel.schema import Index, Table

_EQUAL, _AMONG, _AT_MOST = 1, 2, 3
_GROUP, _INTEGER, _TEXT, _LAST = 1, 2, 3, 4
_PARTS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_HEADS = msgspec.msgpack.Decoder(list[int])
_TIME = msgspec.msgpack.Decoder(int)


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
            log.name: EntryDecoder(log, layout.kept[log.name], reordered=layout.order[log.name] is not None)
            for log in layout.schema.logs
        }

    def packed(self, reads: Sequence[Ask], clock: int | None) -> list[Any]:
        """What the script gets; without a `clock` the time is the server's."""
        return [self._ask(read, reads, clock) for read in reads]

    def answers(self, reads: Sequence[Ask], data: bytes) -> list[Any]:
        """What the caller gets."""
        try:
            return [self._answer(read, part) for read, part in zip(reads, _PARTS.decode(data), strict=True)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise CorruptError(f"stored data cannot be read: {error}", where=self._layout.prefix) from None

    def _answer(self, read: Ask, part: msgspec.Raw) -> Any:
        if isinstance(read, (Get, Scan)):
            rows = self.rows[read.table].decode(part)
            if isinstance(read, Get) and not isinstance(read.keys, Ref):
                _refuse_other_count(len(rows), len(read.keys))
            if isinstance(read, Scan):
                self._refuse_standing_still(read, rows)
            return rows
        if isinstance(read, Read):
            return self._entries[read.log].decode(part, read)
        if isinstance(read, Now):
            return _TIME.decode(part)
        heads = _HEADS.decode(part)
        _refuse_other_count(len(heads), len(read.partitions))
        return heads

    def _refuse_standing_still(self, scan: Scan, rows: Sequence[Row | None]) -> None:
        """A page that does not lead past the last one would be asked for over and over."""
        last = rows[-1] if rows else None
        if scan.limit is not None and len(rows) > scan.limit:
            raise ValueError(f"{len(rows)} rows came where {scan.limit} were asked for")
        if scan.after is None or last is None:
            return
        table = self._layout.schema.table[scan.table]
        order = () if scan.index is None else table.index_by_name[scan.index].order
        held = dict(zip(table.key_names, last.key, strict=True)) | last.columns
        reached = encode_key((*[held[name] for name in order], *last.key)).encode()
        after = encode_key(scan.after).encode()
        if reached >= after if scan.desc else reached <= after:
            raise ValueError(f"the rows of {scan.table} do not advance")

    def _ask(self, read: Ask, reads: Sequence[Ask], clock: int | None) -> tuple[Any, ...]:
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

    def _reference(self, ref: Ref, reads: Sequence[Ask]) -> list[Any]:
        target = reads[ref.read]
        if not isinstance(target, (Get, Scan)):
            raise InvalidError("a Ref names a Get or a Scan")
        table = self._layout.schema.table[target.table]
        slots = self._slots[target.table]
        return [ref.read + 1, [source(table, name, slots) for name in ref.columns]]

    def scan(self, scan: Scan, reads: Sequence[Ask] = ()) -> tuple[Any, ...]:
        """A scan; see `lua/view.lua` for what stands where."""
        table = self._layout.schema.table[scan.table]
        index = None if scan.index is None else table.index_by_name[scan.index]
        filters = self._row_filters(table, scan.where, scan.upto)
        pieces = self._pieces(table, index, scan.eq, reads)
        after: Any = False if scan.after is None else encode_key(scan.after)
        limit = False if scan.limit is None else scan.limit
        if index is None:
            kinds: list[bool] = []
            name, low, high = f"k:{table.name}", "-", "+"
            if scan.eq and not isinstance(pieces, list):
                low, high = _bounds(pieces, len(scan.eq) == len(table.key), after, desc=scan.desc)
            elif not scan.eq:
                low, high = _past("-", "+", after, desc=scan.desc)
        else:
            kinds = [table.types[column] == "int" for column in index.order]
            name = f"i:{table.name}:{index.name}:"
            low, high = _past("-", "+", after, desc=scan.desc)
            if not isinstance(pieces, list):
                name += pieces
        late = pieces if isinstance(pieces, list) else False
        row = self._layout.shapes.rows[table.name]
        return (2, row, kinds, name, low, high, limit, scan.desc, filters, late, index is None, after)

    def _pieces(self, table: Table, index: Index | None, eq: tuple[Any, ...], reads: Sequence[Ask]) -> str | list[Any]:
        """What names the group (or begins the members): text, or a list where a value comes from an earlier read."""
        pieces: list[Any] = []
        last = len(table.key) - 1
        for position, value in enumerate(eq):
            whole = index is None and position == last
            if isinstance(value, Ref):
                if index is not None:
                    how = _GROUP
                elif table.key[position].type == "int":
                    how = _INTEGER
                else:
                    how = _LAST if whole else _TEXT
                pieces.append([*self._reference(value, reads), how])
            else:
                pieces.append(grouped(value) if index is not None else ordered(value, last=whole))
        return pieces if any(isinstance(piece, list) for piece in pieces) else "".join(pieces)

    def _row_filters(self, table: Table, where: Mapping[str, Any], upto: Mapping[str, int]) -> list[Any]:
        slots = self._slots[table.name]
        packed: list[Any] = []
        for name, wanted in where.items():
            packed += (source(table, name, slots), *_wanted(wanted))
        for name, most in upto.items():
            packed += (source(table, name, slots), _AT_MOST, most)
        return packed

    def _read(self, read: Read) -> tuple[Any, ...]:
        log = self._layout.schema.log[read.log]
        kept = self._layout.kept[read.log]
        filters: list[Any] = []
        for name, wanted in read.where.items():
            filters += (kept.index(name) + 1, *_wanted(wanted))
        lookup: Any = False
        if read.segments is None:
            for name, wanted in read.where.items():
                values = wanted if isinstance(wanted, tuple) else (wanted,)
                if name in log.unique and None not in values:
                    lookup = (name, [stored(value) for value in values])
                    break
        segments: Any = False
        if read.segments is not None:
            segments = [(stored(s.value), s.after, False if s.upto is None else s.upto) for s in read.segments]
        upto = False if read.upto is None else read.upto
        limit = False if read.limit is None else read.limit
        return (3, read.log, read.partition, read.after, upto, limit, read.desc, filters, lookup, segments, len(kept))


def _refuse_other_count(came: int, asked: int) -> None:
    if came != asked:
        raise ValueError(f"{came} answers came for {asked} questions")


def _wanted(wanted: Any) -> tuple[int, Any]:
    if isinstance(wanted, tuple):
        return _AMONG, [stored(value) for value in wanted]
    return _EQUAL, stored(wanted)


def _past(low: str, high: str, after: Any, *, desc: bool) -> tuple[Any, Any]:
    if after is False:
        return low, high
    return (low, f"({after}") if desc else (f"({after}", high)


def _bounds(prefix: str, whole: bool, after: Any, *, desc: bool) -> tuple[Any, Any]:
    """The members that begin with a prefix (or are it), past a keyset."""
    # A prefix ends in NUL or a digit: with that raised by one it is above everything that begins with it.
    upper = prefix if whole else prefix[:-1] + chr(ord(prefix[-1]) + 1)
    low, high = f"[{prefix}", f"[{prefix}" if whole else f"({upper}"
    if after is False:
        return low, high
    if desc:
        return (low, f"({after}") if after.encode() <= upper.encode() else (low, high)
    return (f"({after}", high) if after.encode() >= prefix.encode() else (low, high)
