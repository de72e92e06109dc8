"""A real file with everything in it, made once, and copied for every test that asks."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.cli.program import Program
from tests.cli.samples import everything

import perdure


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "agents.db"

    async def fill() -> None:
        async with perdure.open(f"sqlite:///{path}", durability="process") as store:
            await everything(store)

    asyncio.run(fill())
    return path


@pytest.fixture
def program(original: Path, tmp_path: Path) -> Program:
    """The command line on a store of its own."""
    return Program(Path(shutil.copy(original, tmp_path / "agents.db")))
