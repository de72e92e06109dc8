"""Wake-up hints: by event inside the process, by a small table across processes.

A commit made here rings the watchers of its topics at once. For other processes its topics are written to
`perdure_hints` a moment later, outside the commit and in one batch with those of other commits; a process that watches
polls the table a few times a second. The table keeps the latest rows only: hints may be lost, and every consumer polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from perdure.engines.mysql.connections.driver import Rows
from perdure.engines.mysql.connections.literals import literals
from perdure.engines.mysql.connections.pool import Pool, ask
from perdure.engines.mysql.schema import HINTS, quote
from perdure.engines.shared.hints import HintHub, Watched, hints_of
from perdure.errors import PerdureError
from perdure.ids import new_rev
from perdure.kernel.engine import Topic

FLUSH_SECONDS, POLL_SECONDS = 0.2, 0.3
HINTS_KEPT = 10_000
_TABLE = quote(HINTS)


class Hub(HintHub):
    """Watchers of this process, hints that other processes have yet to get, and the two tasks that carry them."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self._pool = pool
        self._origin = new_rev()
        self._unsent: set[Topic] = set()
        self._sender: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None

    def publish(self, scope: str, topics: Sequence[str]) -> None:
        """After a commit: ring watchers here, and queue the hints for other processes."""
        if not topics:
            return
        hints = hints_of(scope, topics)
        self.ring(hints)
        self._unsent.update(hints)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    def on_subscribe(self, added: Sequence[Watched]) -> None:
        """Poll for hints of other processes as long as anything is watched."""
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())

    async def _send(self) -> None:
        while self._unsent:
            await asyncio.sleep(FLUSH_SECONDS)
            # A hint that cannot be written is lost, which is allowed; the commit itself has its answer.
            with _surviving("sending hints"):
                await self._flush()
        self._sender = None

    async def _flush(self) -> None:
        unsent, self._unsent = self._unsent, set()
        if not unsent:
            return
        rows = ", ".join([f"({self._origin}, {literals(topic)})" for topic in sorted(unsent)])
        oldest = f"CAST(LAST_INSERT_ID() AS SIGNED) - {HINTS_KEPT}"
        try:
            await self._run(
                f"INSERT INTO {_TABLE} (`origin`, `scope`, `topic`) VALUES {rows};"
                f"DELETE FROM {_TABLE} WHERE `id` < {oldest} ORDER BY `id` LIMIT 1000"
            )
        except asyncio.CancelledError:
            self._unsent |= unsent  # the store is closing, and `close` flushes them
            raise

    async def _poll(self) -> None:
        last: int | None = None
        while self.is_watched:
            with _surviving("polling for hints"):
                last = await self._look(last)
            await asyncio.sleep(POLL_SECONDS)
        self._poller = None

    async def _look(self, last: int | None) -> int:
        """Ring for what others have sent since the hint `last`; returns the newest id."""
        if last is None:
            (rows,) = await self._run(f"SELECT COALESCE(MAX(`id`), 0) FROM {_TABLE}")
            self.ring_all()  # for what was sent before the first look
            return int(rows[0][0])
        (rows,) = await self._run(
            f"SELECT `id`, `origin`, `scope`, `topic` FROM {_TABLE} WHERE `id` > {last} ORDER BY `id` LIMIT 1000"
        )
        self.ring({(scope, topic) for _, origin, scope, topic in rows if origin != self._origin})
        return int(rows[-1][0]) if rows else last

    async def _run(self, sql: str) -> list[Rows]:
        return await ask(self._pool, lambda connection: connection.run(sql))

    async def close(self) -> None:
        """Send what is unsent, and ring every watcher a last time."""
        tasks = [task for task in (self._sender, self._poller) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.release_all()
        with suppress(PerdureError):
            await self._flush()


@contextmanager
def _surviving(work: str) -> Iterator[None]:
    """Keep a background task alive: a defect is reported to the event loop, and the next round tries again."""
    try:
        yield
    except PerdureError:
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, the next round may succeed
        asyncio.get_running_loop().call_exception_handler({"message": f"{work} failed", "exception": error})
