"""Cases: the pointers of a thread to its active, open and latest run; the branch of a run; lists of runs.

Nothing clears another run's pointer: a newly created run leaves the one that executes alone, and becomes the open
run only if there is none.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, KeyReused, NotFoundError, StaleClaim, VersionConflict
from perdure.model.message import Message
from perdure.model.run import NewRun, Run
from perdure.stores.store import Store
from perdure.testkit.helpers import commit_texts, conflict, expect_cursor_guarded, move, paged_ids, texts
from perdure.testkit.kit import Kit, case, collect, equal, raises
from perdure.testkit.probe import dump, untouched


async def pointers(store: Store) -> tuple[str | None, str | None, str | None]:
    """(active, open, latest) of thread t."""
    thread = await store.threads.get("t")
    return thread.active_run_id, thread.open_run_id, thread.latest_run_id


@case("runs", "pointers-created", covers=("runs.create",))
async def case_pointers_created(kit: Kit) -> None:
    """A created run is the latest, and the open one if there is none; it is not active."""
    await kit.store.runs.create("t", "agent", run_id="a")
    equal(await pointers(kit.store), (None, "a", "a"), "the first")
    await kit.store.runs.create("t", "agent", run_id="b")
    equal(await pointers(kit.store), (None, "a", "b"), "the second")


@case("runs", "created-keeps-active", covers=("runs.create",))
async def case_created_keeps_active(kit: Kit) -> None:
    """A newly created run does not clear the pointer of the run that executes."""
    run = await kit.store.runs.start("t", "agent", run_id="a")
    await kit.store.runs.create("t", "agent", run_id="b")
    equal(await pointers(kit.store), ("a", "a", "b"), "a still executes")
    await kit.store.commit("t", run=run.finish())
    equal(await pointers(kit.store), (None, None, "b"), "a ends; b was never open")


@case("runs", "created-keeps-open", covers=("runs.create",))
async def case_created_keeps_open(kit: Kit) -> None:
    """A newly created run does not take the open place from a run that waits."""
    run = await kit.store.runs.start("t", "agent", run_id="a")
    run = await move(kit.store, run.wait())
    await kit.store.runs.create("t", "agent", run_id="b")
    equal(await pointers(kit.store), (None, "a", "b"), "a is still to be resumed")


@case("runs", "pointers-running", covers=("runs.start", "store.commit"))
async def case_pointers_running(kit: Kit) -> None:
    """A running run is active, open and latest; each step says so again."""
    first = await kit.store.runs.start("t", "agent", run_id="a")
    equal(await pointers(kit.store), ("a", "a", "a"), "a runs")
    await kit.store.runs.start("t", "agent", run_id="b")
    equal(await pointers(kit.store), ("b", "b", "b"), "b runs")
    await kit.store.commit("t", run=first.step())
    equal(await pointers(kit.store), ("a", "a", "a"), "a goes on")
    created = await kit.store.runs.create("t", "agent", run_id="c")
    await kit.store.commit("t", run=created.begin())
    equal(await pointers(kit.store), ("c", "c", "c"), "c begins")


@case("runs", "pointers-waiting", covers=("store.commit",))
async def case_pointers_waiting(kit: Kit) -> None:
    """Waiting clears active if it is this run's, and keeps open and latest."""
    run = await kit.store.runs.start("t", "agent", run_id="a")
    run = await move(kit.store, run.wait())
    equal(await pointers(kit.store), (None, "a", "a"), "a waits")
    run = await move(kit.store, run.resume())
    equal(await pointers(kit.store), ("a", "a", "a"), "a resumes")


@case("runs", "waiting-keeps-others", covers=("store.commit",))
async def case_waiting_keeps_others(kit: Kit) -> None:
    """Waiting does not clear another run's active pointer, and takes the open place only if it is free."""
    first = await kit.store.runs.start("t", "agent", run_id="a")
    second = await kit.store.runs.start("t", "agent", run_id="b")
    first = await move(kit.store, first.wait())
    equal(await pointers(kit.store), ("b", "b", "b"), "a waits while b runs")
    await kit.store.commit("t", run=second.finish())
    equal(await pointers(kit.store), (None, None, "b"), "b is done")
    await kit.store.commit("t", run=first.wait(reason="rate_limit"))
    equal(await pointers(kit.store), (None, "a", "b"), "a takes the free place")


