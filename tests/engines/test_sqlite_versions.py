"""Schema versions of a file: older ones are brought up to date in one step, everything else is refused untouched."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engines.toys import SCHEMA, SCOPE, do, drive, notes
from tests.fixtures.make_old_db import MADE_AT, VERSIONS, declared, fixture

from perdure import failpoints
from perdure.audit import verify_engine
from perdure.clock import ManualClock
from perdure.engines.sqlite import open_sqlite
from perdure.engines.sqlite.connections import connect
from perdure.errors import CorruptError, InvalidError, PerdureError, UnavailableError, UnsupportedError
from perdure.kernel.ops import Append, Put, Read, Scan
from perdure.kernel.schema import Index, Log, Schema, Table, integer, text
from perdure.stores import schema
from perdure.stores.cleanup import sweep
from perdure.stores.store import Store

MIGRATE = "import asyncio, sys; from tests.engines.test_sqlite_versions import migrate; migrate(sys.argv[1])"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def old(tmp_path: Path, version: int) -> Path:
    path = tmp_path / "old.db"
    shutil.copy(fixture(version), path)
    return path


def touch(path: Path, schema: Schema) -> None:
    """Open the file with a schema and close it again."""
    view = drive(open_sqlite(str(path), schema)).blocking()
    assert view is not None
    drive(view.close())


def migrate(path: str) -> None:
    """Open the file with today's schema, in whichever process this is."""
    touch(Path(path), schema.SCHEMA)


