"""A run that kills its workers ends; a run that its workers leave in good order does not."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workers.scenes import LEASE, begun, ended, finish, serving
from tests.workers.test_serving import on_memory

import perdure.sync
from perdure import InvalidError, Message, NewRun, Run, RunBody, RunChange, Store, Takeovers, UnavailableError
from perdure.clock import ManualClock
from perdure.model.faithful import Extra
from perdure.model.run import BODY_READER
from perdure.workers import Job, serve, takeovers
from perdure.workers.lease import Lease

DEADLY = """
import asyncio, os, sys
import perdure
from perdure.workers import Job, serve

async def handler(job: Job) -> None:
    print(job.takeovers, flush=True)
    os._exit(139)

async def main() -> None:
    stop = asyncio.Event()
    async with perdure.open(sys.argv[1]) as store:
        async def watch() -> None:
            async for run in store.runs.follow("r"):
                if run.status == "done":
                    stop.set()
        watching = asyncio.create_task(watch())
        await serve(store, handler, poll_ms=20, lease_ms=500, max_takeovers=2, stop=stop)
        await watching

asyncio.run(main())
"""


def test_a_run_that_kills_its_workers_ends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with perdure.sync.open(url) as store:
        store.runs.start("t", "clerk", run_id="r", messages=[Message.user("Go.")])
        command = [sys.executable, "-c", DEADLY, url]
        workers = [subprocess.run(command, check=False, capture_output=True, text=True, timeout=60) for _ in range(4)]
        assert [(worker.returncode, worker.stdout) for worker in workers] == [
            (139, "0\n"),
            (139, "1\n"),
            (139, "2\n"),
            (0, ""),
        ]
        outcome = store.runs.get("r").outcome
    assert outcome is not None
    assert (outcome.termination.type, outcome.termination.code) == ("error", "worker_lost")
    assert outcome.termination.detail == "3 workers in a row were lost while they worked on it, with no step in between"


async def lost(store: Store, run: Run) -> Run:
    """A worker has picked up the run, and is killed."""
    return (await store.commit(run.thread_id, run=run.begin())).run


def test_every_step_begins_the_count_again(caplog: pytest.LogCaptureFixture) -> None:
    counts: list[tuple[int, int]] = []

    async def body(store: Store, _: ManualClock) -> None:
        run = await begun(store, "t")
        dying = asyncio.Event()

        async def handler(job: Job) -> None:
            counts.append((job.run.steps, job.takeovers))
            if job.run.steps == 1 and job.takeovers == 2:
                await job.commit(Message.assistant("A step."))
                counts.append((job.run.steps, job.takeovers))
            if job.run.steps == 2 and job.takeovers == 1:
                await finish(job)
                return
            dying.set()
            await asyncio.Event().wait()

        for _ in range(2):
            dying.clear()
            task = asyncio.create_task(serve(store, handler, poll_ms=5, lease_ms=LEASE, max_takeovers=2))
            await dying.wait()
            run = await lost(store, await store.runs.get(run.id))  # so that this one cannot release it
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with serving(store, handler, max_takeovers=2):
            await ended(store, run.id)

    on_memory(body)
    assert counts == [(1, 1), (1, 2), (2, 0), (2, 1)]
    assert "; 2 workers in a row were lost" in caplog.text


@pytest.mark.parametrize("memory", [True, False], ids=["remembered", "stored"])
@pytest.mark.parametrize("cause", ["trouble", "cancelled"])
def test_a_run_that_is_left_in_good_order_goes_on(cause: str, memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as it takes: the next worker hears of it from the run, or this process remembers it."""
    seen: list[int] = []

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        working = asyncio.Event()

        async def handler(job: Job) -> None:
            seen.append(job.takeovers)
            if not job.run.steps:
                await job.commit(Message.assistant("A step."))
            if len(seen) == 4:
                await finish(job)
                return
            if cause == "trouble":
                raise UnavailableError("down")
            working.set()
            await asyncio.Event().wait()

        if memory:
            own = takeovers.OwnRuns()
            monkeypatch.setattr("perdure.workers.serving.OwnRuns", lambda: own)
            monkeypatch.setattr("perdure.workers.driving.release", _nothing)
        else:
            monkeypatch.setattr(takeovers.OwnRuns, "includes", lambda self, run: False)
        if cause == "trouble":
            async with serving(store, handler, max_takeovers=0):
                assert (await ended(store, run.id)).final_output == "Done."
            return
        for _ in range(3):
            working.clear()
            task = asyncio.create_task(serve(store, handler, poll_ms=5, lease_ms=LEASE, max_takeovers=0))
            await working.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with serving(store, handler, max_takeovers=0):
            assert (await ended(store, run.id)).final_output == "Done."

    on_memory(body)
    assert seen == [0, 0, 0, 0]


