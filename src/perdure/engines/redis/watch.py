"""Wake-up hints: at once for commits of this engine, by one subscription for those of others.

The script of a commit publishes its hints at its end, so nobody hears of what is not written. One connection per
engine listens, only while somebody watches. When the server begins to send a channel, its watchers are rung once, for
what may have been missed before; so they are when the connection was lost and is made again. As long as it cannot be
made everybody is rung every second, which is the polling fallback; a server that accepts and stays silent is given up
and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perdure import limits
from perdure.engines.redis.connections import answers
from perdure.engines.redis.connections.connect import connect
from perdure.engines.redis.connections.connection import Line
from perdure.engines.redis.connections.failures import Lost
from perdure.engines.redis.connections.resp import command
from perdure.engines.redis.connections.routing import Network
from perdure.engines.shared.signals import LoopSignal
from perdure.errors import PerdureError


class Hub:
    """Who watches which channels. `sender` marks our own hints, which were rung already."""

    def __init__(self, network: Network, sender: bytes) -> None:
        self._network = network
        self._sender = sender
        self._signals: dict[bytes, set[LoopSignal]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._line: Line | None = None
        self._heard: set[bytes] = set()

    def publish(self, channels: Iterable[bytes]) -> None:
        """Ring whoever watches one of these channels here."""
        for channel in channels:
            for signal in tuple(self._signals.get(channel, ())):
                signal.ring()

    def subscribe(self, channels: Sequence[bytes], signal: LoopSignal) -> None:
        """Begin to ring `signal`."""
        for channel in channels:
            self._signals.setdefault(channel, set()).add(signal)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen())
        else:
            self._tell()

    def unsubscribe(self, channels: Sequence[bytes], signal: LoopSignal) -> None:
        """Stop ringing `signal`."""
        for channel in channels:
            watchers = self._signals.get(channel, set())
            watchers.discard(signal)
            if not watchers:
                self._signals.pop(channel, None)
        if not self._signals and self._listener is not None:
            self._listener.cancel()
            self._listener = None
        else:
            self._tell()

    def _ring_all(self) -> None:
        self.publish(tuple(self._signals))

    def _tell(self) -> None:
        """Ask the server for the channels that are watched now and were not, and the other way round."""
        line = self._line
        if line is None:
            return
        new, old = self._signals.keys() - self._heard, self._heard - self._signals.keys()
        if new:
            line.send(command(b"SUBSCRIBE", *new))
        if old:
            line.send(command(b"UNSUBSCRIBE", *old))
        self._heard = set(self._signals)

    async def _listen(self) -> None:
        lost = False
        while self._signals:
            try:
                await self._hear()
            except (Lost, PerdureError):
                self._ring_all()
                await asyncio.sleep(limits.FOLLOW_POLL_MS / 1000 if lost else 0)
            lost = True

    async def _hear(self) -> None:
        with self._ringing():
            line = await connect(self._network.target, await self._network.locate())
        try:
            self._line, self._heard = line, set()
            self._tell()
            await line.listen(self._take)
        finally:
            self._line = None
            line.abort()

    def _take(self, came: Any) -> None:
        """What the server said on the connection that listens."""
        try:
            kind, channel, sender = answers.push(came)
        except answers.Misfit as misfit:
            raise Lost(f"what a channel sent {misfit}") from None
        if kind == b"subscribe" or (kind == b"message" and sender != self._sender):
            self.publish((channel,))

    @contextlib.contextmanager
    def _ringing(self) -> Iterator[None]:
        """Ring everybody every second, however long the block takes."""
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def wait() -> None:
            timers[:] = [loop.call_later(limits.FOLLOW_POLL_MS / 1000, ring)]

        def ring() -> None:
            self._ring_all()
            wait()

        wait()
        try:
            yield
        finally:
            timers[0].cancel()

    async def close(self) -> None:
        """Ring everybody a last time and listen no more; may be called again if it was cancelled."""
        self._ring_all()
        self._signals.clear()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener})
            self._listener = None


class Subscription:
    """What `watch` returns."""

    def __init__(self, hub: Hub, channels: Sequence[bytes]) -> None:
        self._hub = hub
        self._channels = channels
        self._signal = LoopSignal()
        hub.subscribe(channels, self._signal)

    async def wait(self, timeout: float) -> bool:
        """Wait for a hint."""
        return await self._signal.wait(timeout)

    def close(self) -> None:
        """End the subscription."""
        self._hub.unsubscribe(self._channels, self._signal)
