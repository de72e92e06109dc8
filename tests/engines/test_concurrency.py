"""Many callers at once: gapless logs, snapshots, cancellation, tasks and threads on one store."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from tests.engines.toys import DEADLINE, SCOPE, columns, do, drive, note, notes, open_engine

from perdure.clock import ManualClock
from perdure.errors import PerdureError, UnavailableError
from perdure.kernel.engine import Conflict, Engine
from perdure.kernel.ops import Append, Heads, Inc, Patch, Put, Read, Seq


def test_64_appenders_on_one_partition_are_gapless(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        async def appender(number: int) -> list[int]:
            ends = []
            for turn in range(5):
                applied = await do(engine, notes("t", f"{number}-{turn}-a", f"{number}-{turn}-b"))
                ends.append(applied.seqs["notes", "t"])
            return ends

        ends = [end for ends in await asyncio.gather(*[appender(n) for n in range(64)]) for end in ends]
        assert sorted(ends) == list(range(2, 641, 2))
        (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
        assert [entry[0] for entry in entries] == list(range(1, 641))
        pairs = [(entries[i][2], entries[i + 1][2]) for i in range(0, 640, 2)]
        assert all(first[:-1] == second[:-1] for first, second in pairs)  # a transaction's entries stand together

    on_tasks(scenario)


def test_a_store_closes_while_others_go_on_writing(on_tasks: Any) -> None:
    """What was submitted is finished, what comes later is refused: nobody can keep a store from closing."""

    async def scenario(engine: Engine) -> None:
        busy = asyncio.Event()

        async def writer(number: int) -> str:
            for turn in range(1_000_000):
                try:
                    await do(engine, notes(f"t{number}", f"{turn}"))
                except PerdureError as error:
                    return str(error)
                if turn == 3:
                    busy.set()
                await asyncio.sleep(0)
            raise AssertionError("the store was never closed")

        writers = [asyncio.create_task(writer(number)) for number in range(8)]
        await busy.wait()
        async with asyncio.timeout(DEADLINE):
            await engine.close()
            said = await asyncio.gather(*writers)
        assert all("closed" in words for words in said)

    on_tasks(scenario)


def test_increments_are_not_lost(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"n": 0}))
        await asyncio.gather(*[do(engine, Patch("items", ("a",), {"n": Inc(1)})) for _ in range(200)])
        assert await columns(engine, "items", "a") == {"n": 200}

    on_tasks(scenario)


def test_optimistic_writers_never_overwrite_each_other(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"n": 0}))

        async def writer() -> int:
            lost = 0
            for _ in range(5):
                while True:
                    n = (await columns(engine, "items", "a"))["n"]
                    try:
                        await do(engine, Patch("items", ("a",), {"n": n + 1}, {"n": n}), notes("t", f"{n}"))
                        break
                    except Conflict:
                        lost += 1
            return lost

        await asyncio.gather(*[writer() for _ in range(8)])
        assert await columns(engine, "items", "a") == {"n": 40}
        assert await engine.view(SCOPE, [Heads("notes", ["t"])]) == [[40]]

    on_tasks(scenario)


def test_a_view_is_one_snapshot(on_tasks: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Put("items", ("a",), {"n": 0}))
        stop = False

        async def writer() -> None:
            n = 0
            while not stop:
                await do(engine, Patch("items", ("a",), {"n": Seq("notes")}), notes("t", f"{n}"))
                n += 1

        writing = asyncio.create_task(writer())
        reads = [Read("notes", "t", desc=True, limit=1), Heads("notes", ["t"]), Read("notes", "t")]
        for _ in range(50):
            newest, heads, everything = await engine.view(SCOPE, reads)
            assert [entry[0] for entry in newest] == heads if newest else heads == [0]
            assert len(everything) == heads[0]
        stop = True
        await writing

    on_tasks(scenario)


def test_cancelling_a_caller_does_not_undo_what_it_submitted(tmp_path: Path, clock: ManualClock) -> None:
    async def main() -> None:
        engine = await open_engine("sqlite", tmp_path, clock)
        submitted = [asyncio.create_task(do(engine, notes("t", f"{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        for task in submitted[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*submitted, return_exceptions=True)
        assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) == 10
        # The store goes on, and the log has no gap whichever of the cancelled ones landed.
        await do(engine, notes("t", "after"))
        (entries,) = await engine.view(SCOPE, [Read("notes", "t")])
        assert [entry[0] for entry in entries] == list(range(1, len(entries) + 1))
        assert {f"{n}" for n in range(1, 20, 2)} | {"after"} <= {entry[2] for entry in entries}
        await engine.close()

    asyncio.run(main())


def test_closing_while_tasks_read_and_write_leaves_nobody_waiting(tmp_path: Path, clock: ManualClock) -> None:
    async def main() -> None:
        engine = await open_engine("sqlite", tmp_path, clock)
        served = 0

        async def client(number: int) -> None:
            nonlocal served
            try:
                while True:
                    await do(engine, notes("t", f"{number}-{served}"))
                    await engine.view(SCOPE, [Heads("notes", ["t"])])
                    served += 1
            except UnavailableError:
                return

        clients = [asyncio.create_task(client(n)) for n in range(12)]
        while served < 50:  # noqa: ASYNC110 - the clients have no event for it
            await asyncio.sleep(0)
        await engine.close()
        async with asyncio.timeout(30):
            await asyncio.gather(*clients)

    asyncio.run(main())


def test_a_loop_that_went_away_does_not_stop_the_others(tmp_path: Path, clock: ManualClock) -> None:
    engine = drive(open_engine("sqlite", tmp_path, clock))

    async def leave() -> None:
        for n in range(5):
            asyncio.ensure_future(do(engine, notes("t", f"left-{n}"))).cancel()
        waiting = asyncio.ensure_future(do(engine, notes("t", "left")))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(leave())
    asyncio.run(do(engine, notes("u", "x")))
    view = engine.blocking()
    assert view is not None
    drive(do(view, notes("u", "y")))
    assert drive(view.view(SCOPE, [Heads("notes", ["u"])])) == [[2]]
    drive(view.close())


def test_tasks_and_threads_share_one_writer(tmp_path: Path, clock: ManualClock) -> None:
    engine = drive(open_engine("sqlite", tmp_path, clock))
    view = engine.blocking()
    assert view is not None
    failures: list[BaseException] = []

    def thread(number: int) -> None:
        try:
            for turn in range(40):
                drive(do(view, Append("notes", "t", [note(f"thread-{number}-{turn}")])))
                (heads,) = drive(view.view(SCOPE, [Heads("notes", ["t"])]))
                assert heads[0] > turn
        except BaseException as failure:  # noqa: BLE001 - reported by the test below
            failures.append(failure)

    async def task(number: int) -> None:
        for turn in range(40):
            await do(engine, notes("t", f"task-{number}-{turn}"))
            await engine.view(SCOPE, [Read("notes", "t", desc=True, limit=3)])

    async def tasks() -> None:
        await asyncio.gather(*[task(n) for n in range(8)])

    threads = [threading.Thread(target=thread, args=(n,)) for n in range(8)]
    for started in threads:
        started.start()
    asyncio.run(tasks())
    for started in threads:
        started.join()
    assert failures == []
    (entries,) = drive(view.view(SCOPE, [Read("notes", "t")]))
    assert [entry[0] for entry in entries] == list(range(1, 641))
    drive(view.close())
