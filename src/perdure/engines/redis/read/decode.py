"""Decodes stored rows and entries: every value has the type of its column, or `CorruptError` names where it is.

A server stores text and checks nothing, and other programs can write to it. Rows are text with integers in decimal, and
only in the spelling that Perdure writes: not ` 12`, `1_000` or digits of other scripts. Entries of logs are msgpack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import msgspec

from perdure.engines.redis.connections.failures import escaped
from perdure.engines.redis.connections.reply_shapes import Misfit
from perdure.engines.redis.schema.keys import decode_key, encode_key
from perdure.errors import CorruptError
from perdure.kernel.ops import LogEntry, Read, Row
from perdure.kernel.schema import Key, Log, Table

MOST = 2**53
"""The scripts compute in doubles, which are exact up to here."""

NOTHING = msgspec.Raw(b"\xc2")
"""False in the reply of a script."""

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_ROWS = msgspec.msgpack.Decoder(list[tuple[str, bytes | None, list[str | bool]] | None])
_ROWS_IN_PARTS = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, msgspec.Raw, list[msgspec.Raw]] | None])
_TEXT_OR_NULL = msgspec.msgpack.Decoder(str | bool)
_PARTS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENTRIES = msgspec.msgpack.Decoder(list[tuple[Any, ...]])
_ENTRY = msgspec.msgpack.Decoder(tuple[Any, ...])
_HEADER = {0xD9: 2, 0xDA: 3, 0xDB: 5}


def whole(value: Any) -> int:
    """The integer behind its text; `ValueError` for anything that Perdure does not write."""
    if type(value) is str and len(value) <= 17:
        number = int(value)
        if str(number) == value and -MOST <= number <= MOST:
            return number
    raise ValueError(f"{value!r:.80} is not a whole number within ±2^53")


def text_of(name: bytes, where: str, what: str) -> str:
    """The text of a stored name."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise CorruptError(f"the name of {what} is not UTF-8: {name!r:.80}", where=where) from None


def parts(reply: Any, count: int) -> list[msgspec.Raw]:
    """The shape of a script's reply that is an array of `count` values."""
    try:
        values = _PARTS.decode(reply) if type(reply) is bytes else []
    except _UNREADABLE:
        values = []
    if len(values) != count:
        raise Misfit(f"is not an array of {count}")
    return values


def lossy(part: msgspec.Raw) -> str:
    """A packed text, even if its bytes are not UTF-8: findings quote damaged text."""
    return _content(part).decode(errors="replace")


def onward(before: msgspec.Raw, reached: msgspec.Raw, where: str) -> msgspec.Raw:
    """Where a walk continues; it must have advanced, or it would never end."""
    if before != NOTHING and _content(reached) <= _content(before):
        raise CorruptError("the server's walk over the keys does not advance", where=where)
    return reached


def ascending(names: list[str], after: str | None, limit: int) -> list[str]:
    """A page of names; one that does not advance would be requested again and again."""
    before = [] if after is None else [after]
    if len(names) > limit or any(low.encode() >= high.encode() for low, high in pairwise(before + names)):
        raise CorruptError("the server's list of names is not in order", where="partitions")
    return names


def _content(part: msgspec.Raw) -> bytes:
    packed = bytes(part)
    return packed[_HEADER.get(packed[0], 1) :]


