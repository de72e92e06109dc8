"""Wake-up hints: by event inside the process, by a small table across processes.

A commit made here rings the watchers of its own topics at once. For other processes its topics are written to
`perdure_hints` a moment later, outside the commit and together with those of its neighbours; whoever watches looks
there a few times a second. The table keeps the latest rows only: hints may be lost, and every consumer also polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from perdure.engines.mysql.connections.connection import Rows, Wire
from perdure.engines.mysql.connections.literals import literals
from perdure.engines.mysql.connections.pool import Pool, ask
from perdure.engines.mysql.schema import HINTS, quote
from perdure.engines.shared.signals import LoopSignal
from perdure.errors import PerdureError
from perdure.ids import new_rev

Topic = tuple[str, str]

FLUSH_SECONDS, POLL_SECONDS = 0.2, 0.3
KEPT = 10_000
_TABLE = quote(HINTS)


class Hub:
    """Who watches what, what is still to be told to others, and the two tasks that do it."""

    def __init__(self, pool: Pool, *, tells: bool) -> None:
        self._pool = pool
        self._tells = tells
        self._origin = new_rev()
        self._signals: dict[Topic, set[LoopSignal]] = {}
        self._untold: set[Topic] = set()
        self._teller: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None

    def publish(self, scope: str, topics: Sequence[str]) -> None:
        """After a commit: ring watchers here, and remember to tell the others."""
        if not topics:
            return
        named = [(scope, topic) for topic in topics]
        self._ring(named)
        if self._tells:
            self._untold.update(named)
            if self._teller is None:
                self._teller = asyncio.create_task(self._tell())

    def _ring(self, topics: Iterable[Topic]) -> None:
        for signal in {signal for topic in topics for signal in self._signals.get(topic, ())}:
            signal.ring()

    def subscribe(self, topics: Sequence[Topic], signal: LoopSignal) -> None:
        """Begin to ring `signal`."""
        for topic in topics:
            self._signals.setdefault(topic, set()).add(signal)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())

    def unsubscribe(self, topics: Sequence[Topic], signal: LoopSignal) -> None:
        """Stop ringing `signal`."""
        for topic in topics:
            watchers = self._signals.get(topic, set())
            watchers.discard(signal)
            if not watchers:
                self._signals.pop(topic, None)

    async def _tell(self) -> None:
        while self._untold:
            await asyncio.sleep(FLUSH_SECONDS)
            # A hint that cannot be written is a hint lost, which is allowed; the commit itself has its answer.
            with _surviving("telling others of commits"):
                await self._flush()
        self._teller = None

    async def _flush(self) -> None:
        untold, self._untold = self._untold, set()
        if not untold:
            return
        rows = ", ".join([f"({self._origin}, {literals(topic)})" for topic in sorted(untold)])

        async def write(wire: Wire) -> None:
            trim = (
                f"DELETE FROM {_TABLE} WHERE `id` < CAST(LAST_INSERT_ID() AS SIGNED) - {KEPT} ORDER BY `id` LIMIT 1000"
            )
            await wire.run(f"INSERT INTO {_TABLE} (`origin`, `scope`, `topic`) VALUES {rows};{trim}")

        try:
            await ask(self._pool, write)
        except asyncio.CancelledError:
            self._untold |= untold  # the store is being closed, which tells them itself
            raise

    async def _poll(self) -> None:
        seen: int | None = None
        while self._signals:
            with _surviving("looking for commits of others"):
                seen = await self._look(seen)
            await asyncio.sleep(POLL_SECONDS)
        self._poller = None

    async def _look(self, seen: int | None) -> int:
        """Ring for what others have told since `seen`; where we have reached now."""
        if seen is None:
            ((((last,),)),) = await self._ask(f"SELECT COALESCE(MAX(`id`), 0) FROM {_TABLE}")
            self._ring(list(self._signals))  # for what was told before the first look
            return int(last)
        (rows,) = await self._ask(
            f"SELECT `id`, `origin`, `scope`, `topic` FROM {_TABLE} WHERE `id` > {seen} ORDER BY `id` LIMIT 1000"
        )
        self._ring({(scope, topic) for _, origin, scope, topic in rows if origin != self._origin})
        return int(rows[-1][0]) if rows else seen

    async def _ask(self, sql: str) -> list[Rows]:
        return await ask(self._pool, lambda wire: wire.run(sql))

    async def close(self) -> None:
        """Tell what is untold, ring everybody a last time and forget them."""
        tasks = [task for task in (self._teller, self._poller) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._ring(list(self._signals))
        self._signals.clear()
        with suppress(PerdureError):
            await self._flush()


@contextmanager
def _surviving(work: str) -> Iterator[None]:
    """A task that ended with a defect would never work again: tell of it where loops tell of such things, and go on."""
    try:
        yield
    except PerdureError:
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, the next round may succeed
        asyncio.get_running_loop().call_exception_handler({"message": f"{work} failed", "exception": error})


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
