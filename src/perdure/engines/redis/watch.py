"""Wake-up hints: rung at once for commits of this engine, and through one subscription for those of others.

The script of a commit publishes its hints at its end, so a hint never precedes its data. One connection per engine
listens, and only while something is watched. When the server starts to send a channel, its watchers are rung once, for
hints that may have been missed before; the same happens after a lost connection is made again. While it cannot be made,
all watchers are rung every second, which is the polling fallback; a server that accepts and stays silent is dropped and
tried again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import limits
from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.borrowed_listener import BorrowedListener
from perdure.engines.redis.connections.connection import Connection
from perdure.engines.redis.connections.failures import Lost
from perdure.engines.redis.connections.resp import command
from perdure.engines.redis.connections.routing import Network
from perdure.engines.shared.hints import HintHub
from perdure.errors import PerdureError


class Hub(HintHub[bytes]):
    """Watchers by channel. `sender` marks the hints of this engine, which were rung at the commit."""

    def __init__(self, network: Network, sender: bytes) -> None:
        super().__init__()
        self._network = network
        self._sender = sender
        self._listener: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._connection: Connection | BorrowedListener | None = None
        self._subscribed: set[bytes] = set()

    def on_subscribe(self) -> None:
        """Start to listen, or subscribe to the new channels."""
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen())
        else:
            self._update_channels()

    def on_unsubscribe(self) -> None:
        """Stop listening if nothing is watched, or unsubscribe from the channels that are no longer watched."""
        if self.is_watched or self._listener is None:
            self._update_channels()
        else:
            self._stop(self._listener)

    def _stop(self, listener: asyncio.Task[None]) -> None:
        """Cancel a listener. It may be connecting, so it is remembered until its connection is closed,
        or back in a caller's pool."""
        self._stopping.add(listener)
        listener.add_done_callback(self._stopping.discard)
        listener.cancel()
        self._listener = None

    def _update_channels(self) -> None:
        """Subscribe to what is watched and was not, and the reverse."""
        connection = self._connection
        if connection is None:
            return
        watched = set(self.topics)
        added, removed = watched - self._subscribed, self._subscribed - watched
        if added:
            connection.send(command(b"SUBSCRIBE", *added))
        if removed:
            connection.send(command(b"UNSUBSCRIBE", *removed))
        self._subscribed = watched

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
            self._connection, self._subscribed = connection, set()
            self._update_channels()
            self._network.log.listening()
            await connection.listen(self._on_message)
        finally:
            self._connection = None
            connection.abort()

    def _on_message(self, message: Any) -> None:
        try:
            kind, channel, sender = reply_shapes.push(message)
        except reply_shapes.Misfit as misfit:
            raise Lost(f"a message on a channel {misfit}") from None
        if kind == b"subscribe" or (kind == b"message" and sender != self._sender):
            self.ring((channel,))

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
