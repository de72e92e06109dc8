"""Threads with a trimmed log arrive whole, round every engine, although copy and import are killed on the way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engines.toys import SERVERS
from tests.engines.trimmed_transfer import open_trails
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

from perdure import Message
from perdure.audit import verify_engine
from perdure.copy import copy_engine
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Append
from perdure.kernel.validate import Kernel
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines
from perdure.testkit.cases.trimmed_logs import SCOPE, some


async def _place(kind: str, directory: Path, name: str) -> str:
    if kind == "sqlite":
        return str(directory / f"{name}.db")
    try:
        return await fresh_database(server(kind), name)
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))


async def _lines(engine: Engine) -> list[bytes]:
    return [line async for line in export_lines(Store(engine, owner=False))]


async def _fill(engine: Engine) -> list[bytes]:
    store = Store(engine, owner=False)
    for thread, count, upto in (("a", 2_300, 700), ("b", 5, 9), ("c", 12, 0)):
        await store.commit(thread, messages=[Message.user("hello")])
        await engine.transact(SCOPE, [Append("trail", thread, some(1, count)), Append("whole", thread, some(1, count))])
        await Kernel(engine).trim(SCOPE, "trail", thread, upto)
    return await _lines(engine)


def _killed(arguments: list[str], **environment: str) -> None:
    program = [sys.executable, "-m", "tests.engines.trimmed_transfer", *arguments]
    done = subprocess.run(program, capture_output=True, check=False, env={**os.environ, **environment}, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_a_killed_copy_goes_on(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        source_place = str(tmp_path / "source.db")
        source = await open_trails("sqlite", source_place)
        lines = await _fill(source)
        place = await _place(kind, tmp_path, "copied")
        for at in (1_200, 2_500):
            await asyncio.to_thread(_killed, [kind, place, source_place, str(at)])
        target = await open_trails(kind, place)
        assert (await copy_engine(source, target, last=("thread_heads",))).missing > 0
        back = await open_trails("sqlite", str(tmp_path / "back.db"))
        await copy_engine(target, back, last=("thread_heads",))
        for engine in (target, back):
            assert await _lines(engine) == lines
            assert await verify_engine(engine) == []
            await engine.close()
        await source.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
def test_a_killed_import_is_repeated(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        source = await open_trails("sqlite", str(tmp_path / "source.db"))
        lines = await _fill(source)
        await source.close()
        file = tmp_path / "export.jsonl"
        file.write_bytes(b"\n".join(lines) + b"\n")
        place = await _place(kind, tmp_path, "imported")
        for crossing in (1, 3):
            await asyncio.to_thread(
                _killed, [kind, place, str(file), "0"], PERDURE_FAILPOINTS=f"import.between_chunks=crash@{crossing}"
            )
        target = await open_trails(kind, place)
        await import_lines(Store(target, owner=False), lambda: lines)
        assert await _lines(target) == lines
        applied = await target.transact(SCOPE, [Append("trail", name, some(9_000, 1)) for name in "abc"])
        assert list(applied.seqs.values()) == [2_301, 6, 13]
        assert await verify_engine(target) == []
        await target.close()

    asyncio.run(main())
