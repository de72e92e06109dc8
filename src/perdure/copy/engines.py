"""A whole store, from one engine to another: compared, copied, and read back to prove it.

It knows declarations and nothing else, so whatever is declared is moved. Three walks over both sides, each in order and
in bounded memory: *comparing* finds what is missing at the destination and refuses anything that is there and is not
the same; *copying* adds what is missing; *verifying* reads both sides again, compares counts and checksums, and ends
with a look at revs and lengths: whatever was written to either side before that look began is noticed.

There is no marker of how far a copy got: what is at the destination says it. So a copy that was killed is run again and
goes on, and nothing at the destination is ever overwritten.

What is copied is not judged: a row that contradicts another arrives as it is, and an audit of either side tells the
same. Only what cannot be held is refused, with its row: a value of another type than its column, or text that the
destination has no room for (NUL in PostgreSQL, an id of 10 KB in MySQL). No thread is visible there by then.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec

from perdure.copy.walk import MOST_BYTES, MOST_ROWS, Item, Shape, Trace, canonical, items, look, scopes_of
from perdure.errors import (
    ConflictError,
    CorruptError,
    InvalidError,
    NotFoundError,
    OutcomeUnknown,
    UnavailableError,
    UnsupportedError,
)
from perdure.kernel.engine import Conflict, Engine
from perdure.kernel.ops import ABSENT, Append, Op, Put
from perdure.kernel.schema import Log, Schema
from perdure.kernel.validate import check_ops

Stage = Literal["comparing", "copying", "verifying"]
_EMPTY = (
    "copy into an empty store, or into one that an interrupted copy of this one left; nothing is overwritten, so if the"
    " source has changed since, empty the destination first or choose another"
)
_WRITERS = (
    "a writer changed one of them during the copy; stop it, then empty the destination or choose another, and copy"
    " again: what was copied already is never overwritten"
)
_DAMAGED = "the source is damaged: run `perdure doctor verify --all-scopes` on it"
_REFUSED = (
    "the destination cannot hold this row, and no store would have written it: repair or delete it at the source, and"
    " run the same copy again; it resumes where it stopped"
)
_AGAIN = "run the same copy again: it resumes where it stopped"


class Part(msgspec.Struct, frozen=True):
    """One table or log of one scope: what the source holds, how much of it was at the destination already, and the
    checksum of both sides once they were read back."""

    scope: str
    name: str
    kind: Literal["table", "log"]
    rows: int
    present: int
    bytes: int
    checksum: str | None = None

    @property
    def missing(self) -> int:
        """How much the copy adds."""
        return self.rows - self.present


class Copied(msgspec.Struct, frozen=True):
    """What a copy did, or with a dry run would do, part by part."""

    parts: tuple[Part, ...]
    dry_run: bool

    @property
    def rows(self) -> int:
        """Rows and entries of the source."""
        return sum(part.rows for part in self.parts)

    @property
    def missing(self) -> int:
        """Rows and entries that were added, or would be."""
        return sum(part.missing for part in self.parts)

    @property
    def bytes(self) -> int:
        """The weight of what was added, about."""
        return sum(part.bytes for part in self.parts)


class CopyProgress(msgspec.Struct, frozen=True):
    """Where a copy is: `total` is None until everything was compared."""

    stage: Stage
    scope: str
    name: str
    done: int
    total: int | None


OnProgress = Callable[[CopyProgress], None]


async def copy_engine(
    source: Engine,
    target: Engine,
    *,
    scopes: Sequence[str] | None = None,
    last: Sequence[str] = (),
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Copied:
    """Bring everything of `source` (or of some scopes) to `target`; a dry run only compares.

    `last` names the tables to copy after all others: those whose rows make visible what the others hold.
    """
    if source.schema.digest() != target.schema.digest():
        raise UnsupportedError("the two stores have different declarations", hint="copy with one build of Perdure")
    walk = _Walk(source, target, on_progress)
    shapes = _in_order(source.schema, last)
    parts = [await walk.compare(scope, shape) for scope in await walk.scopes(scopes) for shape in shapes]
    if dry_run:
        return Copied(tuple(parts), dry_run=True)
    walk.begin("copying", sum(part.missing for part in parts))
    for part in parts:
        if part.missing:
            await walk.copy(part)
    walk.begin("verifying", 2 * sum(part.rows for part in parts))
    verified = [await walk.verify(part) for part in parts]
    await walk.look_again(verified, every_scope=scopes is None)
    return Copied(tuple(verified), dry_run=False)


async def chosen_scopes(source: Engine, names: Sequence[str]) -> list[str]:
    """The scopes asked for, each once; `NotFoundError` if the source lacks one."""
    here = await scopes_of(source)
    for scope in names:
        if scope not in here:
            raise NotFoundError(f"the source has no scope {scope!r}", hint=f"it has: {', '.join(here) or '-'}")
    return list(dict.fromkeys(names))


def _in_order(schema: Schema, last: Sequence[str]) -> list[Shape]:
    """Logs first: they are the bulk, and nothing finds an entry whose rows are not there yet."""
    early: list[Shape] = [table for table in schema.tables if table.name not in last]
    return [*schema.logs, *early, *[schema.table[name] for name in last]]


class _Walk:
    """The two sides, and how far along both of them the work is."""

    def __init__(self, source: Engine, target: Engine, on_progress: OnProgress | None) -> None:
        self._source = source
        self._target = target
        self._on_progress = on_progress
        self._traces: list[tuple[bytes, bytes]] = []
        self.begin("comparing", None)

    def begin(self, stage: Stage, total: int | None) -> None:
        """The next stage, from its first row."""
        self._stage: Stage = stage
        self._total = total
        self._done = 0

    def _shape(self, name: str) -> Shape:
        schema = self._source.schema
        return schema.log[name] if name in schema.log else schema.table[name]

    def _report(self, scope: str, name: str) -> None:
        self._done += 1
        if self._on_progress is not None:
            self._on_progress(CopyProgress(self._stage, scope, name, self._done, self._total))

    async def scopes(self, names: Sequence[str] | None) -> list[str]:
        """The scopes to copy: those asked for, or all, and then the destination may have no other."""
        if names is not None:
            return await chosen_scopes(self._source, names)
        here = await scopes_of(self._source)
        foreign = sorted(set(await scopes_of(self._target)) - set(here))
        if foreign:
            raise ConflictError(f"the destination has scope {foreign[0]!r}, which the source lacks", hint=_EMPTY)
        return here

    async def compare(self, scope: str, shape: Shape) -> Part:
        """Count what is there and what is missing; `ConflictError` names the first difference."""
        missing = size = 0
        before = self._done
        async for item in self._missing(scope, shape):
            missing += 1
            size += item.size
        rows = self._done - before
        kind: Literal["table", "log"] = "log" if isinstance(shape, Log) else "table"
        return Part(scope, shape.name, kind, rows, rows - missing, size)

    async def copy(self, part: Part) -> None:
        """Add what is missing, as many rows to a transaction as it may carry."""
        shape = self._shape(part.name)
        batch: list[Item] = []
        size = 0
        async for item in self._missing(part.scope, shape):
            if batch and (len(batch) == MOST_ROWS or size + item.size > MOST_BYTES):
                await self._write(part.scope, shape, batch)
                batch, size = [], 0
            batch.append(item)
            size += item.size
        if batch:
            await self._write(part.scope, shape, batch)

    async def _write(self, scope: str, shape: Shape, batch: Sequence[Item]) -> None:
        ops = _operations(shape, batch)
        try:
            check_ops(self._source.schema, ops)
        except InvalidError:
            raise _not_declared(self._source.schema, scope, shape, batch) from None
        try:
            await self._target.transact(scope, ops)
        except InvalidError as error:
            if len(batch) == 1:
                raise CorruptError(error.message, where=_where(scope, shape, batch[0]), hint=_REFUSED) from None
            for item in batch:  # one of them is refused: now it is named, and those before it need not come again
                await self._write(scope, shape, [item])
        except Conflict:
            where = _where(scope, shape, batch[0])
            raise ConflictError(
                f"{where}: another writer changed the destination during the copy", hint=_AGAIN
            ) from None
        except (OutcomeUnknown, UnavailableError) as error:
            raise UnavailableError(f"the copy was interrupted: {error.message}", hint=_AGAIN) from error

    async def _missing(self, scope: str, shape: Shape) -> AsyncGenerator[Item]:
        """What the source has and the destination has not, in order.

        What is added while this walks lies behind both streams, so neither of them meets it.
        """
        async with (
            aclosing(items(self._target, scope, shape)) as theirs,
            aclosing(items(self._source, scope, shape)) as ours,
        ):
            there = await anext(theirs, None)
            async for item in ours:
                if there is not None and there.key < item.key:
                    break
                absent = there is None or item.key < there.key
                if absent or self._stage == "comparing":
                    self._report(scope, shape.name)
                if absent:
                    yield item
                elif there is not None:
                    _insist_equal(scope, shape, item, there)
                    there = await anext(theirs, None)
            if there is not None:
                where = _where(scope, shape, there)
                raise ConflictError(f"{where} is at the destination and not at the source", hint=_EMPTY)

    async def verify(self, part: Part) -> Part:
        """Read both sides from the beginning and compare what they add up to."""
        shape = self._shape(part.name)
        (ours, here), (theirs, there) = await asyncio.gather(
            self._sum(self._source, part.scope, shape), self._sum(self._target, part.scope, shape)
        )
        self._traces.append((here, there))
        if ours != theirs:
            raise ConflictError(
                f"{part.kind} {part.name} of scope {part.scope!r} is not the same on both sides:"
                f" {ours[0]:,} rows here and {theirs[0]:,} there",
                expected=ours,
                actual=theirs,
                hint=_WRITERS,
            )
        return msgspec.structs.replace(part, rows=ours[0], checksum=ours[1])

    async def look_again(self, verified: Sequence[Part], *, every_scope: bool) -> None:
        """Raise if anything was written to either side since it was verified."""
        for part, traces in zip(verified, self._traces, strict=True):
            shape = self._shape(part.name)
            now = await asyncio.gather(*[look(side, part.scope, shape) for side in (self._source, self._target)])
            if tuple(now) != traces:
                where = f"{part.kind} {part.name} of scope {part.scope!r}"
                raise ConflictError(f"{where} was written to after it was verified", hint=_WRITERS)
        if every_scope:
            known = {part.scope for part in verified}
            for side in (self._source, self._target):
                if new := sorted(set(await scopes_of(side)) - known):
                    raise ConflictError(f"scope {new[0]!r} came up during the copy", hint=_WRITERS)

    async def _sum(self, engine: Engine, scope: str, shape: Shape) -> tuple[tuple[int, str], bytes]:
        """Count and checksum, and the trace by which later writes are noticed."""
        count, digest, trace = 0, hashlib.sha256(), Trace(shape)
        async for item in items(engine, scope, shape):
            body = canonical(item.body, _where(scope, shape, item))
            digest.update(msgspec.msgpack.encode((item.key, item.values, body)))
            trace.saw(item)
            count += 1
            self._report(scope, shape.name)
        return (count, digest.hexdigest()), trace.result()


def _operations(shape: Shape, batch: Sequence[Item]) -> list[Op]:
    """Rows that must not be there yet, or entries that must follow the last one there."""
    if not isinstance(shape, Log):
        names = shape.column_names
        return [Put(shape.name, i.key, dict(zip(names, i.values, strict=True)), i.body, ABSENT) for i in batch]
    by_partition: dict[str, list[Item]] = {}
    for item in batch:
        by_partition.setdefault(item.key[0], []).append(item)
    ops: list[Op] = []
    for partition, some in by_partition.items():
        entries, first = [(*i.values, i.body) for i in some], some[0].key[1]
        if shape.trim:
            ops.append(Append(shape.name, partition, entries, start=first))
        else:
            ops.append(Append(shape.name, partition, entries, expect=first - 1))
    return ops


def _not_declared(schema: Schema, scope: str, shape: Shape, batch: Sequence[Item]) -> CorruptError:
    """The refusal of a value that the declarations have no room for, such as text in a column of numbers."""
    for item in batch:
        try:
            check_ops(schema, _operations(shape, [item]))
        except InvalidError as error:
            return CorruptError(error.message, where=_where(scope, shape, item), hint=_DAMAGED)
    return CorruptError("a row is there twice", where=_where(scope, shape, batch[0]), hint=_DAMAGED)


def _insist_equal(scope: str, shape: Shape, ours: Item, theirs: Item) -> None:
    where = _where(scope, shape, ours)
    for name, here, there in zip(shape.column_names, ours.values, theirs.values, strict=True):
        if here != there:
            text = f"{where} differs: {name} is {here!r:.60} here and {there!r:.60} there"
            raise ConflictError(text, expected=here, actual=there, hint=_EMPTY)
    if ours.body != theirs.body and canonical(ours.body, where) != canonical(theirs.body, where):
        raise ConflictError(f"{where} differs: its content is another", hint=_EMPTY)


def _where(scope: str, shape: Shape, item: Item) -> str:
    kind = "log" if isinstance(shape, Log) else "table"
    key = ", ".join(map(repr, item.key))
    return f"{kind} {shape.name}, scope {scope!r}, {key:.200}"
