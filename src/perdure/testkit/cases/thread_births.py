"""Cases: threads that come into being on the way. Get or create, and what a commit creates its thread with."""

from __future__ import annotations

from typing import Any

from perdure import failpoints
from perdure.errors import AlreadyExists, InvalidError, KeyReused, NotFoundError
from perdure.model.message import Message
from perdure.model.run import NewRun, RunBody
from perdure.model.run_snapshots import RunActivation, RunTrace
from perdure.model.thread import NewThread
from perdure.testkit.helpers import REFUSED_IDS, Died, die
from perdure.testkit.kit import Kit, case, collect, equal, raises
from perdure.testkit.probe import overtaken, together, untouched

FULL: dict[str, Any] = {"title": "A trip", "resource_id": " u-7 ", "parent_thread_id": "top", "custom": {"k": [1]}}


def shown(thread: Any) -> tuple[Any, ...]:
    """What a thread was created with."""
    return thread.title, thread.resource_id, thread.parent_thread_id, thread.custom


SHOWN = ("A trip", "u-7", "top", {"k": [1]})


@case("threads", "ensure", covers=("threads.ensure",))
async def case_ensure(kit: Kit) -> None:
    """Creates a missing thread with the options; returns one that exists unchanged, whatever the options say."""
    await kit.store.threads.create("top")
    made = await kit.store.threads.ensure("t", **FULL)
    equal(shown(made), SHOWN, "the new thread")
    equal((await kit.store.threads.get("top")).children, 1, "its parent counts it")
    kit.clock.advance(5)
    await kit.store.commit("t", messages=[Message.user("x")])
    now = await kit.store.threads.get("t")
    kit.clock.advance(5)
    others: tuple[dict[str, Any], ...] = ({}, {"title": "other"}, {"parent_thread_id": "missing"})
    for options in others:
        attempt = await kit.store.threads.ensure("t", **options)
        equal(attempt, now, f"an existing thread is left as it is: {options}")
    equal(await kit.store.threads.get("t"), now, "and nothing was written")


@case("threads", "ensure-refused", covers=("threads.ensure",))
async def case_ensure_refused(kit: Kit) -> None:
    """Bad options are refused even if the thread exists; a missing parent only if it would be created."""
    await kit.store.threads.create("t")
    wrong: tuple[dict[str, Any], ...] = ({"title": 5}, {"custom": []}, {"resource_id": 7}, {"parent_thread_id": 7})
    for name in ("t", "new"):
        for options in wrong:
            await untouched(kit.store, InvalidError, kit.store.threads.ensure(name, **options), f"{name} {options}")
    for name in REFUSED_IDS:
        await untouched(kit.store, InvalidError, kit.store.threads.ensure(name))
    await untouched(kit.store, NotFoundError, kit.store.threads.ensure("new", parent_thread_id="missing"))
    await untouched(kit.store, InvalidError, kit.store.threads.ensure("new", parent_thread_id="new"))
    try:
        await kit.store.threads.ensure("t", colour="red")  # type: ignore[call-arg]
    except TypeError:
        return
    equal("accepted", "refused", "an option that does not exist")


@case("threads", "ensure-race", covers=("threads.ensure",))
async def case_ensure_race(kit: Kit) -> None:
    """Of many callers at the same time one creates the thread, and all get it."""
    await kit.store.threads.create("top")
    others = [kit.store, await kit.second()]
    for turn in range(3):
        calls = [others[n % 2].threads.ensure(f"t{turn}", title=f"caller {n}") for n in range(12)]
        threads = await together(*calls)
        first = await kit.store.threads.get(f"t{turn}")
        equal(threads, [first] * 12, "one thread")
    slow, fast = await overtaken(
        kit, lambda s: s.threads.ensure("late", title="slow"), lambda s: s.threads.ensure("late", title="fast")
    )
    equal((slow.title, slow), ("fast", fast), "the one who was overtaken gets the other's thread")
    slow, fast = await overtaken(
        kit, lambda s: s.threads.ensure("mixed"), lambda s: s.commit("mixed", messages=[Message.user("x")])
    )
    equal((slow.version, fast.version), (1, 1), "a commit may have created it")


@case("threads", "ensure-deleted", covers=("threads.ensure",))
async def case_ensure_deleted(kit: Kit) -> None:
    """A deleted thread is created anew; while it is being erased, that is refused as `create` refuses it."""
    await kit.store.commit("t", messages=[Message.user("x")])
    await kit.store.threads.delete("t")
    equal((await kit.store.threads.ensure("t", title="again")).version, 0, "a new life")
    failpoints.arm("delete.after_tombstone", die)
    try:
        await raises(Died, kit.store.threads.delete("t"))
    finally:
        failpoints.disarm()
    await raises(AlreadyExists, kit.store.threads.ensure("t"))
    await kit.sweep()
    equal((await kit.store.threads.ensure("t")).title, None, "when that is done")


