"""A migration that changes meaning: a process of an older version that goes on writing fails, and writes nothing.

The older process runs the source of the commit before generations came, taken from the repository, and also that of
this checkout: whatever is released from now on. The migration is made for the test: the next version of the schema, in
which every table and log is of a new generation.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

from perdure import Message, failpoints
from perdure.audit import verify_engine
from perdure.audit.store import digest
from perdure.engines.shared.migrations import additions
from perdure.engines.sqlite import open_sqlite
from perdure.errors import PerdureError, UnavailableError, UnsupportedError
from perdure.kernel.engine import Engine
from perdure.kernel.schema import Schema
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store

ROOT = Path(__file__).parents[2]
BEFORE = "68c3d22"
"""The last commit whose declarations know no generation."""
SERVERS = ("postgres", "mysql", "redis")
_numbers = count()


def raised(*names: str) -> Schema:
    """The next version of the schema, with these tables and logs (or all) in a new generation."""
    tables, logs = (
        tuple(msgspec.structs.replace(s, generation=2) if not names or s.name in names else s for s in some)
        for some in (SCHEMA.tables, SCHEMA.logs)
    )
    return Schema(SCHEMA.version + 1, tables, logs)  # type: ignore[arg-type]


def _source(build: str, directory: Path) -> Path:
    """The source folder of a build."""
    if build == "this":
        return ROOT / "src"
    packed = subprocess.run(["git", "-C", ROOT, "archive", BEFORE, "src"], capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"the commit {BEFORE} is not in this clone: {packed.stderr.decode()[:100]}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(directory / "before", filter="data")
    return directory / "before" / "src"


async def _place(kind: str, directory: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{directory / 'store.db'}"
    try:
        # A database keeps its record of the schema when it is emptied, so every test gets one of its own.
        return await fresh_database(server(kind), "generations" if kind == "redis" else f"generations_{next(_numbers)}")
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))


async def _open(kind: str, url: str, schema: Schema) -> Engine:
    if kind == "sqlite":
        return await open_sqlite(url.removeprefix("sqlite:///"), schema)
    engine: Engine = await importlib.import_module(f"perdure.engines.{kind}").open_engine(url, schema)
    return engine


@contextmanager
def _old_process(url: str, source: Path) -> Iterator[Any]:
    program = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("old_process.py")), url]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    with subprocess.Popen(
        program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=source
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def _meet(kind: str, directory: Path, build: str, schema: Schema) -> dict[str, Any]:
    """Migrate while a process of a build has the store open; what became of its attempts to go on."""
    url = await _place(kind, directory)
    with _old_process(url, _source(build, directory)) as process:
        assert json.loads(await asyncio.to_thread(process.stdout.readline)) == 1
        engine = await _open(kind, url, schema)
        store = Store(engine, owner=False)
        await store.commit("t", messages=[Message.user("by the new version")])
        before = await digest(engine, "default")
        process.stdin.write("go\n")
        process.stdin.flush()
        results: dict[str, Any] = json.loads(await asyncio.to_thread(process.stdout.readline))
        if all(results[name] for name in results if name != "read"):
            assert await digest(engine, "default") == before, "nothing was written"
        assert await verify_engine(engine) == []
        assert [len(message.content) for message in (await store.load("t")).messages] == [1, 1]
        await engine.close()
    return results


@pytest.mark.parametrize("build", ["before", "this"])
@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_an_old_process_fails_loudly_and_writes_nothing(kind: str, build: str, tmp_path: Path) -> None:
    results = asyncio.run(_meet(kind, tmp_path, build, raised()))
    read = results.pop("read")
    silent = [name for name, result in results.items() if result is None]
    assert silent == []
    for name, (error, words) in results.items():
        expected = "UnsupportedError" if kind == "redis" else "CorruptError"
        assert error == expected, (name, error, words)
        assert ("another build" if kind == "redis" else "expected tables") in words
        if build == "this" and kind != "redis":
            assert "newer Perdure" in words, "from now on it says what to do"
    # Redis looks at the version of a scope when it writes; reads of an older process go on there.
    assert (read is None) == (kind == "redis")


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_tables_that_mean_what_they_meant_stay_usable(kind: str, tmp_path: Path) -> None:
    """Only what changed its meaning is shut; on Redis every write of an older version is."""
    results = asyncio.run(_meet(kind, tmp_path, "this", raised("thread_heads", "messages")))
    assert results["commit"] is not None
    assert results["pending"] is not None
    assert results["delete"] is not None
    assert (results["profile"] is None) == (kind != "redis")


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"])
def test_a_change_of_generation_can_be_killed_and_goes_on(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        url = await _place(kind, tmp_path)
        engine = await _open(kind, url, SCHEMA)
        await Store(engine, owner=False).commit("t", messages=[Message.user("hello")])
        await engine.close()
        for step in (1, 4, 8):
            failpoints.arm(f"{kind}.in_migration", "error", after=step)
            with pytest.raises((UnavailableError, OSError, PerdureError)):
                await _open(kind, url, raised())
            failpoints.disarm()
        engine = await _open(kind, url, raised())
        assert len((await Store(engine, owner=False).load("t")).messages) == 1
        assert await verify_engine(engine) == []
        assert await engine.check() == []
        await engine.close()
        with pytest.raises(UnsupportedError, match="upgrade Perdure"):
            await _open(kind, url, SCHEMA)

    asyncio.run(main())


def test_a_generation_only_rises() -> None:
    changed = additions(SCHEMA, raised("messages"))
    assert changed.renamed == (("messages", "messages__v2"),)
    assert (changed.tables, changed.columns, changed.indexes) == ((), (), ())
    back = msgspec.structs.replace(SCHEMA, version=SCHEMA.version + 2)
    with pytest.raises(UnsupportedError, match="older generation"):
        additions(raised("messages"), back)
    assert raised("messages").digest() != msgspec.structs.replace(SCHEMA, version=SCHEMA.version + 1).digest()
