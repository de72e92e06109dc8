"""Cases: an id names one message, pending or committed. The second use is refused, however close the race."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from perdure.errors import AlreadyExists, InvalidError
from perdure.model.message import Message
from perdure.model.pending import DeliveryMode
from perdure.testkit.helpers import ids
from perdure.testkit.kit import Kit, case, equal, expect
from perdure.testkit.probe import overtaken, together, untouched

LATER = DeliveryMode(boundary="new_run")


def with_id(name: str) -> list[Message]:
    """A message with this id."""
    return [Message.user(f"text of {name}", id=name)]


async def expect_pending_or_committed(kit: Kit, thread: str, name: str) -> None:
    """The id is in the log or in the queue, not in both."""
    committed = await kit.store.messages.find(thread, name) is not None
    pending = [item.id for item in (await kit.store.pending.list(thread)).items].count(name)
    equal(int(committed) + pending, 1, f"occurrences of {name} in {thread}")


@case("commit", "pending-id-refused", covers=("store.commit", "runs.start", "pending.append"))
async def case_refused(kit: Kit) -> None:
    """A commit cannot take the id of a pending message; it can once that was retracted, and not after it was frozen."""
    store = kit.store
    await store.threads.create("t")
    await store.pending.append("t", [*with_id("m"), *with_id("n")])
    attempts: dict[str, Callable[[], Awaitable[Any]]] = {
        "alone": lambda: store.commit("t", messages=with_id("m")),
        "among others": lambda: store.commit("t", messages=[Message.user("x"), *with_id("free"), *with_id("n")]),
        "as a run's input": lambda: store.runs.start("t", "agent", messages=with_id("m")),
    }
    for what, attempt in attempts.items():
        error = await untouched(store, AlreadyExists, attempt(), what)
        expect("pending" in error.message, f"{what}: the error says where the id is: {error}")
        equal(error.actual, ["n" if what == "among others" else "m"], f"{what}: actual")
    equal(len((await store.commit("t", messages=[Message.user("minted"), *with_id("own")])).seqs), 2, "other ids")
    await store.pending.retract("t", "m")
    equal((await store.commit("t", messages=with_id("m"))).seqs, [3], "after a retract the id is free")
    equal((await store.pending.freeze("t")).message_ids, ["n"], "the queue is frozen as ever")
    await untouched(store, AlreadyExists, store.commit("t", messages=with_id("n")), "a frozen one")
    await untouched(store, InvalidError, store.pending.append("t", with_id("m")), "a committed one cannot be queued")


@case("commit", "pending-id-keyed", covers=("store.commit", "pending.append"))
async def case_keyed(kit: Kit) -> None:
    """A keyed commit that landed is replayed, whatever became of its ids; a refused one leaves its key free."""
    store = kit.store
    await store.threads.create("t")
    await store.pending.append("t", with_id("m"))
    await untouched(store, AlreadyExists, store.commit("t", messages=with_id("m"), key="k"), "while it is pending")
    await store.pending.retract("t", "m")
    first = await store.commit("t", messages=with_id("m"), key="k")
    again = await store.commit("t", messages=with_id("m"), key="k")
    equal((first.replayed, again.replayed, again.seqs), (False, True, first.seqs), "the replay")


@case("pending", "overtaken-by-its-id", covers=("store.commit", "pending.append", "pending.freeze"))
async def case_overtaken(kit: Kit) -> None:
    """Planned while the id was free, written when it is not: refused, on either side."""

    def commit(thread: str) -> Any:
        return lambda store: store.commit(thread, messages=with_id("m"))

    def append(thread: str) -> Any:
        return lambda store: store.pending.append(thread, with_id("m"))

    def stage(thread: str) -> Any:
        # What is staged here waits for a later boundary, so its id stays in the queue.
        return lambda store: store.pending.freeze(thread, boundary="next_step", messages=with_id("m"), mode=LATER)

    slow_and_fast = {"a": (commit, append), "b": (append, commit), "c": (stage, commit), "d": (commit, stage)}
    for thread, (slow, fast) in slow_and_fast.items():
        await kit.store.commit(thread, messages=[Message.user("first")])
        late, early = await overtaken(kit, slow(thread), fast(thread))
        expect(not isinstance(early, Exception), f"{thread}: the fast one lands: {early}")
        expect(isinstance(late, (AlreadyExists, InvalidError)), f"{thread}: the slow one is refused: {late!r}")
        await expect_pending_or_committed(kit, thread, "m")


@case("pending", "commit-races-append", covers=("store.commit", "pending.append"))
async def case_race(kit: Kit) -> None:
    """Of commits and appends of one id at the same time exactly one succeeds."""
    other = await kit.second()
    await kit.store.commit("t", messages=with_id("first"))
    for turn in range(8):
        name = f"m{turn}"
        outcomes = await together(
            kit.store.commit("t", messages=with_id(name)),
            other.pending.append("t", with_id(name)),
            other.commit("t", messages=with_id(name)),
            kit.store.pending.append("t", with_id(name)),
        )
        refused = [one for one in outcomes if isinstance(one, (AlreadyExists, InvalidError))]
        equal(len(refused), 3, f"refusals in turn {turn}: {outcomes}")
        await expect_pending_or_committed(kit, "t", name)
    receipt = await kit.store.pending.freeze("t")
    history = ids(await kit.store.messages.history("t"))
    equal(sorted(history), sorted(["first", *[f"m{turn}" for turn in range(8)]]), f"everything once, after {receipt}")
