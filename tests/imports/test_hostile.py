"""Hostile files on every engine: refused with nothing changed, or accepted and sound."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.imports.hostile import Hostile, hostile_files, whole_files
from tests.imports.judging import Judge, closing_engine, valid_lines
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

from perdure.engines.memory import open_memory
from perdure.engines.sqlite import open_sqlite
from perdure.kernel.engine import Engine
from perdure.opening import open_engine
from perdure.stores.schema import SCHEMA

SAMPLE = 29
"""On a server every so-many-th file is tried; `tests/imports/every_file.py` tries all of them."""


async def judge_all(engine: Engine, files: Iterable[Hostile] | None = None, *, every: int = 1) -> Judge:
    """Try the files; raises if an import treats one of them wrongly."""
    async with closing_engine(engine):
        judge, problems = Judge(engine), []
        for number, (name, lines) in enumerate(files or hostile_files(await valid_lines())):
            if number % every == 0 and (problem := await judge.problem(lines)):
                problems.append(f"{name}: {problem}")
    if problems:
        raise AssertionError(f"{len(problems)} files:\n" + "\n".join(problems))
    return judge


def tried(work: Coroutine[Any, Any, Judge]) -> int:
    judge = asyncio.run(work)
    print(f"{judge.refused} files were refused, {judge.accepted} accepted")
    return judge.refused + judge.accepted


def test_files_that_are_wrong_only_as_a_whole() -> None:
    async def scenario() -> Judge:
        return await judge_all(await open_memory(SCHEMA), whole_files(await valid_lines()))

    tried(scenario())


def test_hostile_files_in_memory() -> None:
    async def scenario() -> Judge:
        return await judge_all(await open_memory(SCHEMA))

    if tried(scenario()) < 500:
        raise AssertionError("there are at least 500 hostile files")


def test_hostile_files_on_sqlite(tmp_path: Path) -> None:
    async def scenario() -> Judge:
        return await judge_all(await open_sqlite(str(tmp_path / "s.db"), SCHEMA, durability="process"))

    if tried(scenario()) < 500:
        raise AssertionError("there are at least 500 hostile files")


@pytest.mark.parametrize("name", ["postgres", "mysql", "redis"])
def test_hostile_files_on_servers(name: str) -> None:
    async def scenario() -> Judge:
        url = await fresh_database(server(name), "hostile")
        return await judge_all(await open_engine(url, read_only=False, durability="process"), every=SAMPLE)

    try:
        tried(scenario())
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
