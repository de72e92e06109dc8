"""Connections: a free list of held ones, bounded in number, waited for with bounded patience.

Whoever acquires a connection gives it back in every case with `release`; one that broke is dropped there, and so is one
whose transaction somebody left open: cut off, it is rolled back; kept, its next transaction would commit it. After
a server restart every idle connection is dead: the first caller to notice clears them all with `forget_idle`.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.engines.mysql.target import Target
from perdure.engines.mysql.translate import DRIVER_ERRORS, lost, translate
from perdure.engines.mysql.wire import Wire, open_wire
from perdure.errors import PerdureError, UnavailableError
from perdure.kernel.refusals import closed, forked, other_loop

T = TypeVar("T")
RECONNECTS = 3


class Pool:
    """All connections of one engine; they belong to the event loop that opened it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.refusal: Callable[[], PerdureError] | None = None
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(target.connections)
        self._idle: list[Wire] = []
        self._busy: set[Wire] = set()
        self._opened = 0
        self._dropped = 0
        _live.add(self)

    def ready(self) -> None:
        """Raise if the store is closed, was opened before a fork, or belongs to another event loop."""
        if self.refusal is not None:
            raise self.refusal()
        if asyncio.get_running_loop() is not self._loop:
            raise other_loop()

    async def acquire(self) -> Wire:
        """A held connection that is free, else a new one, else the next that comes back."""
        self.ready()
        await self._wait_for_place()
        try:
            wire = self._take_idle() or await self._open()
        except BaseException:
            self._free.release()
            raise
        self._busy.add(wire)
        return wire

    async def _wait_for_place(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self.target.command_timeout):
                await self._free.acquire()
        except TimeoutError:
            raise UnavailableError(
                f"all {self.target.connections} connections to {self.target.shown} stayed busy",
                hint="raise connections= in the URL, or do less at once",
            ) from None

    def _take_idle(self) -> Wire | None:
        while self._idle:
            wire = self._idle.pop()
            if not wire.closed:
                return wire
            self._drop(wire)
        return None

    async def _open(self) -> Wire:
        if self.refusal is not None:
            raise self.refusal()
        wire = await open_wire(self.target)
        self._opened += 1
        return wire

    def release(self, wire: Wire) -> None:
        """Keep a sound connection for the next caller, drop any other."""
        self._busy.discard(wire)
        if wire.closed or wire.in_transaction or self.refusal is not None:
            self._drop(wire)
        else:
            self._idle.append(wire)
        self._free.release()

    def forget_idle(self) -> None:
        """Drop every idle connection: one of them was found dead."""
        while self._idle:
            self._drop(self._idle.pop())

    def _drop(self, wire: Wire) -> None:
        self._dropped += 1
        wire.abort()

    def counters(self) -> dict[str, int]:
        """What `health` shows."""
        held = {"idle": len(self._idle), "busy": len(self._busy)}
        return {"most": self.target.connections, **held, "opened": self._opened, "dropped": self._dropped}

    async def close(self) -> None:
        """Say goodbye on every idle connection; one still in use is cut off when it comes back."""
        if self.refusal is not None:
            return
        self.refusal = closed
        idle, self._idle = self._idle, []
        await asyncio.gather(*[wire.goodbye() for wire in idle])

    def abandon(self) -> None:
        """Cut every connection off where it stands, as the end of the process would."""
        self.refusal = closed
        self.forget_idle()
        for wire in list(self._busy):
            wire.abort()


async def ask(pool: Pool, reading: Callable[[Wire], Awaitable[T]]) -> T:
    """Read on any connection; asked again on a new one when the connection proves dead, as all do after a restart."""
    for _ in range(RECONNECTS):
        try:
            return await _ask_once(pool, reading)
        except DRIVER_ERRORS as error:
            if not lost(error) or isinstance(error, TimeoutError):
                raise translate(error, pool.target.shown) from error
            pool.forget_idle()
    try:
        return await _ask_once(pool, reading)
    except DRIVER_ERRORS as error:
        raise translate(error, pool.target.shown) from error


async def _ask_once(pool: Pool, reading: Callable[[Wire], Awaitable[T]]) -> T:
    wire = await pool.acquire()
    try:
        return await reading(wire)
    finally:
        pool.release(wire)


_live: weakref.WeakSet[Pool] = weakref.WeakSet()
_inherited: list[Pool] = []


def _refuse_in_child() -> None:
    for pool in _live:
        pool.refusal = forked
        # Never collected: closing an inherited connection would speak on a socket that belongs to the parent.
        _inherited.append(pool)


os.register_at_fork(after_in_child=_refuse_in_child)
