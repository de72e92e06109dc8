"""Appends to a log and removals from it: their arguments, and the Lua that checks and writes them.

Entries are sent as packed bytes that no script decodes. Only columns that hold the clock are cut out of them, because
the clock is the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from string import Template
from typing import Any

from perdure import limits
from perdure.engines.redis.connections.scripts import lua
from perdure.engines.redis.schema.table_info import pack
from perdure.engines.redis.write.value_lua import quoted
from perdure.kernel.ops import Append, Now
from perdure.kernel.schema import Log

_CHECK, _WRITE = Template(lua("append_check")), Template(lua("append_write"))
_DROP, _TRIM = (Template(lua("unique_fields") + "\n" + lua(name)) for name in ("drop", "trim"))
_START = "if not facts[1] then head = tonumber(expected) end"
"""For entries that start at a seq: an empty partition is as if it ended before them."""


class DropCode:
    """The Lua that removes a partition or its end: the arguments are its name and how many entries stay."""

    size = 2

    def __init__(self, log: Log, columns: Sequence[str]) -> None:
        gone = "math.max(0, tonumber(call('HGET', about, '#') or 0) - call('LLEN', list))" if log.trim else "0"
        self.text = _DROP.substitute(_unique_facts(log, columns), gone=gone)


class TrimCode:
    """The Lua that removes the oldest entries of a partition: the arguments are its name and the last seq to go."""

    size = 2

    def __init__(self, log: Log, columns: Sequence[str]) -> None:
        self.text = _TRIM.substitute(_unique_facts(log, columns), most=limits.TRIM_ENTRIES)


def _unique_facts(log: Log, columns: Sequence[str]) -> dict[str, Any]:
    """The name of a log, and how a script finds the unique values of an entry that is stored with these columns."""
    # The decoder returns the offset of the rest first, then seq, rev and the columns; Lua counts from 1.
    positions = {name: columns.index(name) + 4 for name in log.unique}
    unique = ", ".join(f"[{quoted(f'{name}+')}] = {position}" for name, position in positions.items())
    last = max(positions.values(), default=3) - 1
    return {"log": quoted(log.name), "unique": f"{{{unique}}}", "columns": last}


class LogCodes:
    """The operations on one log; `order` is the order of its stored columns, None if as declared."""

    def __init__(self, log: Log, order: tuple[int, ...] | None) -> None:
        stored = range(len(log.columns)) if order is None else order
        columns = [log.column_names[at] for at in stored]
        self.drop = DropCode(log, columns)
        self.trim = TrimCode(log, columns)
        self._log = log
        self._order = order
        self._integers = [position for position, at in enumerate(stored) if log.columns[at].type == "int"]
        self._unique = [(f"{name}+", log.positions[name]) for name in log.unique]
        self._segment = None if log.segment is None else log.positions[log.segment]
        self._codes: dict[tuple[tuple[int, ...], bool, bool, bool], AppendCode] = {}

    def append(self, op: Append) -> tuple[AppendCode, list[bytes]]:
        """The code of an append, and its arguments."""
        signature = (*self._times(op.entries), self.has_several_segments(op.entries), op.start is not None)
        code = self._codes.get(signature)
        if code is None:
            code = self._codes[signature] = AppendCode(self._log, *signature)
        return code, self.arguments(code, op.partition, op.before, op.entries)

    def arguments(
        self, code: AppendCode, partition: str, expect: int | None, entries: Sequence[tuple[Any, ...]]
    ) -> list[bytes]:
        """The arguments of an append; see `lua/append_check.lua` for their order."""
        arguments = [partition.encode(), b"" if expect is None else b"%d" % expect, b"%d" % len(entries)]
        for name, at in self._unique:
            arguments += [b"" if entry[at] is None else f"{name}{entry[at]}".encode() for entry in entries]
        if self._segment is not None:
            segments = [entry[self._segment] for entry in (entries if code.several else entries[:1])]
            arguments += [b"" if value is None else b"%d" % value for value in segments]
        for entry in entries:
            arguments += code.pieces(entry if self._order is None else self._ordered(entry))
        return arguments

    def has_several_segments(self, entries: Sequence[tuple[Any, ...]]) -> bool:
        """Whether entries are of different segments."""
        if self._segment is None or len(entries) == 1:
            return False
        segments = [entry[self._segment] for entry in entries]
        return segments.count(segments[0]) != len(segments)

    def _ordered(self, entry: tuple[Any, ...]) -> tuple[Any, ...]:
        return entry if self._order is None else (*[entry[at] for at in self._order], entry[-1])

    def _times(self, entries: Sequence[tuple[Any, ...]]) -> tuple[tuple[int, ...], bool]:
        """Which columns hold the clock, and whether only some of the entries hold it there."""
        ordered = map(self._ordered, entries)
        times = [[at for at in self._integers if type(entry[at]) is Now] for entry in ordered]
        if times.count(times[0]) == len(times):
            return tuple(times[0]), False
        return tuple(sorted({at for columns in times for at in columns})), True


class AppendCode:
    """Appends to a log that are alike: in which columns hold the clock (in every entry, unless they are `mixed`), in
    whether their entries are of several segments, and in whether they say where they start."""

    def __init__(self, log: Log, times: tuple[int, ...], mixed: bool, several: bool, starts: bool) -> None:
        self.log = log
        self.mixed, self.several, self.starts = mixed, several, starts
        self._times = times
        bounds = [-1, *times, len(log.columns) + 1]
        self._spans = [(slice(first + 1, last), len(_head(last - first - 1))) for first, last in pairwise(bounds)]

    def pieces(self, entry: tuple[Any, ...]) -> list[bytes]:
        """An entry as bytes around its clock values."""
        packed = [pack(entry[span])[head:] for span, head in self._spans]
        if not self.mixed:
            return packed
        pieces = [packed[0]]
        for at, piece in zip(self._times, packed[1:], strict=True):
            pieces += (b"" if type(entry[at]) is Now else pack(entry[at]), piece)
        return pieces

    @property
    def is_uniform(self) -> bool:
        """Whether all entries hold the clock in the same columns, are of one segment, and follow the last one."""
        return not (self.mixed or self.several or self.starts)

    def check(self, group: int) -> str:
        """The Lua that refuses what must be refused."""
        return _CHECK.substitute(self._facts(group))

    def write(self, group: int) -> str:
        """The Lua that writes."""
        return _WRITE.substitute(self._facts(group))

    def _facts(self, group: int) -> dict[str, Any]:
        count = 2 * len(self._spans) - 1 if self.mixed else len(self._spans)
        pieces = [f"ARGV[at + {at}]" for at in range(1, count + 1)]
        if self.mixed:
            pieces[1::2] = [f"({piece} == '' and packed_clock or {piece})" for piece in pieces[1::2]]
        return {
            "group": group,
            "log": quoted(self.log.name),
            "unique": len(self.log.unique),
            "segments": "count" if self.several else int(self.log.segment is not None),
            "pieces_each": count,
            "pieces": (" .. " if self.mixed else " .. packed_clock .. ").join(pieces),
            "start": quoted(_head(len(self.log.columns) + 3)),
            "begin": _START if self.starts else "",
        }


def _head(count: int) -> bytes:
    """The header of a msgpack array of `count` values."""
    return bytes([0x90 + count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