@case("runs", "pointers-done", covers=("store.commit",))
async def case_pointers_done(kit: Kit) -> None:
    """Done clears active and open if they are this run's; latest stays."""
    run = await kit.store.runs.start("t", "agent", run_id="a")
    await kit.store.commit("t", run=run.finish())
    equal(await pointers(kit.store), (None, None, "a"), "a is done")


@case("runs", "done-keeps-others", covers=("store.commit",))
async def case_done_keeps_others(kit: Kit) -> None:
    """An old run that ends clears nothing of a newer one."""
    old = await kit.store.runs.start("t", "agent", run_id="a")
    await kit.store.runs.start("t", "agent", run_id="b")
    await kit.store.commit("t", run=old.fail("late"))
    equal(await pointers(kit.store), ("b", "b", "b"), "b is untouched")


@case("runs", "pointers-still", covers=("store.commit",))
async def case_pointers_still(kit: Kit) -> None:
    """A run that only associates, and a refused move, leave every pointer alone."""
    old = await kit.store.runs.start("t", "agent", run_id="a")
    await kit.store.runs.start("t", "agent", run_id="b")
    await kit.store.commit("t", run=old, messages=[Message.assistant("x")])
    equal(await pointers(kit.store), ("b", "b", "b"), "an unchanged run")
    await untouched(kit.store, VersionConflict, kit.store.commit("t", run=old.step(), expect=0))


@case("runs", "latest", covers=("runs.latest",))
async def case_latest(kit: Kit) -> None:
    """The latest run is the one created or moved to running last, whatever the clock says."""
    first = await kit.store.runs.start("t", "agent", run_id="a")
    kit.clock.advance(-60_000)
    await kit.store.runs.start("t", "agent", run_id="b")
    latest = await kit.store.runs.latest("t")
    equal(latest, await kit.store.runs.get("b"), "b, though the clock went back")
    await kit.store.commit("t", run=first.step())
    latest = await kit.store.runs.latest("t")
    equal(latest, await kit.store.runs.get("a"), "a moved again")
    await kit.store.threads.create("u")
    equal(await kit.store.runs.latest("u"), None, "another thread's runs do not count")


@case("runs", "pinned-to-branch", covers=("runs.start", "store.commit", "branches.switch"))
async def case_pinned_to_branch(kit: Kit) -> None:
    """A run writes to the branch it started on, even after a switch, and in another client."""
    receipt = await commit_texts(kit.store, "t", "a", "b")
    run = await kit.store.runs.start("t", "agent")
    other = await kit.second()
    fork = await other.branches.fork("t", at=receipt.message_ids[0], switch=True)
    run = await move(kit.store, run.step(), messages=[Message.assistant("c")])
    equal(run.branch, 0, "the run's branch")
    equal(texts(await kit.store.messages.history("t", branch=0)), ["a", "b", "c"], "its branch")
    equal(texts(await kit.store.messages.history("t")), ["a"], "the current branch")
    later = await kit.store.runs.start("t", "agent", messages=[Message.user("d")])
    equal(later.branch, fork.id, "a new run starts on the current branch")
    await kit.store.branches.switch("t", 0)
    await kit.store.commit("t", run=later, messages=[Message.assistant("e")])
    equal(texts(await other.messages.history("t", branch=fork.id)), ["a", "d", "e"], "an unchanged run is pinned too")


@case("runs", "branch-option", covers=("runs.create", "runs.start"))
async def case_branch_option(kit: Kit) -> None:
    """A run may be started on any branch, by number or name; one that does not exist is not found."""
    receipt = await commit_texts(kit.store, "t", "a", "b")
    fork = await kit.store.branches.fork("t", at=receipt.message_ids[0], name="side")
    for branch in (fork.id, "side"):
        run = await kit.store.runs.start("t", "agent", branch=branch, messages=[Message.user("x")])
        equal(run.branch, fork.id, f"branch={branch!r}")
    equal(texts(await kit.store.messages.history("t", branch="side")), ["a", "x", "x"], "the input is there")
    for missing in (9, "nowhere"):
        await untouched(kit.store, NotFoundError, kit.store.runs.start("t", "agent", branch=missing), repr(missing))
        await untouched(kit.store, NotFoundError, kit.store.runs.create("t", "agent", branch=missing), repr(missing))


