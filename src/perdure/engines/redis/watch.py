"""Wake-up hints: rung at once for commits of this engine, and through one subscription for those of others.

The script of a commit publishes its hints at its end, so a hint never precedes its data. One connection per engine
listens, and only while something is watched. When the server starts to send a channel, its watchers are rung once, for
hints that may have been missed before; the same happens after a lost connection is made again. While it cannot be made,
all watchers are rung every second, which is the polling fallback; a server that accepts and stays silent is dropped and
tried again.

The payload of a hint is its sender. Hints on a fixed topic are also published on a channel that all scopes share; their
payload is the sender, a space and the scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from perdure import limits
from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.borrowed_listener import BorrowedListener
from perdure.engines.redis.connections.connection import Connection
from perdure.engines.redis.connections.failures import Lost
from perdure.engines.redis.connections.resp import command
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.schema.layout import Layout
from perdure.engines.shared.hints import HintHub, Watched
from perdure.errors import PerdureError


class Hub(HintHub):
    """Watchers of this engine. `sender` marks its own hints, which were rung at the commit."""

    def __init__(self, network: Network, layout: Layout, sender: bytes) -> None:
        super().__init__()
        self._network = network
        self._layout = layout
        self._sender = sender
        self._listener: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._connection: Connection | BorrowedListener | None = None
        self._names: dict[bytes, Watched] = {}
        """What is watched, by its channel."""

    def on_subscribe(self, added: Sequence[Watched]) -> None:
        """Start to listen, or subscribe to the new channels."""
        names = {self._channel(watched): watched for watched in added}
        self._names.update(names)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen())
        else:
            self._send(b"SUBSCRIBE", names)

    def on_unsubscribe(self, removed: Sequence[Watched]) -> None:
        """Stop listening if nothing is watched, or unsubscribe from the channels that are no longer watched."""
        channels = [self._channel(watched) for watched in removed]
        for channel in channels:
            self._names.pop(channel, None)
        if self.is_watched or self._listener is None:
            self._send(b"UNSUBSCRIBE", channels)
        else:
            self._stop(self._listener)

    def _channel(self, watched: Watched) -> bytes:
        scope, topic = watched
        return self._layout.channel_of_all(topic) if scope is None else self._layout.channel(scope, topic)

    def _send(self, name: bytes, channels: Collection[bytes]) -> None:
        if self._connection is not None and channels:
            self._connection.send(command(name, *channels))

    def _stop(self, listener: asyncio.Task[None]) -> None:
        """Cancel a listener. It may be connecting, so it is remembered until its connection is closed,
        or back in a caller's pool."""
        self._stopping.add(listener)
        listener.add_done_callback(self._stopping.discard)
        listener.cancel()
        self._listener = None

    async def _listen(self) -> None:
        reconnecting = False
        while self.is_watched:
            try:
                await self._receive()
            except (Lost, PerdureError) as error:
                self._network.log.stopped_listening(error)
                self.ring_all()
                await asyncio.sleep(limits.FOLLOW_POLL_MS / 1000 if reconnecting else 0)
            reconnecting = True

    async def _receive(self) -> None:
        polling = asyncio.get_running_loop().create_task(self._poll())
        try:
            connection = await self._network.listener()
        finally:
            polling.cancel()
        try:
            self._connection = connection
            self._send(b"SUBSCRIBE", self._names)
            self._network.log.listening()
            await connection.listen(self._on_message)
        finally:
            self._connection = None
            connection.abort()

    def _on_message(self, message: Any) -> None:
        try:
            kind, channel, payload = reply_shapes.push(message)
        except reply_shapes.Misfit as misfit:
            raise Lost(f"a message on a channel {misfit}") from None
        watched = self._names.get(channel)
        if watched is None:
            return
        if kind == b"subscribe":
            self._ring_watched(watched, b"")
        elif kind == b"message" and type(payload) is bytes:
            sender, _, scope = payload.partition(b" ")
            if sender != self._sender:
                self._ring_watched(watched, scope)

    def _ring_watched(self, watched: Watched, scope: bytes) -> None:
        """Ring whoever watches this; in every scope, the hint names one, or it may be any."""
        name, topic = watched
        if name is None:
            name = scope.decode(errors="ignore")
        if name:
            self.ring([(name, topic)])
        else:
            self.ring_all([watched])

    async def _poll(self) -> None:
        """Ring all watchers every second."""
        while True:
            await asyncio.sleep(limits.FOLLOW_POLL_MS / 1000)
            self.ring_all()

    async def close(self) -> None:
        """Ring all watchers a last time and stop listening; may be called again if it was cancelled."""
        self.release_all()
        if self._listener is not None:
            self._stop(self._listener)
        while self._stopping:
            await asyncio.wait(self._stopping)
        self._listener = None
