"""Wake-up hints: by event inside the process, by NOTIFY between processes, by polling where LISTEN is impossible.

A commit wakes the watchers of its own process at once. For other processes its topics are gathered for a few
milliseconds, under load for some more, and sent with one `pg_notify`, on a connection of the pool and in a separate
transaction that does not wait for the disk: a busy writer pays for forty of them a second, not for one per commit. One
connection per engine listens; it opens with the first watcher and again when it is lost. Whenever it begins to listen,
every watcher is rung once, for hints that were missed before.

Where LISTEN is impossible (behind a pooler, with a caller's pool), the engine asks the server a few times a second
whether any transaction has ended since; the answer does not say which, so it rings every watcher.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.engines.postgres.connections.connect import Connection, Connector
from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.errors import DRIVER_ERRORS
from perdure.engines.postgres.target import Target
from perdure.engines.shared.hints import HintHub, Watched, hints_of
from perdure.errors import PerdureError
from perdure.ids import new_rev
from perdure.kernel.engine import Topic

GATHER_SECONDS = 0.003
REST_SECONDS = 0.025
POLL_SECONDS = 0.1
_PAUSE_SECONDS = 0.5
_PAYLOAD_BYTES = 7_500
_NOTIFY = "SELECT pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.pg_notify($1, $2)"
_SNAPSHOT = "SELECT pg_catalog.pg_current_snapshot()::text"


class NotifyHub(HintHub):
    """The watchers of this process, connected to other processes by NOTIFY, or by polling."""

    def __init__(self, pool: Pool, target: Target, *, listens: bool) -> None:
        super().__init__()
        self._pool = pool
        self._target = target
        self._listens = listens
        self._channel = "perdure_" + hashlib.sha256(target.schema.encode()).hexdigest()[:16]
        self._sender_id = f"{new_rev():x}"
        self._pending: set[Topic] = set()
        self._sender: asyncio.Task[None] | None = None
        self._waker: asyncio.Task[None] | None = None
        self._closed = False

    def publish(self, scope: str, hints: Sequence[str]) -> None:
        """After a commit: wake the watchers here, and notify other processes soon."""
        topics = hints_of(scope, hints)
        if self.is_watched:
            self.ring(topics)
        self._pending.update(topics)
        if self._sender is None and not self._closed:
            self._sender = asyncio.create_task(self._send())

    def on_subscribe(self, added: Sequence[Watched]) -> None:
        """Start to listen, or to poll, with the first watcher."""
        if self._waker is None and not self._closed:
            self._waker = asyncio.create_task(self._listen() if self._listens else self._poll())

    async def close(self) -> None:
        """Send what was gathered and release every watcher. It may be cancelled and called again."""
        self._closed = True
        if self._sender is not None:
            await asyncio.wait([self._sender])
        self.release_all()
        if self._waker is not None:
            self._waker.cancel()
            await asyncio.wait([self._waker])
            self._waker = None

    def abandon(self) -> None:
        """Stop at once, without sending anything."""
        self._closed = True
        for task in (self._sender, self._waker):
            if task is not None:
                task.cancel()

    async def _send(self) -> None:
        try:
            await asyncio.sleep(GATHER_SECONDS)
            while self._pending:
                topics, self._pending = self._pending, set()
                # Hints may be lost, for whatever reason: every consumer also polls now and then.
                with suppress(Exception):
                    for payload in _payloads(self._sender_id, sorted(topics)):
                        await self._pool.query(_NOTIFY, [self._channel, payload])
                if not self._closed:
                    await asyncio.sleep(REST_SECONDS)
        finally:
            self._sender = None

    async def _listen(self) -> None:
        settings = {"application_name": self._target.application}
        connector = Connector(self._target, settings, self._target.listen_dsn, metered=False)
        while True:
            try:
                connection = await connector.open()
            except PerdureError as error:
                self._pool.log.stopped_listening(error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                await self._listen_on(connection)
            except DRIVER_ERRORS as error:
                self._pool.log.stopped_listening(error)
                await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                connection.terminate()

    async def _listen_on(self, connection: Connection) -> None:
        """Listen until the connection is lost."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(self._channel, self._on_notification)
        self._pool.log.listening()
        self.ring_all()
        await lost.wait()
        self._pool.log.stopped_listening(ConnectionError())

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        try:
            sender, topics = msgspec.json.decode(payload, type=tuple[str, list[Topic] | None])
        except msgspec.DecodeError:
            return  # any session of the database may notify this channel
        if topics is None:
            self.ring_all()
        elif sender != self._sender_id:
            self.ring(topics)

    async def _poll(self) -> None:
        previous: str | None = None
        self._pool.log.polls()
        while True:
            try:
                ((snapshot,),) = await self._pool.query(_SNAPSHOT)
            except PerdureError:
                snapshot = None
            if snapshot != previous:
                self.ring_all()
            previous = snapshot
            await asyncio.sleep(POLL_SECONDS)


def _payloads(sender: str, topics: Sequence[Topic]) -> list[str]:
    """The topics in as few messages as fit; a flood of them is sent as "everything"."""
    payload = msgspec.json.encode((sender, topics))
    if len(payload) <= _PAYLOAD_BYTES:
        return [payload.decode()]
    if len(topics) > 1_000:
        return [msgspec.json.encode((sender, None)).decode()]
    half = len(topics) // 2
    return _payloads(sender, topics[:half]) + _payloads(sender, topics[half:])