async def _nothing(store: Store, run: Run) -> None:
    """Instead of the release: the store cannot be told."""


def test_a_worker_that_lost_its_lease_but_not_its_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not reach the store for too long. When it can, before another worker comes, it was not lost."""
    seen: list[int] = []

    async def body(store: Store, clock: ManualClock) -> None:
        monkeypatch.setattr(takeovers.OwnRuns, "includes", lambda self, run: False)
        run = await store.runs.start("t", "clerk")
        clock.advance(1)  # or the run would look as if nobody had picked it up yet

        async def unreachable(lease: Lease) -> None:
            raise UnavailableError("down")

        async def handler(job: Job) -> None:
            seen.append(job.takeovers)
            if len(seen) == 3:
                await finish(job)
            else:
                await asyncio.Event().wait()

        stop = asyncio.Event()
        with monkeypatch.context() as patch:
            patch.setattr(Lease, "_renew", unreachable)
            task = asyncio.create_task(
                serve(store, handler, poll_ms=5, lease_ms=500, max_takeovers=0, stop=stop, drain_ms=0)
            )
            while len(seen) < 3:  # noqa: ASYNC110 - each time, its lease ends
                await asyncio.sleep(0.005)
            assert (await ended(store, run.id)).final_output == "Done."
        stop.set()
        await task

    on_memory(body)
    assert seen == [0, 0, 0]


def test_the_release_of_a_replaced_worker_does_not_disturb_its_successor() -> None:
    """A tool hangs beyond the lease; its late result is stored, and the run is left to who has it now."""
    ends: list[str] = []

    async def body(store: Store, clock: ManualClock) -> None:
        run = await begun(store, "t")
        hanging, goes_on, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow(job: Job) -> None:
            hanging.set()
            with job.shield():
                await goes_on.wait()
                while not job.stopped:  # noqa: ASYNC110 - its lease is lost
                    await asyncio.sleep(0.005)
                await job.commit(Message.tool("c-1", "Paid 40."))

        async def quick(job: Job) -> None:
            await job.commit(Message.tool("c-1", "Unknown."))
            answered.set()
            await first  # it stores its late result, and does whatever it does at its end
            assert len(await store.messages.path("t")) == 4
            await finish(job)
            ends.append("done")

        stop = asyncio.Event()
        first = asyncio.create_task(serve(store, slow, poll_ms=5, lease_ms=500, stop=stop))
        await hanging.wait()
        clock.advance(500)
        async with serving(store, quick):
            await answered.wait()
            stop.set()
            goes_on.set()
            await ended(store, run.id)

    on_memory(body)
    assert ends == ["done"]


def test_after_a_release_the_next_lost_worker_counts() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        run = await begun(store, "t")
        await takeovers.release(store, run)
        run = await store.runs.get(run.id)
        said = takeovers.counted(run, own=False)
        assert said == Takeovers(released=False)
        run = (await store.commit("t", run=RunChange(run=run, takeovers=said))).run
        assert takeovers.counted(run, own=True) is None
        assert takeovers.counted(run, own=False) == Takeovers(count=1, steps=1)

    on_memory(body)


def test_a_run_that_is_given_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body(store: Store, _: ManualClock) -> None:
        run = await begun(store, "t")
        caplog.set_level(logging.INFO, "perdure.workers")
        async with serving(store, finish, max_takeovers=0):
            await ended(store, run.id)
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert [text.split(": ")[0] for text in errors] == [
            f"run {run.id!r} is not picked up again, and ends with an error"
        ]

    on_memory(body)


def test_what_a_run_says_of_lost_workers_is_checked_and_kept() -> None:
    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        for wrong in (Takeovers(count=-1), Takeovers(steps="x"), "x"):  # type: ignore[arg-type]
            with pytest.raises(InvalidError):
                await store.commit("t", run=RunChange(run=run, takeovers=wrong))  # type: ignore[arg-type]
        with pytest.raises(InvalidError, match="new run"):
            await store.commit("t", run=NewRun(agent_id="x", body=RunBody(takeovers=Takeovers(count=1))))
        newer = Takeovers(count=1, extra=Extra(host="a"))
        run = (await store.commit("t", run=RunChange(run=run, takeovers=newer))).run
        run = (await store.commit("t", run=run.step())).run
        assert (await store.runs.get(run.id)).body.takeovers == newer

    on_memory(body)
    foreign = BODY_READER.read(b'{"takeovers":"many"}')
    assert (foreign.takeovers, foreign.extra) == (None, {"takeovers": "many"}), "of an older build's caller"