class RowDecoder:
    """Decodes rows of one table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._whole = tuple(column.type == "int" for column in table.columns)
        self._single = len(table.key) == 1 and table.key[0].type == "text"

    def decode(self, part: msgspec.Raw) -> list[Row | None]:
        """Rows in the reply of a view."""
        try:
            sent = _ROWS.decode(part)
        except _UNREADABLE as error:
            self._name_unreadable(part, error)
        return self.rows(sent)

    def rows(self, sent: Sequence[Any]) -> list[Row | None]:
        """Rows as scripts send them: encoded key, body, then rev and columns."""
        rows: list[Row | None] = []
        positions = self._table.positions
        for row in sent:
            if row is None:
                rows.append(None)
                continue
            encoded, body, stored = row
            if len(stored) != len(self._whole) + 1:
                raise self._corrupt(encoded, "the row", f"it has {len(stored) - 1} columns")
            try:
                values = [
                    None if value is False else whole(value) if number else value
                    for value, number in zip(stored[1:], self._whole, strict=True)
                ]
                rev = whole(stored[0])
            except ValueError:
                self._name_wrong(encoded, stored)
            if True in stored:
                self._name_wrong(encoded, stored)
            rows.append(Row(self._key(encoded), tuple(values), rev, body, positions))
        return rows

    def _key(self, encoded: str) -> Key:
        if self._single and "\x01" not in encoded:
            return (encoded,)
        try:
            key = decode_key(encoded, self._table.key)
            if encode_key(key) == encoded:
                return key
        except (ValueError, KeyError):
            pass
        raise self._corrupt(encoded, "the key", "it does not belong to this table")

    def _name_wrong(self, encoded: str, stored: Sequence[Any]) -> NoReturn:
        """Raise for the first column with an invalid value."""
        for name, value, number in zip(self._names, stored, (True, *self._whole), strict=True):
            try:
                if number and (value is not False or name == "rev"):
                    whole(value)
            except ValueError as error:
                raise self._corrupt(encoded, name, str(error)) from None
            if value is True:
                raise self._corrupt(encoded, name, "True is not text")
        raise self._corrupt(encoded, "the row", "it cannot be read")

    def _name_unreadable(self, part: msgspec.Raw, reason: Exception) -> NoReturn:
        """Raise for the first column that cannot be decoded."""
        try:
            rows = _ROWS_IN_PARTS.decode(part)
        except _UNREADABLE:
            rows = []
        for row in filter(None, rows):
            for name, value in zip(("the key", *self._names), (row[0], *row[2]), strict=False):
                try:
                    _TEXT_OR_NULL.decode(value)
                except _UNREADABLE as error:
                    raise self._corrupt(lossy(row[0]), name, str(error)) from None
        raise CorruptError(f"stored data cannot be read: {reason}", where=self._table.name)

    @property
    def _names(self) -> tuple[str, ...]:
        return ("rev", *self._table.column_names)

    def _corrupt(self, encoded: str, column: str, reason: str) -> CorruptError:
        return _corrupt(self._table, encoded, f"{column}: {reason}")


def _corrupt(shape: Table | Log, key: str, message: str) -> CorruptError:
    """The error for a row or a partition."""
    return CorruptError(message, where=f"{shape.name} {escaped(key)!r:.200}", hint="run perdure doctor")


class EntryDecoder:
    """Decodes entries of one log, which are stored with `columns` in this order; `reordered` if it is not the declared
    one."""

    def __init__(self, log: Log, columns: Sequence[str], *, reordered: bool) -> None:
        self._log = log
        self._columns = columns
        self._reordered = reordered
        columns_kinds = [int if log.types[name] == "int" else str for name in columns]
        self._kinds = (int, int, *columns_kinds, bytes)
        kinds: Any = (int, int, *[kind | None for kind in columns_kinds], bytes)
        entry: Any = tuple.__class_getitem__(kinds)
        self._one: Callable[[memoryview | bytes], LogEntry] = msgspec.msgpack.Decoder(entry).decode
        self._whole: Callable[[Any], list[LogEntry]] = msgspec.msgpack.Decoder(list.__class_getitem__(entry)).decode

    def decode(self, part: msgspec.Raw, read: Read) -> list[LogEntry]:
        """Entries in the reply of a view, with their columns in declared order."""
        try:
            entries = self._whole(part)
        except _UNREADABLE:
            entries = self._one_by_one(part, read.partition)
        return self._in_order(entries, read)

    def decode_one(self, stored: memoryview | bytes) -> LogEntry | bytes:
        """An entry as it is stored; its bytes, if it cannot be read or is older than the newest columns."""
        try:
            return self._one(stored)
        except _UNREADABLE:
            return bytes(stored)

    def is_same(self, entry: LogEntry | bytes, stored: bytes) -> bool:
        """Whether an entry, decoded or not, is the one that is stored like this."""
        return entry == (stored if type(entry) is bytes else self.decode_one(stored))

    def decode_rest(self, entries: list[Any], read: Read) -> list[LogEntry]:
        """Entries that `decode_one` decoded as far as possible, with their columns in declared order."""
        if bytes in map(type, entries):
            entries = [self._with_care(entry, read.partition) if type(entry) is bytes else entry for entry in entries]
        return self._in_order(entries, read)

    def _in_order(self, entries: list[LogEntry], read: Read) -> list[LogEntry]:
        self._refuse_out_of_order(entries, read)
        return [self._declared(entry) for entry in entries] if self._reordered else entries

    def _one_by_one(self, part: msgspec.Raw, partition: str) -> list[LogEntry]:
        try:
            return [self._filled(entry, partition) for entry in _ENTRIES.decode(part)]
        except _UNREADABLE as error:
            raise self._unreadable(partition, error) from None

    def _with_care(self, stored: bytes, partition: str) -> LogEntry:
        try:
            return self._filled(_ENTRY.decode(stored), partition)
        except _UNREADABLE as error:
            raise self._unreadable(partition, error) from None

    def _unreadable(self, partition: str, error: Exception) -> CorruptError:
        return _corrupt(self._log, partition, f"an entry cannot be read: {error}")

    def _filled(self, entry: LogEntry, partition: str) -> LogEntry:
        """An entry that may be older than the newest columns; they are NULL in it."""
        if not 3 <= len(entry) <= len(self._columns) + 3:
            raise _corrupt(self._log, partition, f"an entry has {len(entry)} parts")
        missing = len(self._columns) + 3 - len(entry)
        filled = (*entry[:-1], *[None] * missing, entry[-1])
        self._refuse_wrong(filled, partition)
        return filled

    def _refuse_out_of_order(self, entries: list[LogEntry], read: Read) -> None:
        """Seqs must ascend from where the read begins: a page that does not advance would be read again and again."""
        seqs = [entry[0] for entry in entries]
        if read.desc:
            seqs.reverse()
        whole_page = read.limit is None or len(seqs) <= read.limit
        if whole_page and all(low < high for low, high in pairwise((read.after, *seqs))):
            return
        raise _corrupt(self._log, read.partition, "entries are out of order")

    def _refuse_wrong(self, entry: LogEntry, partition: str) -> None:
        for name, kind, value in zip(("seq", "rev", *self._columns, "body"), self._kinds, entry, strict=True):
            if type(value) is not kind and not (value is None and name in self._columns):
                message = f"entry {entry[0]!r:.20}: {name}: {value!r:.80} is not of type {kind.__name__}"
                raise _corrupt(self._log, partition, message)

    def _declared(self, entry: LogEntry) -> LogEntry:
        values = dict(zip(self._columns, entry[2:-1], strict=True))
        return (*entry[:2], *[values.get(name) for name in self._log.column_names], entry[-1])
