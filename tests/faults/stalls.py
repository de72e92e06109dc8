"""Connections that say nothing: every call ends in a bounded time, and a commit by its key has one effect.

    python -m tests.faults.stalls --engine redis --rounds 5

A server that is gone without a word (half-open), one that hangs, a slow network: a round goes through each of them with
a store whose patience is set to a second in its URL. What never comes must end in `OutcomeUnknown` or
`UnavailableError`, after which the same store goes on by itself; what passes slowly must succeed, with the patience of
every day.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.faults.link import Link
from tests.faults.shell import UNCERTAIN, FaultFound, Figures, audit, bounded, insist, main, opened, parser_of, tell
from tests.support.servers import Server, server

import perdure
from perdure import Message, Receipt, Store
from perdure.errors import OutcomeUnknown, UnavailableError

IMPATIENT = "command_timeout=1&connect_timeout=1"
PATIENT = "command_timeout=60&connect_timeout=60"
THREAD = "stalled"


class Stalls:
    """One server, the link to it, and what the thread must hold by now."""

    def __init__(self, real: Server) -> None:
        self.real = real
        self.expected: list[str] = []
        self.figures: collections.Counter[str] = collections.Counter()
        self.longest = 0.0

    @asynccontextmanager
    async def behind_a_link(self, patience: str = IMPATIENT) -> AsyncIterator[tuple[Store, Link]]:
        """A store, warm, behind a link of its own."""
        async with Link.to(self.real.url) as link:
            joined = "&" if "?" in link.url else "?"
            store = await insist(lambda: perdure.open(f"{link.url}{joined}{patience}"), "opening")
            try:
                await insist(lambda: self.commit(store), "the first commit")
                yield store, link
            finally:
                await bounded(store.close(), "closing a store after a stall")

    async def commit(self, store: Store, name: str | None = None) -> Receipt:
        """One more message, by its key."""
        name = f"m-{len(self.expected)}" if name is None else name
        receipt = await store.commit(THREAD, messages=[Message.user("m", id=name)], state={"n": name}, key=name)
        if name not in self.expected:
            self.expected.append(name)
        return receipt

    async def uncertain(self, store: Store, link: Link) -> None:
        """A commit that gets no answer, and the same commit over the link when it is well again."""
        name, first, unknown = f"m-{len(self.expected)}", None, False
        begun = time.monotonic()
        try:
            first = await bounded(self.commit(store, name), "a commit that gets no answer")
        except UNCERTAIN as error:
            unknown = isinstance(error, OutcomeUnknown)
        self.longest = max(self.longest, time.monotonic() - begun)
        await link.heal()
        self.figures["outcome unknown" if unknown else "unavailable" if first is None else "answered"] += 1
        second, doubtful = await self._again(store, name)
        unknown = unknown or doubtful
        if (second.replayed != (first is not None) and not unknown) or second.seqs != [len(self.expected)]:
            raise FaultFound(f"first {first}, unknown {unknown}, then {second}")

    async def _again(self, store: Store, name: str) -> tuple[Receipt, bool]:
        """The same commit until it is answered, and whether one of these tries may have landed unseen: the server may
        still be silent, and a second is not long."""
        doubtful = False

        async def once() -> Receipt:
            nonlocal doubtful
            try:
                return await self.commit(store, name)
            except OutcomeUnknown:
                doubtful = True
                raise

        return await insist(once, "the same commit afterwards"), doubtful

    async def refused(self, work: Callable[[], Awaitable[Any]], what: str) -> None:
        """A call that cannot succeed, and must not take for ever."""
        begun = time.monotonic()
        try:
            await bounded(work(), what)
        except UnavailableError:
            self.longest = max(self.longest, time.monotonic() - begun)
            self.figures["refused in time"] += 1
            return
        raise FaultFound(f"{what} succeeded over a link that carries nothing")


async def _silent_in_mid_commit(stalls: Stalls) -> None:
    async with stalls.behind_a_link() as (store, link):
        link.proxy.half_open()
        await stalls.uncertain(store, link)


async def _silent_while_reading(stalls: Stalls) -> None:
    async with stalls.behind_a_link() as (store, link):
        link.proxy.half_open()
        await stalls.refused(lambda: store.load(THREAD), "a read over a silent link")
        await link.heal()
        await insist(lambda: store.load(THREAD), "reading again")


async def _silent_from_the_start(stalls: Stalls) -> None:
    async with Link.to(stalls.real.url) as link:
        link.proxy.half_open()
        joined = "&" if "?" in link.url else "?"
        await stalls.refused(lambda: _open(f"{link.url}{joined}{IMPATIENT}"), "opening over a silent link")


async def _open(url: str) -> None:
    store = await perdure.open(url)
    await store.close()


async def _away(stalls: Stalls) -> None:
    """The server cannot be reached for a while, and then it can."""
    async with stalls.behind_a_link() as (store, link):
        await asyncio.to_thread(link.proxy.drop)
        back = asyncio.create_task(_back_soon(link))
        await stalls.uncertain(store, link)
        await back


async def _back_soon(link: Link) -> None:
    await asyncio.sleep(0.3)
    await asyncio.to_thread(link.proxy.restart)


async def _closed_over_silence(stalls: Stalls) -> None:
    async with stalls.behind_a_link() as (_, link):
        link.proxy.half_open()


async def _slow(stalls: Stalls) -> None:
    async with stalls.behind_a_link(PATIENT) as (store, link):
        link.proxy.delay(0.05)
        for _ in range(3):
            await bounded(stalls.commit(store), "a commit over a slow link")
        stalls.figures["slow commits"] += 3


async def _hung_server(stalls: Stalls) -> None:
    """The server's processes are stopped for a while: nothing answers, and nothing is lost."""
    async with stalls.behind_a_link() as (store, link):
        family = _family(stalls.real)
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        waking = asyncio.get_running_loop().call_later(3.0, _wake, family)
        try:
            await stalls.uncertain(store, link)
        finally:
            waking.cancel()
            _wake(family)


def _wake(family: list[int]) -> None:
    for pid in family:
        with contextlib.suppress(ProcessLookupError):  # a connection's process may have ended
            os.kill(pid, signal.SIGCONT)


def _family(real: Server) -> list[int]:
    if real.pid is None:
        raise FaultFound("the server is not ours to stop")
    children: dict[int, list[int]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208 - names alone
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123 - not a file of anybody's
                children.setdefault(int(stat.read().rpartition(")")[2].split()[1]), []).append(pid)
        except OSError:
            continue
    found = [real.pid]
    for pid in found:
        found += children.get(pid, [])
    return found


STALLS = (
    _silent_in_mid_commit,
    _silent_while_reading,
    _silent_from_the_start,
    _away,
    _closed_over_silence,
    _slow,
    _hung_server,
)


async def run(asked: argparse.Namespace) -> Figures:
    """The program."""
    stalls = Stalls(server(asked.engine, durable=True))
    for number in range(1, asked.rounds + 1):
        for stall in STALLS:
            try:
                await stall(stalls)
            except FaultFound as found:
                raise FaultFound(f"{stall.__name__.strip('_')}: {found}") from found
        tell("progress", number)
    async with opened(stalls.real.url) as store:
        stored = [record.message_id for record in await store.messages.history(THREAD)]
        if stored != stalls.expected:
            raise FaultFound(f"stored {stored}, made {stalls.expected}")
    await audit(stalls.real.url)
    return {"rounds": asked.rounds, "stalls": asked.rounds * len(STALLS), **stalls.figures,
            "longest wait s": round(stalls.longest, 1)}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main("tests.faults.stalls", run, parser_of(__doc__, "rounds", 1)))
