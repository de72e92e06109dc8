"""One store on its way round all engines, and copies to servers that are killed half way."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.copy.samples import SCOPES, dumps, fill
from tests.copy.test_copy import engine_at, killed_at
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

from perdure.audit import verify_engine
from perdure.copy import LAST, copy_engine, copy_store
from perdure.errors import CorruptError
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Scan

SERVERS = ("postgres", "redis", "mysql")


def url_of(name: str, label: str) -> str:
    try:
        return asyncio.run(fresh_database(server(name), label))
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))


async def sound(engine: Engine) -> dict[str, list[bytes]]:
    assert await verify_engine(engine) == []
    return await dumps(engine)


def test_round_all_engines(tmp_path: Path) -> None:
    """sqlite → postgres → redis → mysql → memory → sqlite: every stop exports the same lines."""
    stops = [url_of(name, "chain") for name in SERVERS]
    first, final = f"sqlite:///{tmp_path / 'first.db'}", f"sqlite:///{tmp_path / 'final.db'}"

    async def scenario() -> None:
        async with engine_at(first) as engine:
            await fill(engine)
            wanted = await sound(engine)
        here = first
        for stop in stops:
            done = await copy_store(here, stop)
            assert done.missing == done.rows
            async with engine_at(stop, read_only=True) as engine:
                assert await engine.scopes() == sorted(SCOPES)
                assert await sound(engine) == wanted
            here = stop
        async with engine_at(here, read_only=True) as last, engine_at() as memory, engine_at(final) as home:
            await copy_engine(last, memory, last=LAST)
            assert await sound(memory) == wanted
            await copy_engine(memory, home, last=LAST)
            assert await sound(home) == wanted
        again = await copy_store(first, final)
        assert (again.missing, again.rows) == (0, done.rows)

    asyncio.run(scenario())


@pytest.mark.parametrize(("name", "text"), [("postgres", "a\x00b"), ("mysql", "x" * 100_000)])
def test_a_row_that_the_destination_cannot_hold_is_named(original: str, tmp_path: Path, name: str, text: str) -> None:
    """Nothing is visible at the destination by then, and the copy resumes once the row is mended."""
    path, target = tmp_path / "prepared.db", url_of(name, "refused")
    shutil.copyfile(original.removeprefix("sqlite:///"), path)

    def mend(value: str | None) -> str:
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            place = "(scope, thread) = (SELECT scope, max(thread) FROM threads GROUP BY scope LIMIT 1)"
            before = file.execute(f"SELECT resource FROM threads WHERE {place}").fetchone()[0]
            file.execute(f"UPDATE threads SET resource = ? WHERE {place}", (value,))
        return before

    async def scenario() -> None:
        before = mend(text)
        with pytest.raises(CorruptError, match=r"table threads, scope .*, '.*: .* cannot store .*repair or delete it"):
            await copy_store(f"sqlite:///{path}", target)
        async with engine_at(target, read_only=True) as engine:
            for scope in await engine.scopes():
                assert await engine.view(scope, [Scan("thread_heads")]) == [[]]
        mend(before)
        await copy_store(f"sqlite:///{path}", target)
        async with engine_at(f"sqlite:///{path}", read_only=True) as here, engine_at(target, read_only=True) as there:
            assert await dumps(there) == await dumps(here)

    asyncio.run(scenario())


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('copy') / 'original.db'}"

    async def make() -> None:
        async with engine_at(url) as engine:
            await fill(engine)

    asyncio.run(make())
    return url


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("done", [700, 2_000])
def test_killed_half_way_and_run_again(original: str, name: str, done: int) -> None:
    target = url_of(name, "killed")
    assert killed_at(original, target, "copying", done)

    async def scenario() -> None:
        went_on = await copy_store(original, target)
        assert 0 < went_on.missing < went_on.rows
        async with engine_at(original, read_only=True) as source, engine_at(target, read_only=True) as engine:
            assert await sound(engine) == await dumps(source)

    asyncio.run(scenario())
