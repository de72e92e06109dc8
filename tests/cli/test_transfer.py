"""Export and import: what goes out comes in equal, however large, whatever interrupts it, whoever wrote the file."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cli.samples import conversation, everything
from tests.cli.transfers import Lines, exported, fresh, refuse, run

import perdure
from perdure import (
    AlreadyExists,
    ConflictError,
    InvalidError,
    Message,
    NotFoundError,
    Store,
    UnsupportedError,
    failpoints,
)
from perdure.audit import verify
from perdure.clock import ManualClock, system_clock
from perdure.engines.memory import open_memory
from perdure.kernel.ops import Append, Get, Heads, Put, Read, Scan
from perdure.kernel.schema import Index, Log, Table, integer, text
from perdure.stores.cleanup import sweep
from perdure.stores.schema import SCHEMA
from perdure.stores.transfer.export import Imported, TransferProgress, export_lines, import_lines


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    failpoints.disarm()


async def long_thread(store: Store, count: int = 1_200, thread: str = "long") -> None:
    """More messages than one chunk holds."""
    for start in range(0, count, 400):
        batch = [Message.user(f"message {i}") for i in range(start, min(start + 400, count))]
        await store.commit(thread, messages=batch, key=f"k{start}")


def test_exporting_what_was_imported_gives_the_same_lines() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await everything(one)
            lines = await exported(one)
            done = await import_lines(two, lambda: lines)
            assert done == Imported(threads=7, skipped=0, records=len(lines) - 2)
            assert await exported(two) == lines
            assert await verify(two) == []
            for thread in ("kyoto", "hostile [bold]"):
                assert await _seen(two, thread) == await _seen(one, thread)
            assert (await two.threads.get("kyoto")).children == 2
            assert await two.threads.find("gone") is None

    run(scenario)


async def _seen(store: Store, thread: str) -> object:
    """What users see of a thread, without the revs, which are minted anew."""
    loaded = await store.load(thread)
    runs = [msgspec.structs.replace(item, rev=0) async for item in store.runs.iter(thread_id=thread)]
    return (
        msgspec.structs.replace(loaded.thread, rev=0),
        loaded.branch,
        loaded.messages,
        {name: msgspec.structs.replace(doc, rev=0) for name, doc in loaded.state.items()},
        runs,
        await store.branches.list(thread),
        await store.branches.labels(thread),
        await store.messages.external(thread),
        await store.messages.unfinished_calls(thread),
        (await store.pending.list(thread)).items,
        [item async for item in store.messages.iter(thread)],
    )


def test_every_line_is_json_that_tools_understand() -> None:
    async def scenario() -> None:
        async with fresh(scope="acme") as store:
            await everything(store)
            lines = [json.loads(line) for line in await exported(store)]
            assert lines[0] == {"perdure": 1, "schema": SCHEMA.version, "scope": "acme"}
            assert lines[-1] == {"end": {"threads": 7, "lines": len(lines) - 2}}
            message = next(line for line in lines if line.get("log") == "messages" and line["partition"] == "kyoto")
            assert message["seq"] == 1
            assert message["columns"]["id"] == "kyoto-ask"
            assert message["body"] == {"content": [{"type": "text", "text": "Two days in Kyoto?"}]}

    run(scenario)


def test_parents_come_before_their_children_whatever_their_age() -> None:
    async def scenario() -> None:
        async with fresh() as store:
            await everything(store)
            heads = [json.loads(line) for line in await exported(store) if b'"thread_heads"' in line]
            seen: set[str] = set()
            for head in heads:
                assert head["columns"].get("parent") in (None, *seen)
                seen.add(head["key"][0])
            assert len(seen) == 7

    run(scenario)


def test_threads_can_be_chosen() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await everything(one)
            lines = await exported(one, ["child", "kyoto", "child"])
            assert [json.loads(line)["key"][0] for line in lines if b'"thread_heads"' in line] == ["kyoto", "child"]
            await import_lines(two, lambda: lines)
            assert await exported(two, ["kyoto", "child"]) == lines
            assert (await two.threads.get("kyoto")).children == 1
            assert await verify(two) == []
            with pytest.raises(NotFoundError, match="'nobody' does not exist"):
                await exported(one, ["kyoto", "nobody"])

    run(scenario)


def test_a_thread_without_its_parent_is_refused_or_becomes_a_root() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await everything(one)
            lines = await exported(one, ["child"])
            await refuse(two, lines, NotFoundError, "the parent 'kyoto' of thread 'child'")
            await import_lines(two, lambda: lines, detach=True)
            assert (await two.threads.get("child")).parent_thread_id is None
            assert await verify(two) == []

    run(scenario)


def test_a_thread_finds_its_parent_in_the_store() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await everything(one)
            parent, child = await exported(one, ["kyoto"]), await exported(one, ["child"])
            await import_lines(two, lambda: parent)
            await import_lines(two, lambda: child)
            assert (await two.threads.get("kyoto")).children == 1
            assert [item.id for item in (await two.threads.children("kyoto")).items] == ["child"]
            assert await verify(two) == []

    run(scenario)


def test_an_existing_thread_is_refused_before_anything_is_written() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await everything(one)
            lines = await exported(one)
            await two.threads.create("empty", title="mine")
            await refuse(two, lines, AlreadyExists, "'empty' already exists")
            done = await import_lines(two, lambda: lines, skip_existing=True)
            assert (done.threads, done.skipped) == (6, 1)
            assert (await two.threads.get("empty")).title == "mine"
            assert await verify(two) == []

    run(scenario)


def test_a_run_of_another_thread_is_never_overwritten() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await one.runs.start("theirs", "agent", run_id="r")
            mine = await two.runs.start("mine", "agent", run_id="r")
            lines = await exported(one)
            await refuse(
                two, lines, AlreadyExists, "run 'r' of thread 'theirs' already exists and belongs to thread 'mine'"
            )
            assert await two.runs.get("r") == mine

    run(scenario)


def test_a_deleted_thread_can_be_brought_back() -> None:
    async def scenario() -> None:
        async with fresh() as store:
            await conversation(store)
            await long_thread(store)
            lines = await exported(store)
            await store.threads.delete("kyoto")
            await store.threads.delete("long")
            await import_lines(store, lambda: lines)
            assert await exported(store) == lines
            assert await verify(store) == []
            # Nothing remembered of the earlier thread may be believed of this one.
            await store.branches.fork("kyoto", at="kyoto-answer", name="again", switch=True)
            assert [record.message_id for record in await store.messages.history("kyoto")][-1] == "kyoto-answer"

    run(scenario)


def test_a_long_thread_is_invisible_until_it_is_whole() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await long_thread(one)
            lines = await exported(one)
            looks: list[object] = []

            def look(_: str) -> None:
                with pytest.raises(StopIteration) as answer:
                    two.threads.find("long").send(None)
                looks.append(answer.value.value)

            for crossing in (1, 2):
                failpoints.disarm()
                failpoints.arm("import.between_chunks", look, after=crossing)
                await import_lines(two, lambda: lines)
                assert await exported(two) == lines
                await two.threads.delete("long")
            assert looks == [None, None]

    run(scenario)


@pytest.mark.parametrize("crossing", [1, 2])
def test_an_import_that_fails_half_way_takes_its_things_with_it(crossing: int) -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await conversation(one)
            await long_thread(one)
            lines = await exported(one)
            failpoints.arm("import.between_chunks", "error", after=crossing)
            with pytest.raises(OSError, match="failpoint"):
                await import_lines(two, lambda: lines)
            assert await two.threads.find("long") is None
            assert await two._context.view(Heads("messages", ["long"]), Get("threads", [("long",)])) == [[0], [None]]
            assert await verify(two) == []
            done = await import_lines(two, lambda: lines, skip_existing=True)
            assert (done.threads, done.skipped) == (1, 1)
            assert await exported(two) == lines

    run(scenario)


CRASHING = """
import asyncio, sys
import perdure
from perdure.stores.transfer.export import import_lines, read_lines

