"""Cases: durability. What survives a close, a crash, a delete that was interrupted, a week, and clock jumps."""

from __future__ import annotations

from typing import Any

from perdure import failpoints, limits
from perdure.errors import NotFoundError
from perdure.model.message import Message
from perdure.stores.store import Store
from perdure.testkit.helpers import Died, commit_texts, die, everything, move, small_pieces
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import belongs_to, dump, untouched


@case("lifecycle", "reopen", covers=("store.close",), needs=("durable",))
async def case_reopen(kit: Kit) -> None:
    """Closing and opening again keeps everything, byte for byte."""
    await everything(kit.store)
    await everything(kit.store.scoped("other"))
    before = await dump(kit.store), await dump(kit.store.scoped("other"))
    store = await kit.reopen()
    equal((await dump(store), await dump(store.scoped("other"))), before, "after a close")
    run = await store.runs.get("r")
    await move(store, run.resume())


@case("lifecycle", "crash", covers=("store.commit",), needs=("durable",))
async def case_crash(kit: Kit) -> None:
    """What was acknowledged survives the loss of every client, again and again."""
    for life in range(5):
        receipt = await commit_texts(kit.store, "t", f"life {life}", state={"n": life})
        equal(receipt.version, life + 1, "the version goes on")
        before = await dump(kit.store)
        equal(await dump(await kit.crash()), before, f"after crash {life}")


@case("lifecycle", "interrupted-delete", covers=("threads.delete",), needs=("durable",))
async def case_interrupted_delete(kit: Kit) -> None:
    """A delete that dies half way is over for every reader, and housekeeping finishes it."""
    await everything(kit.store)
    await everything(kit.store.scoped("other"))
    untouched_scope = await dump(kit.store.scoped("other"))
    failpoints.arm("delete.after_tombstone", die)
    await raises(Died, kit.store.threads.delete("t"))
    other = await kit.second()
    await gone(other)
    store = await kit.crash()
    await gone(store)
    await kit.sweep()
    left = belongs_to(await dump(store, "t"), "t")
    equal(sorted(left), ["threads"], "nothing but the tombstone is left")
    equal(await dump(store.scoped("other")), untouched_scope, "another scope keeps its thread of that id")
    await store.threads.create("t")
    equal((await store.load("t")).state, {}, "a new thread of that id is empty")


@case("lifecycle", "interrupted-delete-scoped", covers=("threads.delete", "store.scoped"))
async def case_interrupted_delete_scoped(kit: Kit) -> None:
    """A delete that died in another scope is finished by the housekeeping of that scope."""
    doomed = kit.store.scoped("tenant")
    await everything(doomed)
    failpoints.arm("delete.after_tombstone", die)
    await raises(Died, doomed.threads.delete("t"))
    fresh = kit.store.scoped("tenant")
    await gone(fresh)
    await kit.sweep(fresh)
    equal(sorted(belongs_to(await dump(fresh, "t"), "t")), ["threads"], "nothing but the tombstone is left")


@case("lifecycle", "interrupted-delete-again", covers=("threads.delete", "store.commit", "threads.create"))
async def case_interrupted_delete_again(kit: Kit) -> None:
    """Until an interrupted delete is finished its keys answer nothing; deleting again finishes it."""
    await everything(kit.store)
    await commit_texts(kit.store, "t", "keyed", key="once")
    failpoints.arm("delete.after_tombstone", die)
    await raises(Died, kit.store.threads.delete("t"))
    await raises(NotFoundError, commit_texts(kit.store, "t", "keyed", key="once"))
    await kit.store.threads.delete("t")
    equal(sorted(belongs_to(await dump(kit.store, "t"), "t")), ["threads"], "nothing but the tombstone is left")
    await raises(NotFoundError, kit.store.threads.delete("t"))
    await kit.store.threads.create("t")


@case("lifecycle", "interrupted-erasure", covers=("threads.delete",), needs=("durable",))
async def case_interrupted_erasure(kit: Kit) -> None:
    """However far the erasing came before it died, housekeeping goes on from there."""
    for reached in range(1, 12):
        await everything(kit.store)
        failpoints.arm("delete.between_erasures", die, after=reached)
        try:
            with small_pieces():
                await kit.store.threads.delete("t")
        except Died:
            pass
        else:
            failpoints.disarm()
            expect(reached > 2, "the erasing passes several points")
            break
        store = await kit.crash()
        await gone(store)
        await kit.sweep()
        equal(sorted(belongs_to(await dump(store, "t"), "t")), ["threads"], f"died at point {reached}")
        await store.threads.create("t")
        await store.threads.delete("t")
        kit.clock.advance(2 * limits.KEY_RETENTION_MS)
        await kit.reopen()