@case("runs", "start-guards", covers=("runs.start", "runs.create"))
async def case_start_guards(kit: Kit) -> None:
    """Starting obeys expect, fence and key like every commit."""
    await kit.store.threads.create("t")
    await commit_texts(kit.store, "t", "a", fence=5)
    start = kit.store.runs.start
    conflict(await untouched(kit.store, VersionConflict, start("t", "agent", expect=0)), 0, 1)
    conflict(await untouched(kit.store, StaleClaim, start("t", "agent", fence=4)), 4, 5)
    run = await start("t", "agent", messages=[Message.user("b")], expect=1, fence=5, key="k")
    before = await dump(kit.store)
    again = await start("t", "agent", messages=[Message.user("b")], expect=1, fence=5, key="k")
    equal(again, run, "a keyed start returns its run")
    equal(await dump(kit.store), before, "and writes nothing")
    await untouched(kit.store, KeyReused, start("t", "someone else", messages=[Message.user("b")], key="k"))
    await untouched(kit.store, KeyReused, kit.store.runs.create("t", "agent", messages=[Message.user("b")], key="k"))


async def some_runs(kit: Kit) -> dict[str, Run]:
    """Six runs over two threads in several statuses, some of one millisecond."""
    made = {}
    for i, thread in enumerate("ttuutu"):
        kit.clock.advance(10 if i % 2 else 0)
        made[f"r{i}"] = await kit.store.runs.start(thread, "agent", run_id=f"r{i}")
    await kit.store.commit("t", run=made["r0"].finish())
    await kit.store.commit("u", run=made["r3"].finish())
    await kit.store.commit("t", run=made["r4"].wait())
    return made


@case("runs", "list", covers=("runs.list", "runs.iter"))
async def case_list(kit: Kit) -> None:
    """Runs by creation, newest first or oldest first: all, of a thread, in a status, or both."""
    equal((await kit.store.runs.list()).items, [], "no runs at all")
    await some_runs(kit)

    async def names(**filters: Any) -> str:
        page = await kit.store.runs.list(**filters)
        equal(page.next_cursor, None, "one page is enough")
        equal(await collect(kit.store.runs.iter(**filters)), page.items, "iter")
        return " ".join(run.id for run in page.items)

    expected: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({}, "r5 r4 r3 r2 r1 r0", "all"),
        ({"thread_id": "t"}, "r4 r1 r0", "of a thread"),
        ({"status": "done"}, "r3 r0", "in a status"),
        ({"thread_id": "u", "status": "running"}, "r5 r2", "both"),
        ({"thread_id": "t", "status": "waiting"}, "r4", "waiting"),
        ({"thread_id": "nowhere"}, "", "a thread that does not exist has no runs"),
    )
    for filters, listed, what in expected:
        equal(await names(**filters), listed, what)
        equal(await names(order="desc", **filters), listed, f"{what}, said so")
        equal(await names(order="asc", **filters), " ".join(listed.split()[::-1]), f"{what}, oldest first")
    equal((await kit.store.runs.list(limit=1)).items[0], await kit.store.runs.get("r5"), "items are whole records")


@case("runs", "list-by-agent-and-resource", covers=("runs.list", "runs.iter"))
async def case_list_filters(kit: Kit) -> None:
    """Filters on agent and resource work alone and with the others, page by page; resources follow the thread."""
    for thread, resource in (("t", "acme"), ("u", "umbrella"), ("v", None)):
        await kit.store.threads.create(thread, resource_id=resource)
    rows = [("t", "planner"), ("u", "coder"), ("t", "coder"), ("v", "planner"), ("u", "planner"), ("t", "planner")]
    for i, (thread, agent) in enumerate(rows):
        kit.clock.advance(i % 2)
        run = await kit.store.runs.start(thread, agent, run_id=f"r{i}")
        if i % 3 == 0:
            await kit.store.commit(thread, run=run.finish())
    expected: tuple[tuple[dict[str, Any], str], ...] = (
        ({"agent_id": "planner"}, "r5 r4 r3 r0"),
        ({"agent_id": "planner", "status": "done"}, "r3 r0"),
        ({"agent_id": "planner", "thread_id": "t"}, "r5 r0"),
        ({"agent_id": "coder", "thread_id": "t", "status": "running"}, "r2"),
        ({"resource_id": "acme"}, "r5 r2 r0"),
        ({"resource_id": " acme ", "agent_id": "planner"}, "r5 r0"),
        ({"resource_id": "umbrella", "status": "running"}, "r4 r1"),
        ({"resource_id": "umbrella", "thread_id": "t"}, ""),
        ({"agent_id": "nobody"}, ""),
        ({"resource_id": "nobody"}, ""),
        ({"resource_id": " "}, "r5 r4 r3 r2 r1 r0"),
    )
    for filters, names in expected:
        for order in ("desc", "asc"):
            expected_ids = names.split() if order == "desc" else names.split()[::-1]
            for limit in (1, 2, 50):
                ask = partial(kit.store.runs.list, **filters, order=order)
                equal(await paged_ids(ask, limit), expected_ids, f"{filters} {order} {limit}")
    await kit.store.threads.update("v", resource_id="acme")
    equal([run.id async for run in kit.store.runs.iter(resource_id="acme")], ["r5", "r3", "r2", "r0"], "after a change")
    await kit.store.threads.delete("t")
    equal([run.id async for run in kit.store.runs.iter(resource_id="acme")], ["r3"], "after a deletion")
    wrong: tuple[dict[str, Any], ...] = ({"agent_id": ""}, {"agent_id": 7}, {"resource_id": 7}, {"order": "up"})
    for filters in wrong:
        await raises(InvalidError, kit.store.runs.list(**filters), f"{filters}")


