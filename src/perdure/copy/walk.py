"""One engine's data as a stream: every row of a table, or every entry of a log, in one order that all engines share.

A row is known by its key and an entry by (partition, seq); both come in byte order, so two engines can be compared like
two sorted lists. Pages adapt to what they bring: large bodies make them short. Revs are never compared between engines,
because every engine mints its own; on one engine they tell whether somebody wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from perdure import limits
from perdure.errors import ConflictError, CorruptError, short_repr
from perdure.kernel.answers import AnswerCheck
from perdure.kernel.codec import decode
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Heads, Read, ReadOp, Scan
from perdure.kernel.schema import Log, Table

MOST_ROWS = limits.BATCH_ROWS
MOST_BYTES = limits.COMMIT_BYTES // 4
"""How much one page brings and one transaction carries, about: little enough to be held on both sides at once."""

_FIRST_ROWS = 32
_NAMES = 100
_NAMES_WITH_ENTRIES = 10
_facts = msgspec.msgpack.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")
Shape = Table | Log


class Item(msgspec.Struct, frozen=True, gc=False):
    """A row or an entry: what it is known by, who wrote it, its declared columns in order, and its JSON."""

    key: tuple[Any, ...]
    rev: int
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


class Ends(NamedTuple):
    """Where a partition begins and ends: the seq before its first entry, and that of its last."""

    partition: str
    base: int
    last: int


class Trace:
    """What a walk saw, in so little that a later look can tell whether somebody wrote meanwhile.

    Of a row that is its key and rev, which every write changes. Of a partition it is where it begins and ends: entries
    never change, and the stores never drop a partition without writing to rows as well.
    """

    def __init__(self, shape: Shape) -> None:
        self._digest = hashlib.sha256()
        self._is_log = isinstance(shape, Log)
        self._ends: Ends | None = None

    def saw(self, item: Item) -> None:
        """The next row or entry of a walk."""
        if not self._is_log:
            self.add(item.key, item.rev)
            return
        partition, seq = item.key
        ends = self._ends
        if ends is None or ends.partition != partition:
            self._flush()
            ends = Ends(partition, seq - 1, seq)
        self._ends = Ends(partition, ends.base, seq)

    def _flush(self) -> None:
        if self._ends is not None:
            self.add(*self._ends)
            self._ends = None

    def add(self, *facts: Any) -> None:
        """The next row's key and rev, or the ends of the next partition."""
        self._digest.update(_facts.encode(facts))

    def result(self) -> bytes:
        """The trace of everything seen."""
        self._flush()
        return self._digest.digest()


async def look(engine: Engine, scope: str, shape: Shape) -> bytes:
    """The trace of a walk, without reading the entries of logs."""
    trace = Trace(shape)
    if isinstance(shape, Log):
        async for partitions in _partitions(engine, scope, shape):
            for ends in partitions:
                trace.add(*ends)
    else:
        async for row in _rows(engine, scope, shape):
            trace.saw(row)
    return trace.result()


class _Pace:
    """How many rows to ask for next: at most twice as many as last time, fewer when they were heavy."""

    def __init__(self) -> None:
        self.rows = _FIRST_ROWS

    def saw(self, page: Sequence[Item]) -> None:
        weight = sum(item.size for item in page) // max(len(page), 1)
        self.rows = max(1, min(MOST_ROWS, 2 * self.rows, MOST_BYTES // max(weight, 1)))


_check_of = lru_cache(maxsize=16)(AnswerCheck)


async def scopes_of(engine: Engine) -> list[str]:
    """Every scope of an engine; raises `CorruptError` if one is not even text."""
    scopes = await engine.scopes()
    for scope in scopes:
        if type(scope) is not str:
            raise CorruptError(f"a scope is {short_repr(scope)}, which is not text", where=engine.capabilities.engine)
    return scopes


async def _view(engine: Engine, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
    """A view whose answers are what the schema declares: damage is not carried to another engine."""
    answers = await engine.view(scope, reads)
    try:
        _check_of(engine.schema)(reads, answers)
    except CorruptError as error:
        raise CorruptError(error.message, where=f"scope {scope!r}", hint="`perdure doctor verify` lists it") from None
    return answers


async def _rows(engine: Engine, scope: str, table: Table) -> AsyncGenerator[Item]:
    pace, after = _Pace(), None
    while True:
        asked = pace.rows
        (rows,) = await _view(engine, scope, [Scan(table.name, after=after, limit=asked)])
        page = [Item(row.key, row.rev, row.values, _bytes(row.body)) for row in rows]
        for item in page:
            yield item
        if len(page) < asked:
            return
        after = page[-1].key
        pace.saw(page)


async def _entries(engine: Engine, scope: str, log: Log) -> AsyncGenerator[Item]:
    pace = _Pace()
    async with aclosing(_partitions(engine, scope, log)) as pages:
        async for partitions in pages:
            for reads in _stretches(log.name, partitions, pace):
                page = _page(reads, await _view(engine, scope, reads), scope)
                pace.saw(page)
                for item in page:
                    yield item


async def _partitions(engine: Engine, scope: str, log: Log) -> AsyncGenerator[list[Ends]]:
    """Where each partition begins and ends, some of them at a time."""
    after = None
    limit = _NAMES_WITH_ENTRIES if log.trim else _NAMES
    while names := await engine.partitions(scope, log.name, after=after, limit=limit):
        firsts = [Read(log.name, name, limit=1) for name in names] if log.trim else []
        lasts, *answers = await _view(engine, scope, [Heads(log.name, names), *firsts])
        bases = [entries[0][0] - 1 if entries else 0 for entries in answers] or [0] * len(names)
        yield [Ends(*ends) for ends in zip(names, bases, lasts, strict=True)]
        after = names[-1]


def _stretches(log: str, partitions: Sequence[Ends], pace: _Pace) -> Iterator[list[Read]]:
    """Reads that together cover these partitions, gathered into views of as many entries as the pace allows."""
    gathered: list[Read] = []
    room = pace.rows
    for partition, done, last in partitions:
        while done < last:
            upto = min(last, done + room)
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
    for read, entries in zip(reads, answers, strict=True):
        if len(entries) != (read.upto or 0) - read.after:
            raise ConflictError(
                f"{read.log} {read.partition!r} of scope {scope!r} lost entries while it was read",
                hint="stop whoever writes to it, and run it again",
            )
        page.extend(
            Item((read.partition, entry[0]), entry[1], tuple(entry[2:-1]), _bytes(entry[-1])) for entry in entries
        )
    return page


def _bytes(body: bytes | str | None) -> bytes | None:
    return body.encode() if isinstance(body, str) else body
