"""A copy holds what the original holds, goes on where it was killed, and never overwrites anything."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.copy.samples import SCOPES, dumps, fill
from tests.engines.toys import drive

import perdure
from perdure import ConflictError, CorruptError, InvalidError, Message, NotFoundError, Store
from perdure.audit import verify_engine
from perdure.copy import LAST, Copied, copy_engine, copy_store
from perdure.kernel.engine import Engine
from perdure.kernel.ops import PRESENT, Delete, Patch, Put, Scan
from perdure.opening import open_engine

KILLED = """
import asyncio, os, signal, sys
from perdure.copy import copy_store

def stop(told):
    if told.stage == sys.argv[3] and told.done >= int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(copy_store(sys.argv[1], sys.argv[2], on_progress=stop))
"""


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


@asynccontextmanager
async def engine_at(url: str = "memory://", *, read_only: bool = False) -> AsyncIterator[Engine]:
    engine = await open_engine(url, read_only=read_only, durability="process")
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def filled() -> AsyncIterator[Engine]:
    async with engine_at() as engine:
        await fill(engine)
        yield engine


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('copy') / 'original.db'}"

    async def make() -> None:
        async with engine_at(url) as engine:
            await fill(engine)

    asyncio.run(make())
    return url


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def held(url: str) -> dict[str, list[bytes]]:
    async with engine_at(url, read_only=True) as engine:
        assert await verify_engine(engine) == []
        return await dumps(engine)


def test_sqlite_to_memory_and_back(original: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        target = f"sqlite:///{tmp_path / 'target.db'}"
        async with engine_at(original, read_only=True) as source, engine_at() as memory, engine_at(target) as last:
            done = await copy_engine(source, memory, last=LAST)
            assert done.missing == done.rows > 1_000
            assert all(part.checksum for part in done.parts)
            assert {part.scope for part in done.parts} == set(SCOPES) == set(await last.scopes() or SCOPES)
            assert (await copy_engine(memory, last, last=LAST)).parts == done.parts
            assert await dumps(last) == await dumps(memory) == await dumps(source)
            assert await verify_engine(last) == []

    run(scenario)


def test_again_changes_nothing(original: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        target = str(tmp_path / "target.db")
        first = await copy_store(original, target)
        before = await held(target)
        again = await copy_store(original, target)
        assert (first.missing, again.missing, again.rows) == (first.rows, 0, first.rows)
        assert [part.checksum for part in again.parts] == [part.checksum for part in first.parts]
        assert await held(target) == before == await held(original)

    run(scenario)


def killed_at(source: str, target: str, stage: str, done: int) -> bool:
    """Copy in another process that kills itself at this row; False if it came to the end before."""
    program = [sys.executable, "-c", KILLED, source, target, stage, str(done)]
    answer = subprocess.run(program, capture_output=True, check=False)
    assert answer.returncode in (0, -signal.SIGKILL), answer.stderr.decode()
    return answer.returncode != 0


@pytest.mark.parametrize(("stage", "done"), [("copying", 700), ("copying", 2_400), ("verifying", 9)])
def test_killed_half_way_and_run_again(original: str, tmp_path: Path, stage: str, done: int) -> None:
    target = str(tmp_path / "target.db")
    assert killed_at(original, target, stage, done)

    async def scenario() -> None:
        went_on = await copy_store(original, target)
        assert went_on.missing < went_on.rows
        assert (went_on.missing > 0) is (stage == "copying")
        assert await held(target) == await held(original)

    run(scenario)


def test_a_half_copied_thread_is_not_alive(original: str, tmp_path: Path) -> None:
    """Wherever the copy stops, a thread that can be seen is a whole one."""
    target = str(tmp_path / "target.db")
    kills = alive = 0

    async def look() -> int:
        seen = 0
        async with engine_at(original, read_only=True) as source, engine_at(target) as engine:
            for scope in await engine.scopes():
                store, wanted = Store(engine, scope), Store(source, scope)
                async for thread in store.threads.iter():
                    found, there = await store.load(thread.id), await wanted.load(thread.id)
                    assert [r.to_json() for r in found.messages] == [r.to_json() for r in there.messages]
                    seen += 1
        return seen

    while killed_at(original, target, "copying", 520):
        kills += 1
        before, alive = alive, asyncio.run(look())
        assert alive >= before
    assert kills >= 4
    assert 0 < alive < asyncio.run(look())


def test_a_dry_run_tells_and_touches_nothing(original: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        target = tmp_path / "target.db"
        told = await copy_store(original, str(target), dry_run=True)
        assert told.dry_run
        assert told.missing == told.rows > 0
        assert not any(part.checksum for part in told.parts)
        assert files(tmp_path) == []
        await copy_store(original, str(target), scopes=["acme"])
        before = target.read_bytes()
        left = await copy_store(original, str(target), dry_run=True)
        assert 0 < left.missing < left.rows
        assert {part.scope for part in left.parts if part.missing} == set(SCOPES) - {"acme"}
        assert target.read_bytes() == before

    run(scenario)


def test_some_scopes_only(original: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        target = f"sqlite:///{tmp_path / 'target.db'}"
        done = await copy_store(original, target, scopes=["acme"])
        assert {part.scope for part in done.parts} == {"acme"}
        async with engine_at(target) as engine, engine_at(original, read_only=True) as source:
            assert await engine.scopes() == ["acme"]
            assert await dumps(engine, ["acme"]) == await dumps(source, ["acme"])
        with pytest.raises(NotFoundError, match="no scope 'nobody'"):
            await copy_store(original, target, scopes=["nobody"])

    run(scenario)


Change = Callable[[Engine], Coroutine[Any, Any, Any]]
DIFFERENCES: dict[str, tuple[Change, str]] = {
    "another value": (
        lambda e: e.transact("acme", [Patch("threads", ("kyoto",), {"title": "Other"})]),
        "table threads, scope 'acme', 'kyoto' differs: title is 'Plan a trip' here and 'Other' there",
    ),
    "another body": (
        lambda e: e.transact("acme", [Patch("threads", ("kyoto",), {}, PRESENT, b'{"other":1}')]),
        "table threads, scope 'acme', 'kyoto' differs: its content is another",
    ),
    "a row too many": (
        lambda e: e.transact("acme", [Put("labels", ("zz", "zz"), {"seq": 1})]),
        "table labels, scope 'acme', 'zz', 'zz' is at the destination and not at the source",
    ),
    "a longer log": (
        lambda e: Store(e, "acme").commit("thread-001 ß🦆", messages=[Message.user("more")]),
        "log messages, scope 'acme', 'thread-001 ß🦆', 2 is at the destination",
    ),
    "a partition too many": (
        lambda e: Store(e, "acme").commit("aaa", messages=[Message.user("more")]),
        "log messages, scope 'acme', 'aaa', 1 is at the destination",
    ),
    "a scope too many": (
        lambda e: Store(e, "other").threads.create("t"),
        "the destination has scope 'other'",
    ),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_what_differs_is_named_and_nothing_is_written(what: str) -> None:
    change, words = DIFFERENCES[what]

    async def scenario() -> None:
        async with filled() as source, engine_at() as target:
            await copy_engine(source, target, last=LAST)
            await change(target)
            # Something is missing as well, and must stay so: a store of somebody else's is left alone.
            await target.transact("acme", [Delete("thread_heads", ("empty",))])
            before = [await _rows(target, scope) for scope in await target.scopes()]
            with pytest.raises(ConflictError) as caught:
                await copy_engine(source, target, last=LAST)
            assert words in caught.value.message
            assert [await _rows(target, scope) for scope in await target.scopes()] == before

    run(scenario)


async def _rows(engine: Engine, scope: str) -> list[Any]:
    return await engine.view(scope, [Scan(table.name) for table in engine.schema.tables])


def test_a_writer_at_the_destination_is_noticed() -> None:
    async def scenario() -> None:
        async with filled() as source, engine_at() as target:
            meddled: list[bool] = []

            def meddle(told: Any) -> None:
                if told.stage == "verifying" and not meddled:
                    meddled.append(True)
                    task = Store(target, "default").threads.update("kyoto", title="changed")
                    tasks.append(asyncio.ensure_future(task))

            tasks: list[Any] = []
            with pytest.raises(ConflictError, match="not the same on both sides"):
                await _slowly(source, target, meddle)
            await asyncio.gather(*tasks)

    run(scenario)


Write = Callable[[Store], Coroutine[Any, Any, Any]]
LATE_WRITES: dict[str, tuple[Write, str]] = {
    "a scope": (lambda s: s.scoped("new").threads.create("t"), "scope 'new' came up"),
    "an entry": (
        lambda s: s.commit("long", messages=[Message.user("late")]),
        "log messages of scope 'acme' was written",
    ),
    "a thread": (lambda s: s.commit("0", messages=[Message.user("late")]), "log messages of scope 'acme' was written"),
    "a changed row": (lambda s: s.threads.update("long", title="late"), "table threads of scope 'acme' was written"),
    "the same row again": (
        lambda s: s.engine.transact("acme", [Patch("thread_heads", ("long",), {})]),
        "table thread_heads of scope 'acme' was written",
    ),
    "a row less": (
        lambda s: s.engine.transact("acme", [Delete("thread_heads", ("long",))]),
        "table thread_heads of scope 'acme' was written",
    ),
}


@pytest.mark.parametrize("at", ["source", "destination"])
@pytest.mark.parametrize("what", LATE_WRITES)
def test_a_write_behind_the_verifier_is_noticed(what: str, at: str) -> None:
    """It happens when the last row of both sides was read."""
    write, words = LATE_WRITES[what]

    async def scenario() -> None:
        async with filled() as source, engine_at() as target:
            side = (source if at == "source" else target).blocking()
            assert side is not None
            late: list[Any] = []

            def meddle(told: Any) -> None:
                if told.stage == "verifying" and told.done == told.total:
                    late.append(drive(write(Store(side, "acme"))))

            with pytest.raises(ConflictError) as caught:
                await copy_engine(source, target, last=LAST, on_progress=meddle)
            assert words in caught.value.message
            assert len(late) == 1

    run(scenario)


def test_a_new_scope_is_no_concern_of_who_copies_others() -> None:
    async def scenario() -> None:
        async with filled() as source, engine_at() as target:
            side = source.blocking()
            assert side is not None

            def meddle(told: Any) -> None:
                if told.done == told.total:
                    drive(Store(side, "new").threads.create(f"{told.stage}-t"))

            done = await copy_engine(source, target, scopes=["acme"], last=LAST, on_progress=meddle)
            assert {part.scope for part in done.parts} == {"acme"}
            assert "new" in await source.scopes()

    run(scenario)


async def _slowly(source: Engine, target: Engine, meddle: Callable[[Any], None]) -> Copied:
    """A copy whose reads let other tasks work."""

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(source, name)

        async def view(self, scope: str, reads: Any) -> list[Any]:
            for _ in range(20):
                await asyncio.sleep(0)
            return await source.view(scope, reads)

    return await copy_engine(Slow(), target, last=LAST, on_progress=meddle)  # type: ignore[arg-type]


def test_spelling_of_json_does_not_matter() -> None:
    async def scenario() -> None:
        async with engine_at() as source, engine_at() as target:
            await source.transact("s", [Put("threads", ("t",), {}, b'{"a":1,"b":[1.5,null]}')])
            await target.transact("s", [Put("threads", ("t",), {}, b'{ "b": [1.5, null], "a": 1 }')])
            done = await copy_engine(source, target)
            assert (done.rows, done.missing) == (1, 0)

    run(scenario)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("memory://", "a.db", "not persistent"),
        ("a.db", "memory://", "not persistent"),
        ("a.db", "a.db", "are the same"),
        ("postgresql://u:hunter2@nowhere/x", "postgresql://u:hunter2@nowhere/x", "the same: postgresql://u:\\*\\*\\*@"),
        ("a.txt", "b.db", "not a URL"),
    ],
)
def test_what_makes_no_sense_is_refused(source: str, target: str, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        asyncio.run(copy_store(source, target))


def test_a_missing_source_makes_no_target(tmp_path: Path) -> None:
    with pytest.raises(perdure.UnavailableError, match="does not exist"):
        asyncio.run(copy_store(str(tmp_path / "no.db"), str(tmp_path / "target.db")))
    assert files(tmp_path) == []


def test_a_retry_after_the_move_has_no_second_effect(tmp_path: Path) -> None:
    async def scenario() -> None:
        target = f"sqlite:///{tmp_path / 'target.db'}"
        async with engine_at() as source, engine_at(target) as engine:
            before, after = Store(source), Store(engine)
            run_before = await before.runs.start("t", "planner", messages=[Message.user("Hello")])
            said = [Message.assistant("Hi")]
            first = await before.commit("t", messages=said, run=run_before.finish(), key="k")
            await copy_engine(source, engine, last=LAST)
            again = await after.commit("t", messages=said, run=run_before.finish(), key="k")
            assert (again.replayed, again.message_ids, again.version) == (True, first.message_ids, 2)
            assert (await after.commit("t", messages=[Message.user("next")])).version == 3

    run(scenario)


def damaged_copy(original: str, folder: Path, statement: str) -> str:
    """The same store, with damage done to its file."""
    path = folder / "damaged.db"
    opened = sqlite3.connect(original.removeprefix("sqlite:///")), sqlite3.connect(path)
    with contextlib.closing(opened[0]) as sound, contextlib.closing(opened[1]) as damaged:
        sound.backup(damaged)
        damaged.executescript(statement)
    return f"sqlite:///{path}"


def test_damage_is_copied_as_it_is_and_an_audit_of_either_side_tells_it(original: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        source = damaged_copy(original, tmp_path, "UPDATE runs SET agent_id = NULL; DELETE FROM branches;")
        target = f"sqlite:///{tmp_path / 'copy.db'}"
        await copy_store(source, target)
        found = []
        for url in (source, target):
            async with engine_at(url, read_only=True) as engine:
                found.append(sorted(map(str, await verify_engine(engine))))
        if found[0] != found[1] or not found[0]:
            raise AssertionError(f"the audits differ, or find nothing: {found}")

    run(scenario)


def test_a_value_that_no_engine_would_take_is_refused_with_its_row(original: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        source = damaged_copy(
            original, tmp_path, "UPDATE runs SET steps = 'many' WHERE run = (SELECT min(run) FROM runs)"
        )
        with pytest.raises(CorruptError, match=r"scope .*: runs .*: runs.steps is 'many'.*doctor verify"):
            await copy_store(source, f"sqlite:///{tmp_path / 'copy.db'}")

    run(scenario)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((5, "sqlite:///b.db"), {}, "URL must be a str"),
        (("sqlite:///a.db", Path("b.db")), {}, "URL must be a str"),
        (("sqlite:///a.db", "memory://"), {}, "not persistent"),
        (("sqlite:///a.db", "sqlite:///b.db"), {"scopes": "acme"}, "list of names"),
        (("sqlite:///a.db", "sqlite:///b.db"), {"scopes": [""]}, "must not be empty"),
        (("sqlite:///a.db", "sqlite:///b.db"), {"dry_run": "no"}, "dry_run must be a bool"),
        (("sqlite:///a.db", "sqlite:///b.db"), {"on_progress": 5}, "on_progress must be a function"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    arguments: tuple[Any, Any], options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidError, match=message):
        asyncio.run(copy_store(*arguments, **options))
    assert not list(tmp_path.iterdir())
