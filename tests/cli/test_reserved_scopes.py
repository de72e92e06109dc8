"""Reserved scopes at the public doors: refused for writing, readable, and what an older version left can be moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import Program

import perdure
import perdure.sync
from perdure import InvalidError, Message
from perdure.copy import copy_store
from perdure.opening import open_any_scope


def _old_store(directory: Path) -> str:
    """A file with a thread in `~x`, as a version without reserved scopes left it."""

    async def fill() -> None:
        async with open_any_scope(url, "~x") as store:
            await store.commit("t", messages=[Message.user("old")])

    url = f"sqlite:///{directory / 'old.db'}"
    asyncio.run(fill())
    return url


def _doors(url: str) -> dict[str, Callable[[], Any]]:
    async def scoped() -> None:
        async with perdure.open(url) as store:
            store.scoped("~x")

    def sync_scoped() -> None:
        with perdure.sync.open(url) as store:
            store.scoped("~x")

    return {
        "open": lambda: perdure.open(url, scope="~x"),
        "sync.open": lambda: perdure.sync.open(url, scope="~"),
        "scoped": lambda: asyncio.run(scoped()),
        "sync.scoped": sync_scoped,
    }


@pytest.mark.parametrize("door", ["open", "sync.open", "scoped", "sync.scoped"])
def test_every_door_refuses_them_for_writing(door: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="reserved") as refused:
        _doors(f"sqlite:///{tmp_path / 'new.db'}")[door]()
    assert "read_only" in (refused.value.hint or "")


def test_what_an_older_version_left_is_read_exported_copied_moved_and_deleted(tmp_path: Path) -> None:
    url = _old_store(tmp_path)
    run = Program(tmp_path / "old.db").run
    with perdure.sync.open(url, scope="~x", read_only=True) as store:
        assert len(store.load("t").messages) == 1
    with perdure.sync.open(url, read_only=True) as store:
        assert store.scoped("~x").threads.get("t").id == "t"
    assert "old" in run("--scope", "~x", "log", "t").out
    assert run("--scope", "~x", "doctor", "verify").code == 0
    exported = run("--scope", "~x", "export").out
    (tmp_path / "x.jsonl").write_text(exported)
    refused = run("--scope", "~y", "import", str(tmp_path / "x.jsonl"))
    assert refused.code == 2
    assert "reserved" in refused.err
    assert run("--scope", "x", "import", str(tmp_path / "x.jsonl")).code == 0

    target = f"sqlite:///{tmp_path / 'copy.db'}"
    copied = asyncio.run(copy_store(url, target))
    assert {part.scope for part in copied.parts} == {"x", "~x"}
    assert run("--scope", "~x", "delete", "t", "--yes").code == 0
    assert run("--scope", "~x", "doctor", "sweep").code == 0
    with perdure.sync.open(url, scope="~x", read_only=True) as store:
        assert store.threads.find("t") is None