def child(path: Path, failpoint: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PERDURE_FAILPOINTS": failpoint}
    return subprocess.Popen([sys.executable, "-c", MIGRATE, str(path)], env=environment)


def contents(path: Path, schema: Schema) -> dict[str, list[Any]]:
    """Every row, by the columns that the schema declares."""
    connection = sqlite3.connect(path)
    try:
        found = {}
        for table in schema.tables:
            names = ", ".join(f'"{c}"' for c in ("scope", *table.key_names, "rev", *table.column_names, "body"))
            found[table.name] = sorted(connection.execute(f'SELECT {names} FROM "{table.name}"').fetchall(), key=str)
        for log in schema.logs:
            found[log.name] = connection.execute(f'SELECT * FROM "{log.name}" ORDER BY 1, 2, 3').fetchall()
        return found
    finally:
        connection.close()


def recorded(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    try:
        return dict(connection.execute("SELECT name, value FROM perdure_meta").fetchall())
    finally:
        connection.close()


def names(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall()}
    finally:
        connection.close()


def page_size(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[16:18], "big")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refusal(path: Path, schema: Schema, kind: type[PerdureError], **options: Any) -> str:
    """The message with which opening must be refused."""
    with pytest.raises(kind) as caught:
        drive(open_sqlite(str(path), schema, **options))
    return str(caught.value)


def newer(schema: Schema, **changes: Any) -> Schema:
    return msgspec.structs.replace(schema, version=schema.version + 1, **changes)


def test_there_is_a_file_of_every_older_version() -> None:
    assert tuple(range(1, schema.SCHEMA.version)) == VERSIONS


def test_the_fixture_is_of_the_older_version(old: Path, version: int) -> None:
    assert recorded(old)["version"] == str(version)
    assert ("runs__thread_status" in names(old)) is (version > 1)
    assert "runs__agent" not in names(old)


def test_an_older_file_is_migrated_and_audits_clean(old: Path, version: int) -> None:
    before = contents(old, declared(version))
    assert all(
        before[name] for name in ("threads", "branches", "runs", "state", "keys", "labels", "pending", "messages")
    )
    migrate(str(old))
    assert contents(old, declared(version)) == before
    assert page_size(old) == 4096 == 2 * connect.PAGE_SIZE  # a file keeps its pages

    async def main() -> None:
        clock = ManualClock(MADE_AT)
        engine = await open_sqlite(str(old), schema.SCHEMA, clock=clock)
        async with Store(engine, "default") as store:
            assert await verify_engine(engine) == []
            history = await store.messages.history("thread-branched")
            assert [record.text for record in history] == ["Which database?", "SQLite.", "And PostgreSQL?"]
            (run,) = (await store.runs.list(thread_id="thread-branched", status="running")).items
            assert run.steps == 1
            for _ in range(2):
                await _expect_lists(store, version)
                await sweep(store._context)
                assert await verify_engine(engine) == []

    asyncio.run(main())
    assert recorded(old) == {
        "version": str(schema.SCHEMA.version),
        "digest": schema.SCHEMA.digest(),
        "declaration": schema.SCHEMA.declaration(),
    }
    assert {"runs__thread_status", "runs__agent", "thread_heads__family_active"} <= names(old)
    stamp = digest(old)
    migrate(str(old))
    assert digest(old) == stamp  # nothing left to do


async def _expect_lists(store: Store, version: int) -> None:
    """Threads and runs of an older file are listed as they were, before and after housekeeping."""
    roots = [thread.id async for thread in store.threads.iter(root=True, order="created")]
    assert set(roots) - {"root-8"} == {"thread-branched", "thread-plain"}
    everything = [thread async for thread in store.threads.iter()]
    assert [thread.updated_at for thread in everything] == sorted((t.updated_at for t in everything), reverse=True)
    if version == 1:
        assert {thread.id for thread in everything} == {*roots, "thread-child"}
        return
    children = ["grandchild", "thread-child", *[f"child-{number}" for number in range(4)]]
    assert {thread.id for thread in everything} == {*roots, *children}
    owned = [thread.id async for thread in store.threads.iter(resource_id="u-7", parent_thread_id="thread-plain")]
    assert sorted(owned) == ["child-1", "child-3"]
    assert [t.id async for t in store.threads.iter(resource_id="u-7", root=True)] == ["thread-plain"]
    assert [run.id async for run in store.runs.iter(agent_id="coder")] == ["run-3", "run-1"]
    assert [run.id async for run in store.runs.iter(resource_id="u-8")] == ["run-created"]


@pytest.mark.parametrize("crossing", [1, 2, 4])
def test_killed_half_way_it_is_as_old_as_before_and_opens_again(old: Path, version: int, crossing: int) -> None:
    before = contents(old, declared(version))
    process = child(old, f"sqlite.in_migration=crash@{crossing}")
    assert process.wait(60) == -signal.SIGKILL
    assert recorded(old)["version"] == str(version)
    assert contents(old, declared(version)) == before
    migrate(str(old))
    assert recorded(old)["version"] == str(schema.SCHEMA.version)
    assert contents(old, declared(version)) == before


def test_an_error_half_way_is_told_and_undone(old: Path, version: int) -> None:
    failpoints.arm("sqlite.in_migration", "error", after=2)
    assert "I/O error" in refusal(old, schema.SCHEMA, UnavailableError)
    assert recorded(old)["version"] == str(version)
    migrate(str(old))


def test_several_processes_migrate_at_once(old: Path, version: int) -> None:
    before = contents(old, declared(version))
    processes = [child(old) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0, 0, 0, 0]
    assert recorded(old)["version"] == str(schema.SCHEMA.version)
    assert contents(old, declared(version)) == before


def test_several_processes_create_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    processes = [child(path) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0, 0, 0, 0]
    assert recorded(path)["digest"] == schema.SCHEMA.digest()


def test_a_creation_killed_half_way_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    assert child(path, "sqlite.in_migration=crash@5").wait(60) == -signal.SIGKILL
    migrate(str(path))
    assert recorded(path)["digest"] == schema.SCHEMA.digest()


def test_a_newer_file_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    future = newer(schema.SCHEMA, logs=(*schema.SCHEMA.logs, Log("events", "thread")))
    touch(path, future)
    stamp, files = digest(path), sorted(tmp_path.iterdir())
    for read_only in (False, True):
        message = refusal(path, schema.SCHEMA, UnsupportedError, read_only=read_only)
        assert f"schema version {future.version}" in message
        assert f"knows version {schema.SCHEMA.version}" in message
        assert "upgrade" in message
    assert (digest(path), sorted(tmp_path.iterdir())) == (stamp, files)


def test_the_same_version_with_other_declarations_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "toy.db"
    touch(path, SCHEMA)
    stamp = digest(path)
    other = msgspec.structs.replace(SCHEMA, logs=())
    assert "other declarations" in refusal(path, other, UnsupportedError)
    assert digest(path) == stamp


def _without_column(schema: Schema) -> Schema:
    items, pairs = schema.tables
    return newer(schema, tables=(msgspec.structs.replace(items, columns=items.columns[:-1], indexes=()), pairs))


def _with_unique(schema: Schema) -> Schema:
    items, pairs = schema.tables
    return newer(schema, tables=(msgspec.structs.replace(items, unique=(("name",), ("owner",))), pairs))


def _with_other_index(schema: Schema) -> Schema:
    items, pairs = schema.tables
    return newer(schema, tables=(msgspec.structs.replace(items, indexes=(Index("due", (), ("rank",)),)), pairs))


def _with_other_segment(schema: Schema) -> Schema:
    first, *others = schema.logs
    return newer(schema, logs=(msgspec.structs.replace(first, segment=None), *others))


def _without_trim(schema: Schema) -> Schema:
    *others, feed = schema.logs
    return newer(schema, logs=(*others, msgspec.structs.replace(feed, trim=False)))


def _with_trim(schema: Schema) -> Schema:
    first, *others = schema.logs
    return newer(schema, logs=(msgspec.structs.replace(first, trim=True), *others))


@pytest.mark.parametrize(
    "change", [_without_column, _with_unique, _with_other_index, _with_other_segment, _without_trim, _with_trim]
)
def test_changes_that_adding_cannot_make_are_refused(tmp_path: Path, change: Callable[[Schema], Schema]) -> None:
    path = tmp_path / "toy.db"
    touch(path, SCHEMA)
    stamp = digest(path)
    assert "by adding alone" in refusal(path, change(SCHEMA), UnsupportedError)
    assert digest(path) == stamp


def test_an_index_is_refined_and_an_older_process_goes_on_reading(tmp_path: Path) -> None:
    path = tmp_path / "toy.db"
    items, pairs = SCHEMA.tables
    finer = tuple(
        msgspec.structs.replace(index, by=(*index.by, "kind"), sparse=index.required)
        if index.name == "sparse"
        else index
        for index in items.indexes
    )
    table = msgspec.structs.replace(items, columns=(*items.columns, *text("kind")), indexes=finer)
    larger = newer(SCHEMA, tables=(table, pairs))

    async def main() -> None:
        old = await open_sqlite(str(path), SCHEMA)
        await do(old, Put("items", ("a",), {"owner": "o", "rank": 1}), Put("items", ("b",), {"rank": 2}))
        new = await open_sqlite(str(path), larger)
        await do(new, Put("items", ("c",), {"owner": "o", "rank": 3, "kind": "k"}))
        await do(old, Put("items", ("d",), {"owner": "o", "rank": 0}))
        owned = [Scan("items", "sparse", ("o",))]
        assert [row.key[0] for row in (await old.view(SCOPE, owned))[0]] == ["d", "a", "c"]
        grouped = [Scan("items", "sparse", ("o", kind)) for kind in (None, "k")]
        assert [[row.key[0] for row in rows] for rows in await new.view(SCOPE, grouped)] == [["d", "a"], ["c"]]
        assert await new.check() == []
        await old.close()
        await new.close()

    asyncio.run(main())


def test_everything_that_can_be_added(tmp_path: Path) -> None:
    path = tmp_path / "toy.db"
    items, pairs = SCHEMA.tables
    first, second, feed = SCHEMA.logs
    larger = newer(
        SCHEMA,
        tables=(
            msgspec.structs.replace(
                items,
                columns=(*integer("first"), *items.columns, *text("extra")),
                indexes=(*items.indexes, Index("by_extra", by=("extra",), order=("first",), sparse=True)),
            ),
            pairs,
            Table("fresh", key=text("k"), columns=integer("n"), indexes=(Index("n", by=(), order=("n",)),)),
        ),
        logs=(msgspec.structs.replace(first, columns=(*first.columns, *text("tag"))), second, feed, Log("added", "p")),
    )

    async def main() -> None:
        engine = await open_sqlite(str(path), SCHEMA)
        await do(engine, Put("items", ("a",), {"n": 1}, b"{}"), notes("t", "x"))
        await engine.close()
        engine = await open_sqlite(str(path), larger)
        await do(engine, Put("items", ("b",), {"extra": "e", "first": 1}), Put("fresh", ("k",), {"n": 2}))
        await do(engine, Append("notes", "t", [("y", "k", 0, None, "t", b"{}")], 1))
        assert await engine.check() == []
        rows, entries = await engine.view(SCOPE, [Scan("items"), Read("notes", "t")])
        assert [(row.key, row["n"], row["extra"]) for row in rows] == [(("a",), 1, None), (("b",), None, "e")]
        assert [(entry[2], entry[6]) for entry in entries] == [("x", None), ("y", "t")]
        await engine.close()

    asyncio.run(main())


def test_a_foreign_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE invoices(id INTEGER)")
    connection.commit()
    connection.close()
    stamp, files = digest(path), sorted(tmp_path.iterdir())
    for read_only in (False, True):
        message = refusal(path, SCHEMA, UnsupportedError, read_only=read_only)
        assert "invoices" in message
    assert (digest(path), sorted(tmp_path.iterdir())) == (stamp, files)


@pytest.mark.parametrize("text_in_it", [b"just some notes\n" * 400, b"just some notes\n" * 40, b"notes", b"x"])
def test_a_file_that_is_not_sqlite_is_refused_untouched(tmp_path: Path, text_in_it: bytes) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(text_in_it)
    for read_only in (False, True):
        message = refusal(path, SCHEMA, CorruptError, read_only=read_only)
        assert str(path) in message
        assert "not a database" in message
    assert path.read_bytes() == text_in_it
    assert sorted(tmp_path.iterdir()) == [path]


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    touch(path, SCHEMA)
    assert recorded(path)["version"] == "1"


def test_names_that_cannot_be_opened(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path, SCHEMA, InvalidError)
    assert "does not exist" in refusal(tmp_path / "no" / "x.db", SCHEMA, UnavailableError)
    for name in (":memory:", ""):
        with pytest.raises(InvalidError):
            drive(open_sqlite(name, SCHEMA))