@case("commit", "new-thread", covers=("store.commit", "runs.start", "runs.create"))
async def case_new_thread(kit: Kit) -> None:
    """`thread=` says what a missing thread is created with; one that exists is left as it is."""
    await kit.store.threads.create("top")
    new = NewThread(**FULL)
    await kit.store.commit("a", messages=[Message.user("x")], thread=new)
    await kit.store.runs.start("b", "agent", thread=new)
    await kit.store.runs.create("c", "agent", thread=new)
    for name in ("a", "b", "c"):
        equal(shown(await kit.store.threads.get(name)), SHOWN, name)
    equal((await kit.store.threads.get("top")).children, 3, "the parent counts them")
    page = await kit.store.threads.list(resource_id="u-7", parent_thread_id="top")
    equal(sorted(thread.id for thread in page.items), ["a", "b", "c"], "by owner and parent")
    rev = (await kit.store.threads.get("a")).rev
    await kit.store.commit("a", messages=[Message.user("y")], thread=NewThread(title="other", parent_thread_id="gone"))
    after = await kit.store.threads.get("a")
    equal((shown(after), after.rev, after.version), (SHOWN, rev, 2), "an existing thread is left as it is")


@case("commit", "new-thread-and-trace", covers=("store.commit", "runs.start"))
async def case_new_thread_and_trace(kit: Kit) -> None:
    """What `thread=` says wins over the trace of the run's activation; what it leaves open comes from there."""
    for name in ("top", "traced"):
        await kit.store.threads.create(name)
    activation = RunActivation(trace=RunTrace(parent_thread_id="traced", resource_id="from-trace"))
    run = NewRun(agent_id="agent", body=RunBody(activation=activation))
    await kit.store.commit("a", run=run, thread=NewThread(title="x"))
    equal(shown(await kit.store.threads.get("a")), ("x", "from-trace", "traced", {}), "what it leaves open")
    await kit.store.runs.start("b", "agent", activation=activation, thread=NewThread(parent_thread_id="top"))
    equal(shown(await kit.store.threads.get("b")), (None, "from-trace", "top", {}), "its parent wins")
    await kit.store.commit("c", run=run, thread=NewThread(resource_id="u-7"))
    equal(shown(await kit.store.threads.get("c")), (None, "u-7", "traced", {}), "its resource wins")


@case("commit", "new-thread-refused", covers=("store.commit", "runs.start"))
async def case_new_thread_refused(kit: Kit) -> None:
    """A malformed `thread=` is refused before anything is read; a missing parent only where the thread is created."""
    wrong: list[Any] = [{"title": "x"}, "x", 7, NewThread(title=5), NewThread(custom=[]), NewThread(resource_id=7)]  # type: ignore[arg-type]
    wrong.append(NewThread(custom={"x": float("nan")}))
    for item in wrong:
        for key in (None, "k"):
            attempt = kit.store.commit("t", messages=[Message.user("x")], thread=item, key=key)
            await untouched(kit.store, InvalidError, attempt, f"{item!r:.60}")
        await untouched(kit.store, InvalidError, kit.store.runs.start("t", "agent", thread=item), f"{item!r:.60}")
    orphan = NewThread(parent_thread_id="missing")
    await untouched(kit.store, NotFoundError, kit.store.commit("t", messages=[Message.user("x")], thread=orphan))
    await untouched(kit.store, NotFoundError, kit.store.commit("t", fence=1, thread=NewThread()))
    equal(await collect(kit.store.threads.iter()), [], "no thread came of it")


@case("commit", "new-thread-key", covers=("store.commit", "runs.start"))
async def case_new_thread_key(kit: Kit) -> None:
    """What the thread is created with belongs to the content of a keyed commit."""
    messages = [Message.user("x", id="m")]
    first = await kit.store.commit("t", messages=messages, thread=NewThread(custom={"a": 1, "b": 2}), key="k")
    again = await kit.store.commit("t", messages=messages, thread=NewThread(custom={"b": 2, "a": 1}), key="k")
    equal((first.replayed, again.replayed, again.seqs), (False, True, [1]), "the same content")
    for other in (None, NewThread(), NewThread(custom={"a": 1})):
        attempt = kit.store.commit("t", messages=messages, thread=other, key="k")
        await untouched(kit.store, KeyReused, attempt, f"other content: {other}")
