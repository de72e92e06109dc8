"""Cases: lists that are read in parts. Roots and children are groups of one index, older rows a third one."""

from __future__ import annotations

from functools import partial
from typing import Any

from perdure.audit import verify_engine
from perdure.kernel.ops import Op, Patch, Scan
from perdure.model.thread import Thread
from perdure.testkit.helpers import paged_ids
from perdure.testkit.kit import Kit, case, collect, equal

FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"root": True},
    {"resource_id": "u-0"},
    {"resource_id": "u-1", "root": True},
    {"resource_id": "u-0", "parent_thread_id": "t00"},
    {"parent_thread_id": "t00"},
)


async def plant(kit: Kit, count: int = 24) -> None:
    """Threads with and without parents and resources, some of them created or changed in the same millisecond."""
    for n in range(count):
        kit.clock.advance(n % 3 - 1)
        await kit.store.threads.create(
            f"t{n:02}",
            resource_id=f"u-{n % 3}" if n % 3 < 2 else None,
            parent_thread_id=("t00", "t01")[n % 2] if n % 5 < 3 and n > 1 else None,
        )
    for n in range(0, count, 4):
        kit.clock.advance(n % 2)
        await kit.store.threads.update(f"t{n:02}", title="later")


async def forget_child(kit: Kit, *threads: str) -> None:
    """Leave hot rows as a version without the column `child` wrote them."""
    ops: list[Op] = [Patch("thread_heads", (thread,), {"child": None}) for thread in threads]
    await kit.store.engine.transact(kit.store.scope, ops)


def selected(threads: list[Thread], order: str, **filters: Any) -> list[str]:
    """The ids that a list must show, from all threads."""
    chosen = [
        thread
        for thread in threads
        if filters.get("resource_id") in (None, thread.resource_id)
        and filters.get("parent_thread_id") in (None, thread.parent_thread_id)
        and not (filters.get("root") and thread.parent_thread_id)
    ]
    at = "updated_at" if order == "active" else "created_at"
    return [thread.id for thread in sorted(chosen, key=lambda t: (getattr(t, at), t.id), reverse=True)]


async def expect_lists(kit: Kit, what: str) -> None:
    """Every list shows exactly its threads, in order, in pages of any size."""
    (rows,) = await kit.store.engine.view(kit.store.scope, [Scan("thread_heads")])
    threads = [await kit.store.threads.get(str(row.key[0])) for row in rows]
    for filters in FILTERS:
        for order in ("active", "created"):
            listed = selected(threads, order, **filters)
            for limit in (1, 3, 50):
                ask = partial(kit.store.threads.list, **filters, order=order)
                equal(await paged_ids(ask, limit), listed, f"{what}: {filters} {order} {limit}")


@case("threads", "list-merged", covers=("threads.list",))
async def case_merged(kit: Kit) -> None:
    """Roots and children appear in one order, with ties on the clock; a thread that moves changes lists at once."""
    await plant(kit)
    await expect_lists(kit, "as created")
    await kit.store.threads.update("t02", parent_thread_id=None)
    await kit.store.threads.update("t09", parent_thread_id="t00")
    await kit.store.threads.delete("t01", strategy="detach")
    await expect_lists(kit, "after moves")


@case("threads", "list-older-rows", covers=("threads.list",))
async def case_older_rows(kit: Kit) -> None:
    """Rows of an older version are listed like any other, before, while and after housekeeping fills them in."""
    await plant(kit)
    older = [f"t{n:02}" for n in range(24)]
    await forget_child(kit, *older)
    await expect_lists(kit, "all are older")
    equal(await verify_engine(kit.store.engine), [], "the audit")
    await kit.store.threads.update("t05", parent_thread_id="t00")
    await kit.store.threads.create("new", resource_id="u-0")
    await kit.store.threads.delete("t01", strategy="detach")
    await expect_lists(kit, "some are older")
    before = await collect(kit.store.threads.iter())
    await kit.sweep()
    await expect_lists(kit, "none is older")
    equal(await collect(kit.store.threads.iter()), before, "nothing that is shown has changed")
    (rows,) = await kit.store.engine.view(kit.store.scope, [Scan("thread_heads")])
    flags = {str(row.key[0]): row["child"] for row in rows}
    equal(flags, {thread.id: int(thread.parent_thread_id is not None) for thread in before}, "the column")


@case("threads", "list-older-rows-paging", covers=("threads.list",))
async def case_older_rows_paging(kit: Kit) -> None:
    """Paging is exact while rows move from the older group to theirs."""
    await plant(kit)
    await forget_child(kit, *[f"t{n:02}" for n in range(24)])
    expected = [thread.id for thread in (await kit.store.threads.list()).items]
    ids, cursor = [], None
    for turn in range(6):
        page = await kit.store.threads.list(limit=4, cursor=cursor)
        ids += [thread.id for thread in page.items]
        cursor = page.next_cursor
        if turn == 2:
            await kit.sweep()
    equal((ids, cursor), (expected, None), "each once")