@case("lifecycle", "invisible-at-once", covers=("threads.delete",))
async def case_invisible_at_once(kit: Kit) -> None:
    """Between the tombstone and the erasing nothing of the thread can be read, listed or written."""
    first = await everything(kit.store)
    other = await kit.second()
    equal((await other.load("t")).version, 3, "it was there")
    failpoints.arm("delete.after_tombstone", die)
    await raises(Died, kit.store.threads.delete("t"))
    for store in (kit.store, other):
        await gone(store)
        for attempt in (
            store.messages.history("t"),
            store.messages.list("t"),
            store.messages.find("t", first),
            store.branches.labels("t"),
            store.pending.list("t"),
            store.state.find("t", "doc"),
            store.state.find("t", "memo", run_id="r"),
            store.runs.latest("t"),
            store.threads.update("t", title="x"),
            store.commit("t", messages=[Message.user("late")]),
            store.state.put("t", "doc", 2),
            store.pending.append("t", [Message.user("late")]),
            store.branches.fork("t", at=None),
            store.branches.label("t", first, "late"),
            store.pending.freeze("t"),
        ):
            await untouched(store, NotFoundError, attempt)


async def gone(store: Store) -> None:
    """No list and no look-up knows thread t or its run."""
    equal(await store.threads.find("t"), None, "threads.find")
    equal("t" in [t.id for t in (await store.threads.list()).items], False, "threads.list")
    equal(await store.runs.find("r"), None, "runs.find")
    equal((await store.runs.list()).items, [], "runs.list")
    equal((await store.runs.list(thread_id="t")).items, [], "runs.list of the thread")
    equal(list(await store.pending.threads()), [], "pending.threads")
    await raises(NotFoundError, store.load("t"), "load")


@case("lifecycle", "sweep", covers=("store.commit",), needs=("durable",))
async def case_sweep(kit: Kit) -> None:
    """Housekeeping drops keys and tombstones past their retention, and nothing that is younger."""
    await commit_texts(kit.store, "t", "old", key="old")
    await kit.store.threads.create("gone")
    await kit.store.threads.delete("gone")
    kit.clock.advance(limits.KEY_RETENTION_MS)
    await commit_texts(kit.store, "t", "young", key="young")
    kit.clock.advance(1)
    store = await kit.reopen()
    await kit.sweep()
    held = await dump(store, "gone")
    equal([row.key for row in held["keys"]], [("t", "young")], "keys")
    equal([row.key for row in held["threads"]], [("t",)], "tombstones")
    equal((await commit_texts(store, "t", "young", key="young")).replayed, True, "a young key still holds")
    equal((await commit_texts(store, "gone", "a new life")).version, 1, "the id is free")


@case("lifecycle", "clock-back", covers=("store.commit", "threads.list", "runs.list", "messages.list"))
async def case_clock_back(kit: Kit) -> None:
    """A clock that jumps about disturbs no order that is promised: seqs, versions, histories, latest run, pages."""
    jumps = [0, 5_000, -60_000, 10**9, -(10**9), 1, -1, 0, 0]
    for i, jump in enumerate(jumps):
        kit.clock.advance(jump)
        await commit_texts(kit.store, "t", str(i))
        await commit_texts(kit.store, f"thread {i}", "x")
        run = await kit.store.runs.start("t", "agent", run_id=f"r{i}")
        latest = await kit.store.runs.latest("t")
        equal(latest, run, f"the latest run after a jump of {jump}")
    records = (await kit.store.messages.list("t")).items
    equal([(r.seq, r.text) for r in records], [(i + 1, str(i)) for i in range(len(jumps))], "the log")
    equal((await kit.store.threads.get("t")).version, len(jumps), "the version")
    for limit in (1, 2, 4):
        threads, runs = await _pages(kit.store.threads, limit), await _pages(kit.store.runs, limit)
        equal((len(threads), len(set(threads))), (10, 10), f"threads in pages of {limit}")
        equal((len(runs), len(set(runs))), (9, 9), f"runs in pages of {limit}")


async def _pages(noun: Any, limit: int) -> list[str]:
    ids: list[str] = []
    page = await noun.list(limit=limit)
    while True:
        ids += [item.id for item in page.items]
        if page.next_cursor is None:
            return ids
        page = await noun.list(limit=limit, cursor=page.next_cursor)