async def main():
    async with perdure.open(sys.argv[1]) as store:
        with open(sys.argv[2], "rb") as file:
            lines = list(read_lines(file))
        await import_lines(store, lambda: lines)

asyncio.run(main())
"""


@pytest.mark.parametrize("crossing", [1, 2])
def test_an_import_that_is_killed_can_be_run_again(tmp_path: Path, crossing: int) -> None:
    url, file = f"sqlite:///{tmp_path}/agents.db", tmp_path / "export.jsonl"
    command = [sys.executable, "-c", CRASHING, url, str(file)]

    async def write() -> Lines:
        async with fresh() as store:
            await conversation(store)
            await long_thread(store)
            return await exported(store)

    lines = asyncio.run(write())
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    killed = {**os.environ, "PERDURE_FAILPOINTS": f"import.between_chunks=crash@{crossing}"}
    assert subprocess.run(command, env=killed, check=False).returncode == -9

    async def between() -> None:
        async with perdure.open(url) as store:
            assert await store.threads.find("long") is None
            assert await store._context.view(Heads("messages", ["long"])) != [[0]]
            assert [page.id for page in (await store.threads.list()).items] == ["kyoto"]
            assert await verify(store) == []
            await store.threads.delete("kyoto")

    asyncio.run(between())
    subprocess.run(command, check=True)

    async def afterwards() -> None:
        async with perdure.open(url) as store:
            assert await exported(store) == lines
            assert await verify(store) == []

    asyncio.run(afterwards())


async def _interrupted(store: Store, lines: Lines) -> None:
    """What a killed process leaves: the first chunk, and nobody to take it away."""

    class Killed(BaseException):
        pass

    def stop(_: str) -> None:
        raise Killed

    failpoints.arm("import.between_chunks", stop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.stores.transfer.arrival.Arrival.abandon", _nothing)
        with pytest.raises(Killed):
            await import_lines(store, lambda: lines)


async def _nothing(_: object) -> None:
    return None


def test_a_sweep_removes_what_an_import_left_but_not_what_it_is_writing() -> None:
    async def scenario() -> None:
        clock = ManualClock(system_clock())
        async with fresh() as one, perdure.open("memory://", clock=clock) as two:
            await long_thread(one)
            lines = await exported(one)
            await _interrupted(two, lines)
            await sweep(two._context)
            assert await two._context.view(Heads("messages", ["long"])) != [[0]]
            clock.advance(61_000)
            await sweep(two._context)
            assert await two._context.view(Heads("messages", ["long"]), Scan("keys")) == [[0], []]
            assert await verify(two) == []
            await import_lines(two, lambda: lines)
            assert await exported(two) == lines

    run(scenario)


def test_a_later_import_of_the_same_thread_stops_the_earlier_one() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await long_thread(one)
            lines = await exported(one)

            def another(_: str) -> None:
                with pytest.raises(StopIteration):
                    import_lines(two, lambda: lines).send(None)

            failpoints.arm("import.between_chunks", another)
            with pytest.raises(ConflictError, match="'long'"):
                await import_lines(two, lambda: lines)
            assert await exported(two) == lines
            assert await verify(two) == []

    run(scenario)


def test_an_id_is_not_taken_by_an_import_that_failed() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await long_thread(one)
            lines = await exported(one)
            failpoints.arm("import.between_chunks", "error")
            with pytest.raises(OSError, match="failpoint"):
                await import_lines(two, lambda: lines)
            await two.commit("long", messages=[Message.user("mine")])
            assert (await two.threads.get("long")).version == 1

    run(scenario)


def test_a_thread_that_is_written_to_is_exported_as_it_was() -> None:
    async def scenario() -> None:
        async with fresh() as store, fresh() as two:
            await long_thread(store, 120)
            lines: Lines = []
            async for line in export_lines(store):
                lines.append(line)
                if len(lines) in (3, 60):
                    await store.commit("long", messages=[Message.user("meanwhile")], state={"late": len(lines)})
            await import_lines(two, lambda: lines)
            assert (await two.threads.get("long")).version == 120
            assert await verify(two) == []

    run(scenario)


def test_a_thread_that_is_deleted_meanwhile_is_no_half_thread() -> None:
    async def scenario() -> None:
        async with fresh() as store:
            await long_thread(store, 120)

            async def delete_half_way() -> None:
                async for line in export_lines(store):
                    if b'"seq":10,' in line:
                        await store.threads.delete("long")

            with pytest.raises(ConflictError, match="deleted during the export"):
                await delete_half_way()

    run(scenario)


def test_progress_is_told() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await everything(one)
            told: list[TransferProgress] = []
            lines = [line async for line in export_lines(one, on_progress=told.append)]
            assert (told[-1].threads, told[-1].lines) == (7, len(lines) - 2)
            told.clear()
            await import_lines(two, lambda: lines, on_progress=told.append)
            total = sum(len(line) + 1 for line in lines)
            assert [item.bytes for item in told if item.lines == len(lines)] == [total, total]
            assert [item.stage for item in told if item.lines == 1] == ["checking", "writing"]

    run(scenario)


LATER = msgspec.structs.replace(
    SCHEMA,
    version=SCHEMA.version + 1,
    tables=(
        *SCHEMA.tables,
        Table("settings", key=text("name"), columns=integer("at")),
        Table("notes", key=text("thread", "note"), columns=integer("at"), owner="thread"),
        Table(
            "jobs",
            key=text("job"),
            columns=text("thread") + integer("at"),
            indexes=(Index("thread", by=("thread",), order=("at",)),),
            owner="thread",
        ),
    ),
    logs=(*SCHEMA.logs, Log("events", partition="thread", columns=text("kind"), owner="thread")),
)


def test_a_store_that_is_added_later_is_carried_without_a_change() -> None:
    async def scenario() -> None:
        one, two = Store(await open_memory(LATER)), Store(await open_memory(LATER))
        await conversation(one)
        await one._context.transact(
            [
                Put("settings", ("theme",), {"at": 1}, b'{"dark":true}'),
                Put("notes", ("kyoto", "n1"), {"at": 2}, b'"remember"'),
                Put("jobs", ("j1",), {"thread": "kyoto", "at": 3}),
                Put("jobs", ("j2",), {"thread": None, "at": 4}),
                Append("events", "kyoto", [("born", b"{}"), ("named", b"[1]")]),
            ]
        )
        lines = await exported(one)
        await import_lines(two, lambda: lines)
        assert await exported(two) == lines
        (settings,), (event, _) = await two._context.view(Scan("settings"), Read("events", "kyoto"))
        assert (settings.key, settings.body) == (("theme",), b'{"dark":true}')
        assert event[2] == "born"

        await two.threads.delete("kyoto")
        with pytest.raises(AlreadyExists, match="settings"):
            await import_lines(two, lambda: lines)
        await import_lines(two, lambda: lines, skip_existing=True)
        assert await exported(two) == lines

        async with fresh() as older:
            await refuse(older, lines, InvalidError, "newer Perdure")

    run(scenario)


def test_a_log_that_is_no_threads_is_not_silently_left_out() -> None:
    async def scenario() -> None:
        schema = msgspec.structs.replace(SCHEMA, logs=(*SCHEMA.logs, Log("audit", partition="day")))
        with pytest.raises(UnsupportedError, match="audit"):
            await exported(Store(await open_memory(schema)))

    run(scenario)


def test_bodies_are_kept_to_the_letter() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            value = {"big": 2**70, "exact": 1.0, "tiny": 5e-324, "text": "é\u2028\ud7ff😀", "nothing": None, "": []}
            await one.commit("t", messages=[Message.user("x", metadata=value)], state={"s": value})
            lines = await exported(one)
            await import_lines(two, lambda: lines)
            restored = (await two.state.get("t", "s")).value
            assert restored == value
            assert type(restored["exact"]) is float
            assert (await two.messages.history("t"))[0].message.metadata == value

    run(scenario)
