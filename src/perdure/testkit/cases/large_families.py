"""Cases: deleting a thread with more children than one transaction changes. Chunks, crashes, writers in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from perdure import failpoints, limits
from perdure.audit import verify_engine
from perdure.errors import AlreadyExists, HasChildren, NotFoundError
from perdure.kernel.ops import Op, Patch, Put, Scan
from perdure.model.message import Message
from perdure.model.thread import NewThread
from perdure.stores.store import Store
from perdure.stores.threads import Strategy
from perdure.testkit.helpers import Died, die, say, small_families
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises

KINDS: tuple[Strategy, ...] = ("detach", "cascade")


async def put_children(store: Store, parent: str, count: int) -> None:
    """Many empty children of a thread, as creating them one by one would leave them."""
    await store.threads.ensure(parent)
    for first in range(0, count, 500):
        ops: list[Op] = []
        for n in range(first, min(first + 500, count)):
            times = {"created_at": n, "updated_at": n}
            name = (f"{parent}-{n:05}",)
            hot = {"version": 0, "branch": 0, "branches": 1, "children": 0, "born": n, "parent": parent, "child": 1}
            branch = {"fork_seq": 0, "head_seq": 0, "length": 0, "created_at": n, "name": "main"}
            ops.append(Put("threads", name, {"parent": parent, "created_at": n}, b"{}"))
            ops.append(Put("thread_heads", name, {**hot, **times}))
            ops.append(Put("branches", (*name, 0), branch))
        ops.append(Patch("thread_heads", (parent,), {"children": min(first + 500, count)}))
        await store.engine.transact(store.scope, ops)


async def tombstones(store: Store) -> list[tuple[str, bool, bool]]:
    """Every deleted thread: its id, whether it is erased, whether its body is bare."""
    (rows,) = await store.engine.view(store.scope, [Scan("threads", "deleted")])
    return sorted((str(row.key[0]), row["erased_at"] is not None, row.body in (b"{}", "{}")) for row in rows)


async def expect_done(store: Store, strategy: Strategy, parent: str, count: int) -> None:
    """The deletion is complete, and what it left is sound."""
    threads = await collect(store.threads.iter())
    roots = await collect(store.threads.iter(root=True))
    buried = await tombstones(store)
    if strategy == "detach":
        equal((len(threads), {thread.parent_thread_id for thread in threads}), (count, {None}), "all are roots")
        equal(buried, [(parent, True, True)], "one tombstone")
    else:
        equal(threads, [], "nothing is left")
        equal((len(buried), {item[1:] for item in buried}), (count + 1, {(True, True)}), "all are erased")
    equal([thread.id for thread in roots], [thread.id for thread in threads], "the list of roots")
    equal(await verify_engine(store.engine), [], "the audit")


@case("threads", "delete-too-many", covers=("threads.delete",))
async def case_too_many(kit: Kit) -> None:
    """More than 1,000 children are no obstacle, whatever becomes of them."""
    count = limits.CASCADE_THREADS + 1
    await put_children(kit.store, "p", count)
    error = await raises(HasChildren, kit.store.threads.delete("p", strategy="reject"))
    expect(f"{count} child threads" in str(error), f"the number is named: {error}")
    equal(error.actual, [f"p-{n:05}" for n in range(limits.CHILDREN_NAMED)], "some are named, not all are read")
    await kit.store.threads.delete("p", strategy="detach")
    await expect_done(kit.store, "detach", "p", count)


@case("threads", "delete-in-chunks", covers=("threads.delete",))
async def case_in_chunks(kit: Kit) -> None:
    """A family beyond the limit is deleted top-down in chunks; a subtree may be deep as well as wide."""
    for strategy in KINDS:
        parent = f"{strategy}-p"
        await put_children(kit.store, parent, 9)
        for n in range(7):
            await kit.store.threads.create(f"{strategy}-deep-{n}", parent_thread_id=f"{parent}-00003")
        await kit.store.threads.create(f"{strategy}-deeper", parent_thread_id=f"{strategy}-deep-6")
        with small_families():
            await kit.store.threads.delete(parent, strategy=strategy)
        left = {thread.id: thread.parent_thread_id for thread in await collect(kit.store.threads.iter())}
        if strategy == "cascade":
            equal(left, {}, "the whole subtree is gone")
            continue
        equal(left[f"{parent}-00003"], None, "children are roots")
        equal((len(left), left[f"{strategy}-deeper"]), (9 + 7 + 1, f"{strategy}-deep-6"), "grandchildren stay")
        equal((await kit.store.threads.get(f"{parent}-00003")).children, 7, "and are counted")
        for name in [name for name, above in left.items() if above is None]:
            await kit.store.threads.delete(name, strategy="cascade")
    equal({item[1:] for item in await tombstones(kit.store)}, {(True, True)}, "all are erased")
    equal(await verify_engine(kit.store.engine), [], "the audit")


async def _again(kit: Kit) -> None:
    await kit.store.threads.delete("p", strategy="reject")
    equal(await collect(kit.store.threads.iter(parent_thread_id="p")), [], "deleting again reaches all children")
    await kit.store.threads.create("p")
    await kit.store.threads.delete("p")
    # Children that were hidden and not erased when the process died have tombstones of their own.
    await kit.sweep()


async def _sweep(kit: Kit) -> None:
    await kit.sweep()


FINISHES: tuple[tuple[int, Callable[[Kit], Awaitable[None]]], ...] = (
    (1, _again),
    (2, _sweep),
    (4, _again),
    (5, _sweep),
)
"""At which chunk the process dies, and who finishes its work."""


@case("threads", "delete-in-chunks-interrupted", covers=("threads.delete", "threads.create"), needs=("durable",))
async def case_in_chunks_interrupted(kit: Kit) -> None:
    """Killed between any two chunks, the deletion is finished by deleting again or by housekeeping."""
    try:
        for strategy in KINDS:
            for crossing, finish in FINISHES:
                await put_children(kit.store, "p", 9)
                failpoints.arm("delete.between_chunks", die, after=crossing)
                with small_families():
                    await raises(Died, kit.store.threads.delete("p", strategy=strategy), f"{strategy} {crossing}")
                equal(await kit.store.threads.find("p"), None, "the thread is gone")
                await raises(AlreadyExists, kit.store.threads.create("p"), "its id is taken until the end")
                await raises(NotFoundError, say(kit.store, "p", "late"), "and not to be committed to")
                left = await collect(kit.store.threads.iter(parent_thread_id="p"))
                equal(len(left), max(0, 9 - 2 * crossing), "children not reached yet are there")
                equal(await verify_engine(kit.store.engine), [], "the audit, half way")
                await kit.crash()
                with small_families():
                    await finish(kit)
                await expect_done(kit.store, strategy, "p", 9)
                await _clear(kit)
    finally:
        failpoints.disarm()


async def _clear(kit: Kit) -> None:
    for thread in await collect(kit.store.threads.iter()):
        await kit.store.threads.delete(thread.id)
    kit.clock.advance(limits.KEY_RETENTION_MS + 1)
    await kit.sweep()


@case("threads", "delete-in-chunks-in-use", covers=("threads.delete", "threads.update", "store.commit"))
async def case_in_chunks_in_use(kit: Kit) -> None:
    """Children not reached yet can be written to, get children, move away, and be deleted."""
    store = kit.store
    try:
        for strategy in KINDS:
            await put_children(store, "p", 9)
            await store.threads.create("elsewhere")
            failpoints.arm("delete.between_chunks", die)
            with small_families():
                await raises(Died, store.threads.delete("p", strategy=strategy))
            await store.commit("p-00004", messages=[Message.user("still here")])
            await store.threads.update("p-00004", title="edited")
            await store.commit("grandchild", thread=NewThread(parent_thread_id="p-00005"), messages=[Message.user("x")])
            await store.threads.update("p-00006", parent_thread_id="elsewhere")
            await store.threads.delete("p-00007")
            refused = NewThread(parent_thread_id="p")
            attempt = store.commit("late", thread=refused, messages=[Message.user("x")])
            await raises(NotFoundError, attempt, "no new child of a deleted thread")
            await raises(NotFoundError, store.threads.update("elsewhere", parent_thread_id="p"), "nor a moved one")
            with small_families():
                await kit.sweep()
            left = {thread.id: thread.parent_thread_id for thread in await collect(store.threads.iter())}
            await _expect_used(kit, strategy, left)
            await store.threads.delete("elsewhere", strategy="cascade")
            await _clear(kit)
    finally:
        failpoints.disarm()


async def _expect_used(kit: Kit, strategy: Strategy, left: dict[str, Any]) -> None:
    equal(left.pop("p-00006"), "elsewhere", "what moved away stays")
    equal(left.pop("elsewhere"), None, "and so does its parent")
    if strategy == "cascade":
        equal(left, {}, "everything else is gone")
    else:
        equal(left.pop("grandchild"), "p-00005", "a grandchild stays")
        equal((len(left), set(left.values())), (7, {None}), "the others are roots")
        equal((await kit.store.threads.get("p-00004")).version, 1, "with what was written meanwhile")
    equal(await verify_engine(kit.store.engine), [], "the audit")


@case("threads", "delete-in-chunks-retention", covers=("threads.delete",))
async def case_in_chunks_retention(kit: Kit) -> None:
    """A tombstone that still has children is never dropped, however old it is and whoever erased its thread."""
    await put_children(kit.store, "p", 9)
    failpoints.arm("delete.between_chunks", die)
    try:
        with small_families():
            await raises(Died, kit.store.threads.delete("p", strategy="detach"))
    finally:
        failpoints.disarm()
    # A process of an older release takes the tombstone for one like any other.
    ops: list[Op] = [Patch("threads", ("p",), {"erased_at": kit.clock()})]
    await kit.store.engine.transact(kit.store.scope, ops)
    kit.clock.advance(limits.KEY_RETENTION_MS + 1)
    await raises(NotFoundError, say(kit.store, "p", "late"), "a commit does not revive it")
    await raises(AlreadyExists, kit.store.threads.create("p"), "its id is not free")
    await kit.sweep()
    equal([thread.parent_thread_id for thread in await collect(kit.store.threads.iter())], [None] * 9, "all are roots")
