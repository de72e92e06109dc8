"""The Redis engine: the kernel contract as one script per call.

A server runs one script at a time, so a script is a serialisable transaction and a view is a snapshot by themselves.
What remains here is to send it once, to tell an unknown outcome from a refusal, and to introduce a scope to the store
before its first write.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.clock import Clock, system_clock
from perdure.engines.redis import health
from perdure.engines.redis.check import Audit
from perdure.engines.redis.layout import Layout
from perdure.engines.redis.names import ordered
from perdure.engines.redis.network import Network
from perdure.engines.redis.programs import Program
from perdure.engines.redis.reads import Reads
from perdure.engines.redis.scripts import VIEW
from perdure.engines.redis.shapes import pack, unpack
from perdure.engines.redis.translate import Lost, Silent, Stopped
from perdure.engines.redis.versions import bring_scope, mark_of, register, registered
from perdure.engines.redis.watch import Hub, Subscription
from perdure.engines.redis.writes import Writer, conflict_of, encode_record
from perdure.errors import CorruptError, OutcomeUnknown, PerdureError, UnavailableError, UnsupportedError
from perdure.ids import new_rev
from perdure.kernel.durability import DurabilityReading
from perdure.kernel.engine import Capabilities, Durability, Engine, Health, Watch
from perdure.kernel.ops import NOW, Applied, Ask, Op, Patch, Scan, Taken
from perdure.kernel.refusals import closed, forked, opened_read_only, other_loop

_CONFLICT, _OTHER_SCHEMA = 1, 2
_UNFILLED = 0
_LAST_OF_ASCII = 127


_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def _finished_before_close(
    method: Callable[Concatenate[RedisEngine, _Arguments], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate[RedisEngine, _Arguments], Coroutine[Any, Any, _Answer]]:
    """A call of the engine that is refused after `close` and awaited by it."""

    @wraps(method)
    async def counted(self: RedisEngine, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        self.begin()
        try:
            return await method(self, *args, **kwargs)
        finally:
            self.end()

    return counted


class RedisEngine:
    """The kernel contract on Redis or Valkey."""

    def __init__(
        self, network: Network, layout: Layout, clock: Clock, durability: Durability, *, read_only: bool
    ) -> None:
        self.schema = layout.schema
        self.clock = clock
        self._read_only = read_only
        self._network = network
        self._take_durability(durability)
        self._durability = DurabilityReading(self._read_durability, "none", self._take_durability)
        self.refusal: Callable[[], PerdureError] | None = None
        self._loop = asyncio.get_running_loop()
        self._layout = layout
        self._reads = Reads(layout)
        self._writer = Writer(layout)
        self._sender = secrets.token_hex(6).encode()
        self._hub = Hub(network, self._sender)
        self._released = False
        self._under_way = 0
        self._quiet = asyncio.Event()
        _live.add(self)

    def _take_durability(self, durability: Durability) -> None:
        self.capabilities = _capabilities(self._network.target.kind, durability, read_only=self._read_only)

    async def _read_durability(self) -> Durability:
        found: Durability = await self._asked(lambda: health.durability_now(self._network))
        return found

    def _ready(self) -> None:
        if self.refusal is not None:
            raise self.refusal()
        if asyncio.get_running_loop() is not self._loop:
            raise other_loop()

    def begin(self) -> None:
        """A call that asks the servers begins; `close` waits for its end."""
        self._ready()
        self._under_way += 1

    def end(self) -> None:
        """It has ended, however it did."""
        self._under_way -= 1
        if not self._under_way:
            self._quiet.set()

    def _writing(self) -> None:
        if self._read_only:
            raise opened_read_only(self._network.target.shown)

    @_finished_before_close
    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable, as far as the server is, when it returns."""
        self._writing()
        prepared = self._writer.prepare(ops)
        rev = new_rev()
        channels = [self._layout.channel(scope, topic) for topic in hints]
        arguments = [*self._gate(rev), *prepared.arguments, *channels]
        answer = await self._write(prepared.program, scope, rev, arguments)
        told = _refusal(answer)
        if told is not None and told[0] == _OTHER_SCHEMA:
            await self._introduce(scope, told[1])
            arguments[1] = b"1"
            answer = await self._write(prepared.program, scope, rev, arguments)
            told = _refusal(answer)
        if told is None:
            self._hub.publish(channels)
        await self._durability.refresh()
        if told is None:
            now, *seqs = map(int, answer.split())
            return Applied(rev, dict(zip(prepared.appended(ops), seqs, strict=True)), now)
        if told[0] == _CONFLICT:
            raise conflict_of(self._layout, ops, prepared.groups, told[1])
        raise UnavailableError("the schema of the scope changed meanwhile", hint="try again")

    def _gate(self, rev: int) -> list[bytes]:
        """The arguments of `lua/gate.lua`."""
        clock = b"" if self.clock is system_clock else b"%d" % self.clock()
        return [self._layout.mark.encode(), b"", clock, b"%d" % rev, pack(rev), self._sender]

    async def _write(self, program: Program, scope: str, rev: int, arguments: list[bytes]) -> bytes:
        """Run a script that writes, exactly once."""
        script, sent = self._writer.programs.call(program, arguments)
        try:
            answer: bytes = await self._network.script(script, self._layout.base(scope), *sent)
            return answer
        except Stopped as stopped:
            told = f"{stopped}: part of it may have been written"
            raise OutcomeUnknown(told, rev=rev, hint="mend the cause, then run perdure doctor") from stopped
        except Lost as lost:
            raise OutcomeUnknown(f"{lost}: the commit may have landed", rev=rev, hint="retry with its key") from lost

    async def _introduce(self, scope: str, mark: str | bool) -> None:
        """Make a scope known before its first write, or bring it to this schema; refuse one that is newer."""
        try:
            if isinstance(mark, bool):
                await register(self._network, scope)
            else:
                await bring_scope(self._network, self._layout, scope, mark, tables=self.schema.table)
        except Lost as lost:
            raise UnavailableError(f"{lost}: nothing was written", hint="try again") from lost

    @_finished_before_close
    async def view(self, scope: str, reads: Sequence[Ask]) -> list[Any]:
        """Answer all reads from one snapshot."""
        clock = None if self.clock is system_clock else self.clock()
        arguments = [encode_record(self._reads.packed(reads, clock))]
        if any(type(read) is Scan and read.index is not None for read in reads):
            arguments.append(self._layout.mark.encode())
        base = self._layout.base(scope)
        answer = await self._asked(lambda: self._network.script(VIEW, base, *arguments))
        if answer == _UNFILLED:
            await self._fill(scope)
            answer = await self._asked(lambda: self._network.script(VIEW, base, *arguments))
        if answer == _UNFILLED:
            raise UnavailableError("the schema of the scope changed meanwhile", hint="try again")
        return self._reads.answers(reads, answer)

    async def _fill(self, scope: str) -> None:
        """Fill the indexes of a scope that an older build wrote, before they are read."""
        if self._read_only:
            raise UnsupportedError(
                f"scope {scope!r} was written by an older build of Perdure, and its indexes are not filled yet",
                hint="open the store once without read_only and read the scope",
            )
        mark = await self._asked(lambda: mark_of(self._network, self._layout, scope))
        await self._introduce(scope, mark)

    async def _asked(self, ask: Callable[[], Any]) -> Any:
        """What only reads is asked again when its connection was lost; not when there was no answer in time."""
        for last in (False, True):
            try:
                return await ask()
            except Lost as lost:
                if last or isinstance(lost, Silent):
                    raise UnavailableError(str(lost), hint="try again") from lost
        raise UnavailableError("never asked")

    @_finished_before_close
    async def take(
        self,
        scope: str,
        table: str,
        index: str,
        eq: tuple[Any, ...],
        *,
        upto: Mapping[str, int],
        limit: int,
        set: Mapping[str, Any],
    ) -> Taken:
        """Atomically select and update the first rows of an index."""
        self._writing()
        rev = new_rev()
        declared = self.schema.table[table]
        scan = list(self._reads.scan(Scan(table, index, eq, limit=limit, upto=upto)))
        # Members begin with the first ordering value: nothing beyond its bound is looked at.
        scan[5] = "(" + ordered(upto[declared.index_by_name[index].order[0]] + 1)
        patch = Patch(table, tuple("" if column.type == "text" else 0 for column in declared.key), dict(set))
        code, (_, *changes) = self._writer.row(patch)
        program = self._writer.programs.take(code)
        arguments = [*self._gate(rev), encode_record(scan), *changes]
        answer = unpack(await self._write(program, scope, rev, arguments))
        if answer[0] == _OTHER_SCHEMA and answer[1] is not False:
            await self._introduce(scope, answer[1])
            answer = unpack(await self._write(program, scope, rev, arguments))
        if answer[0] == _OTHER_SCHEMA and answer[1] is not False:
            raise UnavailableError("the schema of the scope changed meanwhile", hint="try again")
        if answer[0] == _OTHER_SCHEMA:
            return Taken([], (await self.view(scope, [NOW]))[0])
        if answer[0] == _CONFLICT:
            raise conflict_of(self._layout, [patch], {code: ([0], [])}, answer[1])
        rows = [row for row in self._reads.rows(declared, answer[2]) if row is not None]
        return Taken(rows, answer[1])

    def watch(self, scope: str, topics: Sequence[str]) -> Watch:
        """Subscribe to hints, from a running event loop."""
        self._ready()
        return Subscription(self._hub, [self._layout.channel(scope, topic) for topic in topics])

    def blocking(self) -> Engine | None:
        """There is none: a server makes its callers wait."""
        return None

    @_finished_before_close
    async def scopes(self) -> list[str]:
        """Every scope that holds a row or an entry."""
        found = []
        for scope in await self._asked(lambda: registered(self._network)):
            base = self._layout.base(scope)
            names = [f"k:{name}" for name in self.schema.table] + [f"p:{name}" for name in self.schema.log]
            exists = partial(self._network.request, base, b"EXISTS", *[base + name.encode() for name in names])
            if await self._asked(exists):
                found.append(scope)
        return found

    @_finished_before_close
    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        base = self._layout.base(scope)
        low = b"-" if after is None else b"(" + after.encode()
        count = (b"LIMIT", b"0", b"%d" % limit)
        names = await self._asked(
            lambda: self._network.request(base, b"ZRANGEBYLEX", base + f"p:{log}".encode(), low, b"+", *count)
        )
        try:
            return [name.decode() for name in names]
        except UnicodeDecodeError as error:
            raise CorruptError(f"a partition of {log} has no name in UTF-8: {error}", where=scope) from None

    @_finished_before_close
    async def check(self) -> list[str]:
        """Rows, indexes and logs compared with each other."""
        try:
            found: list[str] = await self._asked(lambda: Audit(self._network, self._layout).run())
        except CorruptError as error:
            return [str(error)]
        return found

    @_finished_before_close
    async def health(self) -> Health:
        """Read the real settings."""
        found = await self._asked(lambda: health.settings(self._network))
        told = health.problems(found, several=self._network.target.kind != "single")
        shown = {"url": self._network.target.shown, "prefix": self._layout.prefix, "servers": found}
        return Health("redis", not told, health.durability_of(found), shown, tuple(told))

    async def close(self) -> None:
        """Finish what was submitted, then release everything; idempotent, and nothing at all in a forked child."""
        if self._released or self.refusal is forked:
            return
        if asyncio.get_running_loop() is not self._loop:
            raise other_loop()
        # A close that is cancelled on its way may be called again, and then goes all of it.
        self.refusal = closed
        while self._under_way:
            self._quiet.clear()
            await self._quiet.wait()
        await self._hub.close()
        await self._network.close()
        self._released = True


def _refusal(answer: bytes) -> Any:
    """What a transaction was refused for; None if it was carried out, which is answered in plain digits."""
    return unpack(answer) if answer[0] > _LAST_OF_ASCII else None


def _capabilities(kind: str, durability: Durability, *, read_only: bool) -> Capabilities:
    notes = ["a scope lives on one server: a cluster scales by scopes"]
    if durability != "power":
        notes.append(f"the server's settings promise durability {durability!r} only; health() says why")
    if kind != "single":
        notes.append("replication is asynchronous: a failover may lose acknowledged writes")
    if read_only:
        notes.append("opened read-only")
    return Capabilities(
        engine="redis",
        durability=durability,
        processes="many",
        machines="many",
        round_trips_per_commit=1,
        watch="push",
        blocking=False,
        notes=tuple(notes),
    )


_live: weakref.WeakSet[RedisEngine] = weakref.WeakSet()
_inherited: list[RedisEngine] = []


def _refuse_in_child() -> None:
    for engine in _live:
        engine.refusal = forked
        # Never collected: the sockets belong to the parent, which goes on using them.
        _inherited.append(engine)


os.register_at_fork(after_in_child=_refuse_in_child)
