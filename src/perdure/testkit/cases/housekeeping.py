"""Cases: housekeeping. What expired or was left unfinished is removed in the background, in a busy or an idle store.

The clients of the kit are opened without housekeeping; these cases put it back on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from perdure import failpoints, limits
from perdure.errors import NotFoundError
from perdure.kernel.ops import Op, Put
from perdure.stores.housekeeping import Housekeeper
from perdure.stores.store import Store
from perdure.testkit.helpers import Died, commit_texts, die, everything
from perdure.testkit.kit import Kit, case, equal, raises
from perdure.testkit.probe import belongs_to, dump


@asynccontextmanager
async def store_with_housekeeping(kit: Kit) -> AsyncIterator[tuple[Store, Housekeeper]]:
    """A client whose housekeeping runs, as `perdure.open` makes it."""
    engine = (await kit.second()).engine
    housekeeper = Housekeeper(engine)
    try:
        yield Store(engine, kit.store.scope, owner=False, housekeeper=housekeeper), housekeeper
    finally:
        await housekeeper.close()


async def idle(housekeeper: Housekeeper) -> None:
    """Wait until housekeeping has nothing to do; the case's deadline ends an endless wait."""
    while housekeeper.busy:  # noqa: ASYNC110 - what is waited for happens in a thread, or in a database
        await asyncio.sleep(0.005)


async def leave_keys(store: Store, count: int) -> None:
    """Keys of thread t, stamped by the engine's clock."""
    columns = {"version": 1, "count": 1, "at": store.engine.clock(), "digest": "d"}  # type: ignore[attr-defined]
    for first in range(0, count, 100):
        some = range(first, min(first + 100, count))
        ops: list[Op] = [Put("keys", ("t", f"old-{number}"), columns, b"[]") for number in some]
        await store.engine.transact(store.scope, ops)


@case("lifecycle", "housekeeping", covers=("store.commit", "threads.delete"))
async def case_housekeeping(kit: Kit) -> None:
    """Using a store is enough: expired keys and half-deleted threads are gone soon, young ones stay."""
    await commit_texts(kit.store, "t", "old")
    await leave_keys(kit.store, 3 * limits.CLEANUP_ROWS + 7)
    kit.clock.advance(limits.KEY_RETENTION_MS + 1)
    await commit_texts(kit.store, "t", "young", key="young")
    await everything(kit.store, "doomed")
    failpoints.arm("delete.after_tombstone", die)
    await raises(Died, kit.store.threads.delete("doomed"))
    async with store_with_housekeeping(kit) as (store, housekeeper):
        await store.threads.get("t")
        await idle(housekeeper)
        left = await dump(store, "doomed")
    equal([row.key for row in left["keys"]], [("t", "young")], "keys")
    equal(sorted(belongs_to(left, "doomed")), ["threads"], "what is left of the deleted thread")
    equal((await commit_texts(kit.store, "t", "young", key="young")).replayed, True, "a young key still holds")
    await raises(NotFoundError, commit_texts(kit.store, "doomed", "late"))


@case("lifecycle", "housekeeping-cancelled-delete", covers=("threads.delete",))
async def case_housekeeping_cancelled_delete(kit: Kit) -> None:
    """A delete that is cancelled after its tombstone need not be called again."""
    async with store_with_housekeeping(kit) as (store, housekeeper):
        await everything(store)
        await idle(housekeeper)
        failpoints.arm("delete.after_tombstone", _cancel)
        await _cancelled(store.threads.delete("t"))
        await idle(housekeeper)
        equal(sorted(belongs_to(await dump(store, "t"), "t")), ["threads"], "what is left of the thread")
        await store.threads.create("t")


def _cancel(_: str) -> None:
    raise asyncio.CancelledError


async def _cancelled(attempt: Awaitable[Any]) -> None:
    try:
        await attempt
    except asyncio.CancelledError:
        return
    raise RuntimeError("it was not cancelled")


@case("lifecycle", "housekeeping-scopes", covers=("store.scoped",))
async def case_housekeeping_scopes(kit: Kit) -> None:
    """Every scope in use is cleaned; an unused one is left alone."""
    tenants = [kit.store.scoped(f"tenant-{number}") for number in range(5)]
    for tenant in tenants:
        await commit_texts(tenant, "t", "old", key="old")
    kit.clock.advance(limits.KEY_RETENTION_MS + 1)
    async with store_with_housekeeping(kit) as (store, housekeeper):
        for tenant in tenants[:-1]:
            await store.scoped(tenant.scope).threads.get("t")
        await idle(housekeeper)
    equal([len((await dump(tenant))["keys"]) for tenant in tenants], [0, 0, 0, 0, 1], "keys, the unused scope last")
