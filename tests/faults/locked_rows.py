"""Rows that somebody else keeps locked: those who wait for them hold up nobody else.

    python -m tests.faults.locked_rows --engine mysql --rounds 3

A stranger locks the hot rows of twelve threads, more than a store has connections, and a commit waits for each. While
all twelve wait, a read is answered before even one of them has given its connection back, and a commit on another
thread goes through. Once the stranger lets go, each of the twelve lands exactly once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.engines.mysql_place import sql, stranger
from tests.faults.shell import FaultFound, Figures, audit, bounded, insist, main, opened, parser_of, tell
from tests.support.servers import fresh_database, server

from perdure import Message, Receipt, Store
from perdure.engines.mysql.connections.connection import Wire

LOCKED = [f"locked-{n}" for n in range(12)]
FREE = "free"
ATTEMPTS = 10
"""How often a read may be overtaken by a machine that stood still for as long as a lock is waited for."""
_WAITING = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"


async def _commit(store: Store, thread: str, name: str) -> Receipt:
    return await store.commit(thread, messages=[Message.user("m", id=name)], key=name)


@asynccontextmanager
async def _held(url: str) -> AsyncIterator[Wire]:
    """The rows of the twelve threads, locked by somebody else."""
    other = await stranger(url)
    try:
        listed = ", ".join(f"'{thread}'" for thread in LOCKED)
        await other.run(f"START TRANSACTION; SELECT rev FROM thread_heads WHERE thread IN ({listed}) FOR UPDATE")
        yield other
    finally:
        other.abort()


async def _retried(store: Store) -> int:
    return int((await store.health()).settings["retried"])


async def _read_meanwhile(store: Store, url: str, name: str) -> list[asyncio.Task[Receipt]] | None:
    """Twelve commits that wait, if a read was answered before any of them ended its first wait."""
    before = await _retried(store)
    waiting = [asyncio.create_task(_commit(store, thread, name)) for thread in LOCKED]
    while (await sql(url, f"DO SLEEP(0.01); {_WAITING}"))[0][0][0] < 6:
        _refuse_ended(waiting)
    await bounded(store.threads.get(FREE), "a read while commits wait for locks")
    _refuse_ended(waiting)
    if await _retried(store) == before:
        return waiting
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return None


def _refuse_ended(waiting: list[asyncio.Task[Receipt]]) -> None:
    for task in waiting:
        if task.done():
            raise FaultFound(f"a commit ended although its row is locked: {task.exception() or task.result()}")


async def _waiting(store: Store, url: str, name: str) -> tuple[list[asyncio.Task[Receipt]], int]:
    for attempt in range(1, ATTEMPTS + 1):
        waiting = await _read_meanwhile(store, url, name)
        if waiting is not None:
            return waiting, attempt
    raise FaultFound(f"in {ATTEMPTS} attempts no read was answered before a commit stopped waiting")


async def _round(store: Store, url: str, name: str) -> int:
    """One round; returns how many attempts the read took."""
    async with _held(url) as other:
        waiting, attempts = await _waiting(store, url, name)
        commit = asyncio.create_task(_commit(store, FREE, name))
        await asyncio.wait([commit, *waiting], return_when=asyncio.FIRST_COMPLETED)
        _refuse_ended(waiting)
        await commit
        await other.run("ROLLBACK")
        receipts = await bounded(asyncio.gather(*waiting), "commits whose rows are free again")
    if any(receipt.replayed for receipt in receipts):
        raise FaultFound("a commit that waited for a lock had landed before")
    return attempts


async def run(asked: argparse.Namespace) -> Figures:
    """Every round on one store with the default number of connections."""
    if asked.engine != "mysql":
        raise FaultFound("only mysql is asked here: postgres waits for locks in batches, redis has none")
    url = await fresh_database(server("mysql"), "locked")
    attempts = 0
    async with opened(url) as store:
        for thread in (FREE, *LOCKED):
            await insist(lambda thread=thread: store.threads.create(thread), "making a thread")
        tell("total", asked.rounds)
        for n in range(asked.rounds):
            attempts += await bounded(_round(store, url, f"round-{n}"), "a round")
            tell("progress", n + 1)
        for thread in (FREE, *LOCKED):
            length = len((await store.messages.list(thread)).items)
            if length != asked.rounds:
                raise FaultFound(f"{thread} holds {length} messages after {asked.rounds} rounds")
    return {"rounds": asked.rounds, "reads": attempts, "threads": await audit(url)}


if __name__ == "__main__":
    sys.exit(main("tests.faults.locked_rows", run, parser_of(__doc__, "rounds", 3)))
