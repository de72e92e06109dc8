"""Stored JSON that is longer than anything a store writes is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure import CorruptError, Message, Text, limits
from perdure.kernel import codec


def list_of(size: int) -> bytes:
    """A JSON list of this many bytes."""
    return b"[" + b" " * (size - 2) + b"]"


@pytest.mark.parametrize("kind", [bytes, bytes.decode])
def test_the_limit_is_that_of_a_commit(kind: Callable[[bytes], bytes | str]) -> None:
    assert codec.decode(kind(list_of(limits.COMMIT_BYTES)), "state 'plan'") == []
    with pytest.raises(CorruptError, match=r"stored JSON of 8,388,609 bytes, the limit is 8,388,608") as caught:
        codec.decode(kind(list_of(limits.COMMIT_BYTES + 1)), "state 'plan'")
    assert caught.value.where == "state 'plan'"


def test_every_read_refuses_a_body_beyond_it(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"

    async def main() -> None:
        async with perdure.open(f"sqlite:///{path}") as store:
            await store.threads.create("t", custom={"owner": "ann"})
            await store.commit("t", messages=[Message("user", [Text("one"), Text("two")])])
            await store.state.put("t", "plan", {"done": False})
        with closing(sqlite3.connect(path)) as connection:
            for table in ("state", "messages", "threads"):
                connection.execute(
                    f"UPDATE {table} SET body = '{{' || ? || substr(body, 2)", (" " * limits.COMMIT_BYTES,)
                )
            connection.commit()
        async with perdure.open(f"sqlite:///{path}", read_only=True) as store:
            reads: list[Callable[[], Awaitable[object]]] = [
                lambda: store.state.get("t", "plan"),
                lambda: store.messages.list("t"),
                lambda: store.threads.get("t"),
            ]
            for read in reads:
                with pytest.raises(CorruptError, match="the limit is 8,388,608"):
                    await read()

    asyncio.run(main())
