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
from perdure.engines.redis.connections import answers
from perdure.engines.redis.connections.failures import Lost, Silent, Stopped
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.connections.scripts import VIEW
from perdure.engines.redis.health import settings
from perdure.engines.redis.health.audit import Audit
from perdure.engines.redis.migrate import bring_scope, holds_anything, mark_of, register, registered
from perdure.engines.redis.read.decode import ascending, text_of
from perdure.engines.redis.read.view import Reads
from perdure.engines.redis.schema.keys import ordered
from perdure.engines.redis.schema.layout import Layout
from perdure.engines.redis.schema.table_info import pack
from perdure.engines.redis.watch import Hub, Subscription
from perdure.engines.redis.write.outcomes import CONFLICT, OTHER_SCHEMA, Claim, Done, Refused, claimed, committed
from perdure.engines.redis.write.transaction_scripts import Program
from perdure.engines.redis.write.writer import Groups, Writer, conflict_of, encode_record
from perdure.engines.shared.durability import DurabilityReading
from perdure.errors import CorruptError, OutcomeUnknown, PerdureError, UnavailableError, UnsupportedError
from perdure.ids import new_rev
from perdure.kernel.engine import Capabilities, Durability, Engine, Health, Watch
from perdure.kernel.lifecycle import closed, forked, opened_read_only, other_loop
from perdure.kernel.ops import NOW, Applied, Ask, Op, Patch, Scan, Taken
from perdure.kernel.transport import tls_level

_UNFILLED = 0

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
        self,
        network: Network,
        layout: Layout,
        clock: Clock,
        capabilities: Callable[[Durability], Capabilities],
        durability: Durability,
        *,
        read_only: bool,
    ) -> None:
        self.schema = layout.schema
        self.clock = clock
        self._read_only = read_only
        self._network = network
        self._capabilities_with = capabilities
        self._set_durability(durability)
        self._durability = DurabilityReading(self._read_durability, "none", self._set_durability)
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

    def _set_durability(self, durability: Durability) -> None:
        self.capabilities = self._capabilities_with(durability)

    async def _read_durability(self) -> Durability:
        found: Durability = await self._asked(lambda: settings.durability_now(self._network))
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
        appended = prepared.appended(ops)
        shape = partial(committed, appended=len(appended))
        outcome = await self._write(prepared.program, scope, rev, arguments, shape)
        if type(outcome) is Refused and outcome.kind == OTHER_SCHEMA:
            await self._introduce(scope, outcome.told)
            arguments[1] = b"1"
            outcome = await self._write(prepared.program, scope, rev, arguments, shape)
        if type(outcome) is Done:
            self._hub.publish(channels)
        await self._durability.refresh()
        if type(outcome) is Done:
            return Applied(rev, dict(zip(appended, outcome.seqs, strict=True)), outcome.now)
        raise self._refusal(outcome, ops, prepared.groups)

    def _refusal(self, outcome: Any, ops: Sequence[Op], groups: Groups) -> Exception:
        """The error for what a script refused."""
        if outcome.kind == CONFLICT:
            return conflict_of(self._layout, ops, groups, outcome.told)
        return UnavailableError("the schema of the scope changed meanwhile", hint="try again")

    def _gate(self, rev: int) -> list[bytes]:
        """The arguments of `lua/gate.lua`."""
        clock = b"" if self.clock is system_clock else b"%d" % self.clock()
        return [self._layout.mark.encode(), b"", clock, b"%d" % rev, pack(rev), self._sender]

    async def _write(
        self, program: Program, scope: str, rev: int, arguments: list[bytes], shape: Callable[[Any], _Answer]
    ) -> _Answer:
        """Run a script that writes, exactly once."""
        script, sent = self._writer.programs.call(program, arguments)
        try:
            return await self._network.script(script, self._layout.base(scope), *sent, shape=shape)
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
        answer = await self._asked(lambda: self._network.script(VIEW, base, *arguments, shape=answers.pieces))
        if answer == _UNFILLED:
            await self._fill(scope)
            answer = await self._asked(lambda: self._network.script(VIEW, base, *arguments, shape=answers.pieces))
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
        outcome = await self._write(program, scope, rev, arguments, claimed)
        if type(outcome) is Refused and outcome.kind == OTHER_SCHEMA and outcome.told is not False:
            await self._introduce(scope, outcome.told)
            outcome = await self._write(program, scope, rev, arguments, claimed)
        if isinstance(outcome, Claim):
            rows = [row for row in self._reads.rows[table].rows(outcome.rows) if row is not None]
            return Taken(rows, outcome.now)
        if outcome.told is False:
            return Taken([], (await self.view(scope, [NOW]))[0])
        raise self._refusal(outcome, [patch], {code: ([0], [])})

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
        return [
            scope
            for scope in await self._asked(lambda: registered(self._network))
            if await self._asked(partial(holds_anything, self._network, self._layout, scope))
        ]

    @_finished_before_close
    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        base = self._layout.base(scope)
        low = b"-" if after is None else b"(" + after.encode()
        count = (b"LIMIT", b"0", b"%d" % limit)
        names = await self._asked(
            lambda: self._network.request(
                base, b"ZRANGEBYLEX", base + f"p:{log}".encode(), low, b"+", *count, shape=answers.names
            )
        )
        return ascending([text_of(name, base.decode(), f"a partition of {log}") for name in names], after, limit)

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
        found = await self._asked(lambda: settings.settings(self._network))
        target = self._network.target
        told = settings.problems(found, several=target.kind != "single") + settings.transport_problems(target, found)
        tls = tls_level(encrypted=target.tls, verified=target.verified)
        shown = {"url": target.shown, "prefix": self._layout.prefix, "tls": tls, "servers": found}
        return Health("redis", not told, settings.durability_of(found), shown, tuple(told))

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


_live: weakref.WeakSet[RedisEngine] = weakref.WeakSet()
_inherited: list[RedisEngine] = []


def _refuse_in_child() -> None:
    for engine in _live:
        engine.refusal = forked
        # Never collected: the sockets belong to the parent, which goes on using them.
        _inherited.append(engine)


os.register_at_fork(after_in_child=_refuse_in_child)
