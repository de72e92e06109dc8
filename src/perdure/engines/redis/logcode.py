"""Appends to a log: the arguments they send, and the two pieces of Lua that check and write them.

Entries travel as packed bytes that no script takes apart; only columns that hold the clock are cut out of them, because
the clock is the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from string import Template
from typing import Any, NamedTuple

from perdure.engines.redis.scripts import lua
from perdure.engines.redis.shapes import pack
from perdure.engines.redis.values import quoted
from perdure.kernel.ops import Append, Now
from perdure.kernel.schema import Log

_CHECK, _WRITE = Template(lua("append_check")), Template(lua("append_write"))


class AppendSignature(NamedTuple):
    """All of an append that shapes its script: the log, which columns hold the clock (just the clock, in every entry,
    unless the append is `mixed`), and whether its entries are of several segments."""

    log: str
    times: tuple[int, ...]
    mixed: bool
    several: bool


def signature_of(
    op: Append, log: Log, order: tuple[int, ...] | None
) -> tuple[AppendSignature, Sequence[tuple[Any, ...]]]:
    """The signature of an append, and its entries with their columns in the order in which the log keeps them."""
    entries, several = op.entries, False
    if log.segment is not None:
        at = log.position[log.segment]
        several = any(entry[at] != entries[0][at] for entry in entries)
    if order is not None:
        entries = [(*[entry[at] for at in order], entry[-1]) for entry in entries]
    times = tuple([at for at, value in enumerate(entries[0]) if type(value) is Now])
    mixed = any(_differs(entry, times) for entry in entries)
    if mixed:
        times = tuple(sorted({at for entry in entries for at, value in enumerate(entry) if type(value) is Now}))
    return AppendSignature(op.log, times, mixed, several), entries


def _differs(entry: tuple[Any, ...], times: tuple[int, ...]) -> bool:
    """Whether an entry holds anything but the clock in these columns, or the clock in others."""
    kinds = list(map(type, entry))
    return kinds.count(Now) != len(times) or any(kinds[at] is not Now or entry[at].plus for at in times)


class AppendCode:
    """One signature; see `lua/append_check.lua` for what stands where."""

    def __init__(self, log: Log, signature: AppendSignature) -> None:
        self.log = log
        _, self._times, self._mixed, self._several = signature
        self._unique = [log.position[name] for name in log.unique]
        self._segment = None if log.segment is None else log.position[log.segment]
        bounds = [-1, *signature.times, len(log.columns) + 1]
        self._spans = [slice(first + 1, last) for first, last in pairwise(bounds)]

    def arguments(self, op: Append, entries: Sequence[tuple[Any, ...]]) -> list[bytes]:
        """What follows the number of appends."""
        expected = b"" if op.expect is None else b"%d" % op.expect
        made = [op.partition.encode(), expected, b"%d" % len(entries)]
        for name, at in zip(self.log.unique, self._unique, strict=True):
            made += [b"" if entry[at] is None else f"{name}+{entry[at]}".encode() for entry in op.entries]
        if self._segment is not None:
            held = [entry[self._segment] for entry in (op.entries if self._several else op.entries[:1])]
            made += [b"" if segment is None else b"%d" % segment for segment in held]
        for entry in entries:
            made += self._pieces(entry)
        return made

    def _pieces(self, entry: tuple[Any, ...]) -> list[bytes]:
        packed = [_unheaded(entry[span]) for span in self._spans]
        if not self._mixed:
            return packed
        made = [packed[0]]
        for at, piece in zip(self._times, packed[1:], strict=True):
            value = entry[at]
            made += (b"n%d" % value.plus if type(value) is Now else pack(value), piece)
        return made

    def check(self, group: int) -> str:
        """The Lua that refuses what must be refused."""
        return _CHECK.substitute(self._facts(group))

    def write(self, group: int) -> str:
        """The Lua that writes."""
        return _WRITE.substitute(self._facts(group))

    def _facts(self, group: int) -> dict[str, Any]:
        spans = len(self._spans)
        pieces, count = ["ARGV[at + 1]"], spans
        if self._mixed:
            count = 2 * spans - 1
            for at in range(2, count, 2):
                pieces += (f"time_piece(ARGV[at + {at}], clock)", f"ARGV[at + {at + 1}]")
        else:
            for at in range(2, count + 1):
                pieces += ("pack(clock)", f"ARGV[at + {at}]")
        return {
            "group": group,
            "log": quoted(self.log.name),
            "unique": len(self.log.unique),
            "segments": "count" if self._several else int(self._segment is not None),
            "pieces_each": count,
            "pieces": " .. ".join(pieces),
            "start": quoted_bytes(_head(len(self.log.columns) + 3)),
        }


def quoted_bytes(data: bytes) -> str:
    """Bytes as a Lua string."""
    return "'" + "".join(f"\\{byte:03d}" for byte in data) + "'"


def _head(count: int) -> bytes:
    """What begins a msgpack array of so many values."""
    return bytes([0x90 + count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big")


def _unheaded(values: tuple[Any, ...]) -> bytes:
    """Values as they stand in a msgpack array, without what begins it."""
    return pack(values)[1 if len(values) < 16 else 3 :]
