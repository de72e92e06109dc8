"""One engine's data as a stream: every row of a table, or every entry of a log, in one order that all engines share.

A row is known by its key and an entry by (partition, seq); both come in byte order, so two engines can be compared like
two sorted lists. Pages adapt to what they bring: large bodies make them short. Revs are left out, because every engine
mints its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import ConflictError
from perdure.kernel.codec import decode
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Heads, Read, Scan
from perdure.kernel.schema import Log, Table

MOST_ROWS = limits.ERASE_CHUNK
MOST_BYTES = limits.COMMIT_BYTES // 4
"""How much one page brings and one transaction carries, about: little enough to be held on both sides at once."""

_FIRST_ROWS = 32
_NAMES = 100
_canonical = msgspec.json.Encoder(order="sorted")
Shape = Table | Log


class Item(msgspec.Struct, frozen=True, gc=False):
    """A row or an entry: what it is known by, its declared columns in order, and its JSON."""

    key: tuple[Any, ...]
    values: tuple[Any, ...]
    body: bytes | None

    @property
    def size(self) -> int:
        """Its weight in bytes, about."""
        texts = sum(len(value) for value in (*self.key, *self.values) if isinstance(value, str))
        return texts + len(self.body or b"") + 8 * len(self.values)


def canonical(body: bytes | None, where: str) -> bytes | None:
    """JSON in one spelling: engines keep values, and may not keep spaces or the order of members."""
    return None if body is None else _canonical.encode(decode(body, where))


def items(engine: Engine, scope: str, shape: Shape) -> AsyncGenerator[Item]:
    """Everything of one table or log of a scope, in order."""
    return _entries(engine, scope, shape) if isinstance(shape, Log) else _rows(engine, scope, shape)


class _Pace:
    """How many rows to ask for next: at most twice as many as last time, fewer when they were heavy."""

    def __init__(self) -> None:
        self.rows = _FIRST_ROWS

    def saw(self, page: Sequence[Item]) -> None:
        weight = sum(item.size for item in page) // max(len(page), 1)
        self.rows = max(1, min(MOST_ROWS, 2 * self.rows, MOST_BYTES // max(weight, 1)))


async def _rows(engine: Engine, scope: str, table: Table) -> AsyncGenerator[Item]:
    pace, after = _Pace(), None
    while True:
        asked = pace.rows
        (found,) = await engine.view(scope, [Scan(table.name, after=after, limit=asked)])
        page = [Item(row.key, row.values, _bytes(row.body)) for row in found]
        for item in page:
            yield item
        if len(page) < asked:
            return
        after = page[-1].key
        pace.saw(page)


async def _entries(engine: Engine, scope: str, log: Log) -> AsyncGenerator[Item]:
    pace, after = _Pace(), None
    while names := await engine.partitions(scope, log.name, after=after, limit=_NAMES):
        (lengths,) = await engine.view(scope, [Heads(log.name, names)])
        todo = _stretches(log.name, dict(zip(names, lengths, strict=True)), pace)
        for reads in todo:
            page = _page(reads, await engine.view(scope, reads), scope)
            pace.saw(page)
            for item in page:
                yield item
        after = names[-1]


def _stretches(log: str, lengths: dict[str, int], pace: _Pace) -> Iterator[list[Read]]:
    """Reads that together cover these partitions, gathered into views of as many entries as the pace allows."""
    gathered: list[Read] = []
    room = pace.rows
    for partition, length in lengths.items():
        done = 0
        while done < length:
            upto = min(length, done + room)
            gathered.append(Read(log, partition, after=done, upto=upto))
            room -= upto - done
            done = upto
            if not room:
                yield gathered
                gathered, room = [], pace.rows
    if gathered:
        yield gathered


def _page(reads: Sequence[Read], answers: Sequence[Any], scope: str) -> list[Item]:
    page: list[Item] = []
    for read, found in zip(reads, answers, strict=True):
        if len(found) != (read.upto or 0) - read.after:
            raise ConflictError(
                f"{read.log} {read.partition!r} of scope {scope!r} lost entries while it was read",
                hint="stop whoever writes to it, and run it again",
            )
        page.extend(Item((read.partition, entry[0]), tuple(entry[2:-1]), _bytes(entry[-1])) for entry in found)
    return page


def _bytes(body: bytes | str | None) -> bytes | None:
    return body.encode() if isinstance(body, str) else body
