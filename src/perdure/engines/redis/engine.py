"""The Redis engine: the kernel contract as one script per call.

A server runs one script at a time, so every script is a serialisable transaction and every view is a snapshot. The
engine sends each script once, distinguishes an unknown outcome from a refusal, and registers a scope with the store
before its first write.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from perdure.clock import Clock, system_clock
from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.failures import Lost, Silent, Stopped
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.connections.scripts import VIEW
from perdure.engines.redis.health import settings
from perdure.engines.redis.health.audit import Audit
from perdure.engines.redis.migrate import bring_scope, has_data, mark_of, register, registered_scopes
from perdure.engines.redis.read.decode import ascending, text_of
from perdure.engines.redis.read.direct import DirectRead
from perdure.engines.redis.read.view import Reads
from perdure.engines.redis.schema.keys import ordered
from perdure.engines.redis.schema.layout import Layout
from perdure.engines.redis.schema.table_info import pack
from perdure.engines.redis.watch import Hub
from perdure.engines.redis.write.filled import Forms
from perdure.engines.redis.write.outcomes import (
    Claim,
    Committed,
    OtherSchema,
    claim_reply,
    commit_reply,
    no_append,
    one_append,
)
from perdure.engines.redis.write.transaction_scripts import Program
from perdure.engines.redis.write.writer import Groups, Writer, conflict_of, encode_record
from perdure.engines.shared.durability import DurabilityReading
from perdure.engines.shared.hints import Subscription, hints_of, topics_of
from perdure.engines.shared.lifecycle import Lifecycle
from perdure.errors import CorruptError, OutcomeUnknown, UnavailableError, UnsupportedError
from perdure.ids import new_rev
from perdure.kernel.engine import FIXED_TOPICS, Capabilities, Durability, Engine, Health, Watch
from perdure.kernel.kinds import Filled
from perdure.kernel.ops import NOW, Applied, Now, Op, Patch, ReadOp, Scan, Taken
from perdure.kernel.signals import LoopSignal
from perdure.kernel.transport import tls_level

_NOT_FILLED = 0
_T = TypeVar("_T")


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
        self._network = network
        self._capabilities_with = capabilities
        self._set_durability(durability)
        self._durability = DurabilityReading(self._read_durability, "none", self._set_durability)
        self._lifecycle = Lifecycle(self, network.target.display_url, read_only=read_only, one_loop=True)
        self._layout = layout
        self._reads = Reads(layout)
        self._writer = Writer(layout)
        self._forms = Forms(self._writer, layout.schema)
        self._sender = secrets.token_hex(6).encode()
        self._hub = Hub(network, layout, self._sender)

    def _set_durability(self, durability: Durability) -> None:
        self.capabilities = self._capabilities_with(durability)

    async def _read_durability(self) -> Durability:
        return await self._retried(lambda: settings.durability_now(self._network))

    async def transact(self, scope: str, ops: Sequence[Op], hints: Sequence[str] = ()) -> Applied:
        """Apply all operations or none; durable, as far as the server is, when it returns."""
        with self._lifecycle.call(write=True):
            prepared = self._writer.prepare(ops)
            rev = new_rev()
            channels = self._layout.channels(scope, hints)
            arguments = [*self._gate(rev, scope, hints), *prepared.arguments, *channels]
            appended = prepared.appended(ops)
            shape = partial(commit_reply, appended=len(appended))
            outcome = await self._write(prepared.program, scope, rev, arguments, shape)
            if type(outcome) is OtherSchema:
                await self._introduce(scope, outcome.mark)
                arguments[1] = b"1"
                outcome = await self._write(prepared.program, scope, rev, arguments, shape)
            if type(outcome) is Committed:
                self._hub.ring(hints_of(scope, hints))
            await self._durability.refresh()
            if type(outcome) is Committed:
                return Applied(rev, dict(zip(appended, outcome.seqs, strict=True)), outcome.now)
            raise self._refusal(outcome, ops, prepared.groups)

    async def transact_filled(self, scope: str, filled: Filled, hints: Sequence[str] = ()) -> Applied:
        """The same for a transaction of a known kind."""
        call = self._forms.call(filled)
        if call is None:
            return await self.transact(scope, filled.operations(), hints)
        form, arguments = call
        with self._lifecycle.call(write=True):
            rev = new_rev()
            channels = self._layout.channels(scope, hints)
            shape = one_append if form.append is not None else no_append
            arguments = [*self._gate(rev, scope, hints), *arguments, *channels]
            outcome = await self._write(form.program, scope, rev, arguments, shape)
            if type(outcome) is Committed:
                self._hub.ring(hints_of(scope, hints))
            if self._durability.is_due:
                await self._durability.refresh()
        if type(outcome) is Committed:
            return Applied(rev, form.seqs(filled, outcome.seqs), outcome.now)
        if type(outcome) is OtherSchema:
            return await self.transact(scope, filled.operations(), hints)
        raise self._refusal(outcome, filled.operations(), form.groups)

    def _refusal(self, outcome: Any, ops: Sequence[Op], groups: Groups) -> Exception:
        """The error for a script that refused to write."""
        if type(outcome) is OtherSchema:
            return _schema_changed()
        return conflict_of(self._layout, ops, groups, outcome)

    def _gate(self, rev: int, scope: str, hints: Sequence[str] = ()) -> list[bytes]:
        """The arguments of `lua/gate.lua`. A hint on a fixed topic says its scope; older engines ignore it."""
        clock = b"" if self.clock is system_clock else b"%d" % self.clock()
        sender = self._sender if FIXED_TOPICS.isdisjoint(hints) else self._sender + b" " + scope.encode()
        return [self._layout.mark.encode(), b"", clock, b"%d" % rev, pack(rev), sender]

    async def _write(
        self, program: Program, scope: str, rev: int, arguments: list[bytes], shape: Callable[[Any], _T]
    ) -> _T:
        """Run a script that writes, exactly once."""
        script, arguments = self._writer.programs.call(program, arguments)
        try:
            return await self._network.script(script, self._layout.base(scope), *arguments, shape=shape)
        except Stopped as stopped:
            message = f"{stopped}: part of it may have been written"
            raise OutcomeUnknown(message, rev=rev, hint="fix the cause, then run perdure doctor") from stopped
        except Lost as lost:
            raise OutcomeUnknown(f"{lost}: the commit may have landed", rev=rev, hint="retry with its key") from lost

    async def _introduce(self, scope: str, mark: str | None) -> None:
        """Register a scope before its first write, or bring it to this schema; refuse one that is newer."""
        try:
            if mark is None:
                await register(self._network, scope)
            else:
                await bring_scope(self._network, self._layout, scope, mark, tables=self.schema.table)
        except Lost as lost:
            raise UnavailableError(f"{lost}: nothing was written", hint="try again") from lost

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        """Answer all reads from one snapshot."""
        with self._lifecycle.call():
            base = self._layout.base(scope)
            direct = self._reads.direct.choose(base, reads)
            if direct is not None:
                answers = await self._view_directly(base, reads, direct)
                if answers is not None:
                    return answers
            run = partial(self._network.script, VIEW, base, *self._view_arguments(reads), shape=reply_shapes.pieces)
            reply = await self._retried(run)
            if reply == _NOT_FILLED:
                await self._fill_indexes(scope)
                reply = await self._retried(run)
            if isinstance(reply, int):
                raise _schema_changed()
            return self._reads.answers(reads, reply)

    def _view_arguments(self, reads: Sequence[ReadOp], direct: DirectRead | None = None) -> list[bytes]:
        """The arguments of `lua/view.lua`."""
        clock = None if self.clock is system_clock else self.clock()
        arguments = [encode_record(self._reads.packed(reads, clock, direct))]
        if any(type(read) is Scan and read.index is not None for read in reads):
            arguments.append(self._layout.mark.encode())
        return arguments

    async def _view_directly(self, base: bytes, reads: Sequence[ReadOp], direct: DirectRead) -> list[Any] | None:
        """The answers, with the entries of one read fetched by LRANGE; None if the script has to read them."""
        arguments = self._view_arguments(reads, direct)
        try:
            replies = await self._network.script_and(
                VIEW, base, *arguments, packed=direct.command, then=self._reads.element(direct)
            )
        except Silent as silent:
            raise UnavailableError(str(silent), hint="try again") from silent
        except Lost:
            return None
        if replies is None:
            return None
        return self._reads.direct_answers(reads, direct, replies)

    async def _fill_indexes(self, scope: str) -> None:
        """Fill the indexes of a scope that an older build wrote, before they are read."""
        if self._lifecycle.read_only:
            raise UnsupportedError(
                f"scope {scope!r} was written by an older build of Perdure, and its indexes are not filled yet",
                hint="open the store once without read_only and read the scope",
            )
        await self._introduce(scope, await self._retried(lambda: mark_of(self._network, self._layout, scope)))

    async def _retried(self, request: Callable[[], Awaitable[_T]]) -> _T:
        """The reply to a request that only reads. It is sent again if its connection was lost, not after a timeout."""
        try:
            try:
                return await request()
            except Silent:
                raise
            except Lost:
                return await request()
        except Lost as lost:
            raise UnavailableError(str(lost), hint="try again") from lost

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any], hints: Sequence[str] = ()) -> Taken:
        """Atomically select and update the first rows of an index."""
        with self._lifecycle.call(write=True):
            rev = new_rev()
            declared = self.schema.table[scan.table]
            # Members begin with the first ordering value, so the scan can end at its bound.
            first = scan.upto[declared.index_by_name[scan.index or ""].order[0]]
            bound = first.plus if isinstance(first, Now) else "(" + ordered(first + 1)
            request = self._reads.scan(scan)._replace(high=bound)
            patch = Patch(
                scan.table, tuple("" if column.type == "text" else 0 for column in declared.key), dict(changes)
            )
            code, (_, *values) = self._writer.row(patch)
            program = self._writer.programs.get(code)
            channels = self._layout.channels(scope, hints)
            arguments = [*self._gate(rev, scope, hints), encode_record(request), *values, *channels]
            outcome = await self._write(program, scope, rev, arguments, claim_reply)
            if type(outcome) is OtherSchema and outcome.mark is not None:
                await self._introduce(scope, outcome.mark)
                outcome = await self._write(program, scope, rev, arguments, claim_reply)
            if isinstance(outcome, Claim):
                rows = [row for row in self._reads.rows[scan.table].rows(outcome.rows) if row is not None]
                if rows:
                    self._hub.ring(hints_of(scope, hints))
                return Taken(rows, outcome.now)
            if type(outcome) is OtherSchema and outcome.mark is None:
                return Taken([], (await self.view(scope, [NOW]))[0])
            raise self._refusal(outcome, [patch], {code: ([0], [])})

    def watch(self, scope: str | None, topics: Sequence[str]) -> Watch:
        """Subscribe to hints, from a running event loop."""
        self._lifecycle.check_call()
        return Subscription(self._hub, topics_of(scope, topics), LoopSignal())

    def blocking(self) -> Engine | None:
        """None: calls wait for a server."""
        return None

    async def scopes(self) -> list[str]:
        """Every scope that holds a row or an entry."""
        with self._lifecycle.call():
            return [
                scope
                for scope in await self._retried(lambda: registered_scopes(self._network))
                if await self._retried(partial(has_data, self._network, self._layout, scope))
            ]

    async def partitions(self, scope: str, log: str, *, after: str | None = None, limit: int) -> list[str]:
        """Partitions with entries, in byte order."""
        with self._lifecycle.call():
            base = self._layout.base(scope)
            low = b"-" if after is None else b"(" + after.encode()
            range_ = (base + f"p:{log}".encode(), low, b"+", b"LIMIT", b"0", b"%d" % limit)
            names = await self._retried(
                lambda: self._network.request(base, b"ZRANGEBYLEX", *range_, shape=reply_shapes.names)
            )
            return ascending([text_of(name, base.decode(), f"a partition of {log}") for name in names], after, limit)

    async def check(self) -> list[str]:
        """Compare rows, indexes and logs with each other."""
        with self._lifecycle.call():
            try:
                return await self._retried(lambda: Audit(self._network, self._layout).run())
            except CorruptError as error:
                return [str(error)]

    async def health(self) -> Health:
        """Read the servers' settings."""
        with self._lifecycle.call():
            servers = await self._retried(lambda: settings.settings(self._network))
            target = self._network.target
            problems = settings.problems(servers, replicated=target.kind != "single")
            tls = None  # how a caller's client protects its connections is up to the caller
            if self._network.borrowed is None:
                problems += settings.transport_problems(target, servers)
                tls = tls_level(encrypted=target.tls, verified=target.verified)
            details = {"url": target.display_url, "prefix": self._layout.prefix, "tls": tls, "servers": servers}
            return Health("redis", not problems, settings.durability_of(servers), details, tuple(problems))

    async def close(self) -> None:
        """Finish the calls in flight, then release everything; idempotent, and does nothing in a forked child."""
        if self._lifecycle.begin_close():
            await self._lifecycle.drain()
            await self._hub.close()
            await self._network.close()
            self._lifecycle.finish_close()


def _schema_changed() -> UnavailableError:
    return UnavailableError("another client changed the schema of the scope", hint="try again")
