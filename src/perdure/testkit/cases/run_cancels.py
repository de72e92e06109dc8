"""Cases: `runs.cancel`. A run is ended from outside, and its worker is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import structs

from perdure import limits
from perdure.errors import ConflictError, IllegalTransition, InvalidError, NotFoundError
from perdure.model.message import Message
from perdure.model.run import Run, RunChange
from perdure.model.stored_json import write
from perdure.testkit.kit import Kit, case, equal, raises
from perdure.testkit.probe import untouched

_MANY_STEPS = 3_000
"""More than a worker takes while another process tries to cancel its run a dozen times."""


def ending(run: Run) -> tuple[str, str | None, str | None]:
    """How a run ended."""
    if run.outcome is None:
        return (run.status, None, None)
    return (run.status, run.outcome.termination.type, run.outcome.termination.detail)


@case("runs", "cancel", covers=("runs.cancel",))
async def case_cancel(kit: Kit) -> None:
    """A created, running or waiting run ends as cancelled; its worker's next step is refused whole."""
    store, other = kit.store, await kit.second()
    created = await store.runs.create("t", "agent")
    running = await store.runs.start("t", "agent", messages=[Message.user("q")])
    waiting = (await store.commit("t", run=(await store.runs.start("t", "agent")).wait())).run
    for run in (created, running, waiting):
        equal(ending(await other.runs.cancel(run.id, "enough")), ("done", "cancelled", "enough"), run.status)
    late = store.commit("t", messages=[Message.assistant("late")], run=running.step(), state={"a": 1})
    await untouched(store, IllegalTransition, late, "the worker")
    equal((await store.threads.get("t")).active_run_id, None, "no run is active")


@case("runs", "cancel-done", covers=("runs.cancel",))
async def case_cancel_done(kit: Kit) -> None:
    """A run that is done stays as it ended; an unknown run is not found; the reason is text."""
    run = await kit.store.runs.start("t", "agent")
    done = (await kit.store.commit("t", run=run.finish("answer"))).run
    equal(await kit.store.runs.cancel(run.id, "too late"), done, "as it was")
    equal(await kit.store.runs.get(run.id), done, "and as it is stored")
    await raises(NotFoundError, kit.store.runs.cancel("nobody"), "no such run")
    await raises(InvalidError, kit.store.runs.cancel(""), "no id")
    other = await kit.store.runs.start("t", "agent")
    await untouched(kit.store, InvalidError, kit.store.runs.cancel(other.id, 5), "a reason")  # type: ignore[arg-type]


@case("runs", "cancel-eager", covers=("runs.cancel",))
async def case_cancel_eager(kit: Kit) -> None:
    """Workers that always have a commit in flight, and so are always ahead of what others read, end too."""
    run = await kit.store.runs.start("t", "agent")
    other = await kit.second()

    async def work() -> bool:
        current = run
        for _ in range(_MANY_STEPS):
            await asyncio.sleep(0)  # commits to memory never suspend
            try:
                current = (await kit.store.commit("t", run=current.step())).run
            except ConflictError:
                return True
        return False

    stopped, cancelled = await asyncio.gather(work(), other.runs.cancel(run.id, "enough"))
    equal(ending(cancelled), ("done", "cancelled", "enough"), "the end of the run")
    equal(stopped, True, "the worker was stopped, and did not just come to its end")


@case("runs", "cancel-busy", covers=("runs.cancel",))
async def case_cancel_busy(kit: Kit) -> None:
    """A worker that commits at the same time does not prevent it, and every step that was stored counts."""
    run = await kit.store.runs.start("t", "agent")
    other = await kit.second()

    async def work() -> int:
        current, steps = run, 0
        for _ in range(20):
            try:
                current = (await kit.store.commit("t", messages=[Message.assistant("x")], run=current.step())).run
            except ConflictError:
                break
            steps += 1
        return steps

    steps, cancelled = await asyncio.gather(work(), other.runs.cancel(run.id))
    equal((ending(cancelled)[:2], cancelled.steps), (("done", "cancelled"), steps), "the end of the run")
    equal((await kit.store.threads.get("t")).version, steps, "messages of steps that were stored")


async def _full(kit: Kit, thread: str) -> Run:
    """A run whose JSON has no room for another byte."""
    room = limits.RUN_BYTES - len(write((await kit.store.runs.create(thread, "agent", metadata={"x": ""})).body))
    too_long = kit.store.runs.start(thread, "agent", metadata={"x": "y" * (room + 1)})
    await untouched(kit.store, InvalidError, too_long, "one byte more")
    return await kit.store.runs.start(thread, "agent", metadata={"x": "y" * room})


@case("runs", "end-at-limit", covers=("runs.cancel", "runs.rerun", "store.commit"))
async def case_end_at_limit(kit: Kit) -> None:
    """A run at its size limit can still end, in every way; nothing else makes it larger."""
    store, detail = kit.store, "x" * 2_000
    run = await _full(kit, "t")
    await untouched(store, InvalidError, store.commit("t", run=run.wait(reason="why")), "a wait")
    ends: tuple[Callable[[Run], RunChange], ...] = (
        lambda run: run.finish("Done."),
        lambda run: run.fail(detail, error={"code": 5}),
        lambda run: run.stop("limit"),
        lambda run: run.block("no"),
    )
    for end in ends:
        change = end(run)
        ended = (await store.commit("t", run=change)).run
        equal((ended.body.outcome, ended.metadata), (change.outcome, run.metadata), change.id)
        equal(await store.runs.get(run.id), ended, "as stored")
        run = await store.runs.start("t", "agent", metadata=run.metadata)
    equal(ending(await (await kit.second()).runs.cancel(run.id, detail)), ("done", "cancelled", detail), "cancelled")
    old = await store.runs.start("t", "agent", metadata=run.metadata)
    await store.runs.rerun(old.id)
    equal(ending(await store.runs.get(old.id))[:2], ("done", "cancelled"), "replaced")


@case("runs", "end-reserve", covers=("store.commit",))
async def case_end_reserve(kit: Kit) -> None:
    """The end of a full run has a reserve, and the reserve has a limit."""
    run = await _full(kit, "t")
    outcome = run.finish("").outcome
    room = limits.RUN_END_BYTES - len(write(structs.replace(run.body, outcome=outcome))) + limits.RUN_BYTES
    too_long = kit.store.commit("t", run=run.finish("y" * (room + 1)))
    await untouched(kit.store, InvalidError, too_long, "one byte more")
    ended = (await kit.store.commit("t", run=run.finish("y" * room))).run
    equal(await kit.store.runs.get(run.id), ended, "as stored")
    equal(ended.final_output, "y" * room, "whole")
