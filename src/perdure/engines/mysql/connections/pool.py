"""Connections: a free list of held ones, bounded in number, waited for in turn and with bounded patience.

Whoever acquires a connection gives it back in every case with `release`; one that broke is dropped there, and so is one
whose transaction somebody left open: cut off, it is rolled back; kept, its next transaction would commit it. After
a server restart every idle connection is dead: the first caller to notice clears them all with `forget_idle`.

A firewall may drop an idle connection without telling either side. One that has idled for long is therefore tried
before it is used, with little patience: without that, a commit would wait for `command_timeout` and end as unknown.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.engines.mysql.connections.connection import Wire, open_wire
from perdure.engines.mysql.connections.permits import Places, Use
from perdure.engines.mysql.errors import DRIVER_ERRORS, lost, translate
from perdure.engines.mysql.target import Target
from perdure.errors import PerdureError, UnavailableError
from perdure.kernel.lifecycle import closed, forked, other_loop

T = TypeVar("T")
RECONNECTS = 3
IDLE_SECONDS = 20.0
"""A connection that was not used for so long is tried first. Firewalls that drop idle ones take a minute and more."""
TRIAL_SECONDS = 2.0


class Pool:
    """All connections of one engine; they belong to the event loop that opened it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.refusal: Callable[[], PerdureError] | None = None
        self._loop = asyncio.get_running_loop()
        self._places = Places(target.connections)
        self._idle: list[Wire] = []
        self._busy: dict[Wire, Use] = {}
        self._opened = 0
        self._dropped = 0
        _live.add(self)

    def ready(self) -> None:
        """Raise if the store is closed, was opened before a fork, or belongs to another event loop."""
        if self.refusal is not None:
            raise self.refusal()
        if asyncio.get_running_loop() is not self._loop:
            raise other_loop()

    async def acquire(self, use: Use = "read") -> Wire:
        """A held connection that is free, else a new one, else the next that comes back; `use` is for `Places`."""
        self.ready()
        try:
            await self._places.take(use, self.target.command_timeout)
        except TimeoutError:
            raise UnavailableError(
                f"all {self.target.connections} connections to {self.target.shown} stayed busy",
                hint="raise connections= in the URL, or do less at once",
            ) from None
        try:
            wire = await self._take_idle() or await self._open()
        except BaseException:
            self._places.give_back(use)
            raise
        self._busy[wire] = use
        return wire

    async def _take_idle(self) -> Wire | None:
        while self._idle:
            wire = self._idle.pop()
            if wire.closed:
                self._drop(wire)
            elif wire.idle_seconds < IDLE_SECONDS or await self._answers(wire):
                return wire
        return None

    async def _answers(self, wire: Wire) -> bool:
        """Try a connection that has idled for long; if it is dead, so are those that have idled for longer."""
        try:
            await wire.run("DO 0", timeout=TRIAL_SECONDS)
        except DRIVER_ERRORS:
            self._drop(wire)
            self.forget_idle(IDLE_SECONDS)
            return False
        except BaseException:
            self._drop(wire)
            raise
        return True

    async def _open(self) -> Wire:
        if self.refusal is not None:
            raise self.refusal()
        wire = await open_wire(self.target)
        self._opened += 1
        return wire

    def release(self, wire: Wire) -> None:
        """Keep a sound connection for the next caller, drop any other."""
        use = self._busy.pop(wire)
        if wire.closed or wire.in_transaction or self.refusal is not None:
            self._drop(wire)
        else:
            self._idle.append(wire)
        self._places.give_back(use)

    def forget_idle(self, seconds: float = 0.0) -> None:
        """Drop every connection that has idled for so long: one of them was found dead."""
        idle, self._idle = self._idle, []
        for wire in idle:
            if wire.idle_seconds < seconds:
                self._idle.append(wire)
            else:
                self._drop(wire)

    def _drop(self, wire: Wire) -> None:
        self._dropped += 1
        wire.abort()

    def counters(self) -> dict[str, int]:
        """What `health` shows."""
        held = {"idle": len(self._idle), "busy": len(self._busy)}
        return {"most": self.target.connections, **held, "opened": self._opened, "dropped": self._dropped}

    async def close(self) -> None:
        """Say goodbye on every idle connection; one still in use is cut off when it comes back."""
        if self.refusal is None:
            self.refusal = closed
        idle, self._idle = self._idle, []
        try:
            await asyncio.gather(*[wire.goodbye() for wire in idle])
        except BaseException:
            for wire in idle:
                wire.abort()  # a goodbye that had not begun when this was cancelled never will
            raise

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
