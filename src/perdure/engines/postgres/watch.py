"""Wake-up hints: by event inside the process, by NOTIFY between processes, by polling where nobody can listen.

A commit rings its own process at once. For others its topics are gathered for a few milliseconds, under load for some
more, and sent with one `pg_notify`, on a connection of the pool and in a transaction of its own that waits for no disk:
a busy writer pays for forty of them a second, not for one per commit. One connection per engine listens, opened when
somebody watches first and again when it is lost; whenever it begins to listen everybody is rung once, for what may
have been missed before.

Without a way to listen (behind a pooler, with a caller's pool) the server is asked a few times a second whether any
transaction has ended since; that does not say which, so it rings everybody.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.engines.postgres.connections.connect import Connection, Way
from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.errors import DRIVER_ERRORS
from perdure.engines.postgres.target import Target
from perdure.engines.shared.signals import LoopSignal, Signal
from perdure.errors import PerdureError
from perdure.ids import new_rev

Topic = tuple[str, str]

GATHER_SECONDS = 0.003
REST_SECONDS = 0.025
POLL_SECONDS = 0.1
_PAUSE_SECONDS = 0.5
_PAYLOAD_BYTES = 7_500
_NOTIFY = "SELECT pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.pg_notify($1, $2)"
_SNAPSHOT = "SELECT pg_catalog.pg_current_snapshot()::text"


class Hub:
    """Who watches what in this process, and the way to the other processes."""

    def __init__(self, pool: Pool, target: Target, *, listens: bool) -> None:
        self._pool = pool
        self._target = target
        self._listens = listens
        self._channel = "perdure_" + hashlib.sha256(target.schema.encode()).hexdigest()[:16]
        self._own = f"{new_rev():x}"
        self._signals: dict[Topic, set[Signal]] = {}
        self._pending: set[Topic] = set()
        self._sender: asyncio.Task[None] | None = None
        self._waker: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._closed = False

    def publish(self, scope: str, hints: Sequence[str]) -> None:
        """After a commit: ring those who watch here, and let the others know soon."""
        topics = [(scope, hint) for hint in hints]
        self._ring(topics)
        self._pending.update(topics)
        if self._sender is None and not self._closed:
            self._sender = asyncio.create_task(self._send())

    def subscribe(self, topics: Sequence[Topic], signal: Signal) -> None:
        """Begin to ring `signal`."""
        for topic in topics:
            self._signals.setdefault(topic, set()).add(signal)
        if self._waker is None and not self._closed:
            self._waker = asyncio.create_task(self._listen() if self._listens else self._poll())

    def unsubscribe(self, topics: Sequence[Topic], signal: Signal) -> None:
        """Stop ringing `signal`."""
        for topic in topics:
            watchers = self._signals.get(topic, set())
            watchers.discard(signal)
            if not watchers:
                self._signals.pop(topic, None)

    async def close(self) -> None:
        """Send what was gathered, ring everybody a last time and forget them. It may be cancelled and called again."""
        self._closed = True
        if self._sender is not None:
            await asyncio.wait([self._sender])
        self._ring_all()
        self._signals.clear()
        if self._waker is not None:
            self._waker.cancel()
            await asyncio.wait([self._waker])
            self._waker = None

    def abandon(self) -> None:
        """End without a word."""
        self._closed = True
        for task in (self._sender, self._waker):
            if task is not None:
                task.cancel()

    def _ring(self, topics: Sequence[Topic]) -> None:
        if self._signals:
            for signal in {signal for topic in topics for signal in self._signals.get(topic, ())}:
                signal.ring()

    def _ring_all(self) -> None:
        self._ring(list(self._signals))

    async def _send(self) -> None:
        try:
            await asyncio.sleep(GATHER_SECONDS)
            while self._pending:
                topics, self._pending = self._pending, set()
                # Hints may be lost, for whatever reason: whoever waits for one also looks by itself now and then.
                with suppress(Exception):
                    for payload in _payloads(self._own, sorted(topics)):
                        await self._pool.ask(_NOTIFY, [self._channel, payload])
                if not self._closed:
                    await asyncio.sleep(REST_SECONDS)
        finally:
            self._sender = None

    async def _listen(self) -> None:
        settings = {"application_name": self._target.application}
        way = Way(self._target, settings, self._target.listen_dsn, metered=False)
        while True:
            try:
                connection = await way.open()
            except PerdureError:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                await self._hear(connection)
            except DRIVER_ERRORS:
                await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                connection.terminate()

    async def _hear(self, connection: Connection) -> None:
        """Listen until the connection is lost."""
        self._lost.clear()
        connection.add_termination_listener(lambda _: self._lost.set())
        await connection.add_listener(self._channel, self._heard)
        self._ring_all()
        await self._lost.wait()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        try:
            sender, topics = msgspec.json.decode(payload, type=tuple[str, list[Topic] | None])
        except msgspec.DecodeError:
            return  # the channel is open to anybody
        if topics is None:
            self._ring_all()
        elif sender != self._own:
            self._ring(topics)

    async def _poll(self) -> None:
        seen: str | None = None
        while True:
            try:
                ((snapshot,),) = await self._pool.ask(_SNAPSHOT)
            except PerdureError:
                snapshot = None
            if snapshot != seen:
                self._ring_all()
            seen = snapshot
            await asyncio.sleep(POLL_SECONDS)


def _payloads(sender: str, topics: Sequence[Topic]) -> list[str]:
    """The topics in as few messages as fit; a flood of them is told as "everything"."""
    payload = msgspec.json.encode((sender, topics))
    if len(payload) <= _PAYLOAD_BYTES:
        return [payload.decode()]
    if len(topics) > 1_000:
        return [msgspec.json.encode((sender, None)).decode()]
    half = len(topics) // 2
    return _payloads(sender, topics[:half]) + _payloads(sender, topics[half:])


class Subscription:
    """What `watch` returns."""

    def __init__(self, hub: Hub, scope: str, topics: Sequence[str]) -> None:
        self._hub = hub
        self._topics = [(scope, topic) for topic in topics]
        self._signal = LoopSignal()
        hub.subscribe(self._topics, self._signal)

    async def wait(self, timeout: float) -> bool:
        """Wait for a hint."""
        return await self._signal.wait(timeout)

    def close(self) -> None:
        """End the subscription."""
        self._hub.unsubscribe(self._topics, self._signal)