@case("runs", "pages", covers=("runs.list",))
async def case_pages(kit: Kit) -> None:
    """Pages of any size give each run once, with ties on the clock and runs born while paging."""
    expected = []
    for i in range(23):
        kit.clock.advance(i % 3 - 1)
        expected.append((await kit.store.runs.create("t", "agent", run_id=f"r{i * 7 % 23}")).id)
    whole = [run.id for run in (await kit.store.runs.list(thread_id="t")).items]
    equal(sorted(whole), sorted(expected), "everything is listed")
    for limit in (1, 2, 5, 22, 23, 200):
        ids, cursor = [], None
        while True:
            page = await kit.store.runs.list(thread_id="t", limit=limit, cursor=cursor)
            ids += [run.id for run in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
            kit.clock.advance(1)
            await kit.store.runs.create("other", "agent")
        equal(ids, whole, f"pages of {limit}")


@case("runs", "pages-stable", covers=("runs.list",))
async def case_pages_stable(kit: Kit) -> None:
    """Moving runs while paging neither repeats nor loses any: the order is that of creation."""
    made = [await kit.store.runs.start("t", "agent", run_id=f"r{i}") for i in range(9)]
    ids, cursor = [], None
    for turn in range(3):
        page = await kit.store.runs.list(thread_id="t", order="asc", limit=3, cursor=cursor)
        ids += [run.id for run in page.items]
        cursor = page.next_cursor
        await kit.store.commit("t", run=made[turn].finish())
        await kit.store.commit("t", run=made[8 - turn].step())
    equal((ids, cursor), ([run.id for run in made], None), "each once")


@case("runs", "list-limits", covers=("runs.list",))
async def case_list_limits(kit: Kit) -> None:
    """A page has 1 to 200 runs, 50 by default; a cursor belongs to its query."""
    for limit in (0, -1, limits.PAGE_MAX + 1, "10", True):
        await raises(InvalidError, kit.store.runs.list(limit=limit))  # type: ignore[arg-type]
    for _ in range(52):
        await kit.store.runs.create("t", "agent")
    page = await kit.store.runs.list()
    equal(len(page.items), limits.PAGE_DEFAULT, "the default")
    cursor = page.next_cursor or ""
    equal(len((await kit.store.runs.list(cursor=cursor, limit=7)).items), 2, "another limit is fine")

    async def ask(text: str) -> object:
        return await kit.store.runs.list(cursor=text)

    await expect_cursor_guarded(ask, cursor)
    others: list[dict[str, Any]] = [{"thread_id": "t"}, {"status": "created"}, {"thread_id": "t", "status": "created"}]
    others += [{"agent_id": "agent"}, {"resource_id": "u"}, {"order": "asc"}]
    for filters in others:
        await raises(InvalidError, kit.store.runs.list(cursor=cursor, **filters), f"another query: {filters}")


@case("runs", "new-run-in-commit", covers=("store.commit",))
async def case_new_run_in_commit(kit: Kit) -> None:
    """A commit may create its run: its messages are what the run produced."""
    receipt = await kit.store.commit(
        "t",
        messages=[Message.user("q"), Message.assistant("a")],
        run=NewRun(agent_id="agent", id="r"),
        run_state={"memo": 1},
    )
    run = await kit.store.runs.get("r")
    equal(receipt.run, run, "the receipt")
    equal((run.input, run.output.count if run.output else 0), (None, 1), "one visible output")
    equal([r.run_id for r in await kit.store.messages.history("t")], ["r", "r"], "producers")
    equal((await kit.store.state.get("t", "memo", run_id="r")).value, 1, "its state")
