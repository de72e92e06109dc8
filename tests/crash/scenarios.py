"""Small programs that cross failpoints: each runs in a process of its own and is meant to die.

    PERDURE_FAILPOINTS="sqlite.before_commit=crash@3" python -m tests.crash.scenarios commits store.db

What was acknowledged is printed, a line each, so that the survivor knows what it may demand.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import perdure
from perdure import Message, NewRun
from perdure.stores.transfer.export import export_lines, import_lines

THREAD = "t"
LARGE = 1_200
"""Messages of a thread that is imported in several chunks."""


def said(number: int) -> list[Message]:
    """The two messages of commit `number`."""
    return [
        Message.user(f"question {number}", id=f"{number}.0"),
        Message.assistant(f"answer {number}", id=f"{number}.1"),
    ]


async def commits(path: str) -> None:
    """Commits one after another: messages, a run, a document and a key each."""
    async with perdure.open(path, durability="power") as store:
        for number in range(1, 9):
            run = NewRun(agent_id="agent", id=f"run-{number}")
            await store.commit(THREAD, messages=said(number), run=run, state={"n": number}, key=f"key-{number}")
            print(f"ack {number}", flush=True)


async def fill(path: str) -> None:
    """A parent, a thread with a row in every table, and a child."""
    async with perdure.open(path) as store:
        await store.threads.create("parent")
        await store.threads.create(THREAD, parent_thread_id="parent")
        await store.threads.create("child", parent_thread_id=THREAD)
        run = await store.runs.start(THREAD, "agent", messages=said(1), key="key")
        await store.commit(THREAD, messages=said(2), run=run.step(), state={"n": 1}, run_state={"m": 2})
        await store.branches.fork(THREAD, at="1.0", switch=True)
        await store.branches.label(THREAD, "1.1", "here")
        await store.pending.append(THREAD, [Message.user("later")])
        # Enough for erasing to take several pieces.
        await store.commit(THREAD, messages=[Message.user(str(number)) for number in range(700)])


async def delete(path: str) -> None:
    """Delete the thread, with its child."""
    async with perdure.open(path) as store:
        await store.threads.delete(THREAD, strategy="cascade")
        print("ack delete", flush=True)


async def opened(path: str) -> None:
    """Open the file, which creates or migrates it."""
    async with perdure.open(path):
        print("ack open", flush=True)


async def exported(path: str) -> list[bytes]:
    """The lines of a large thread."""
    async with perdure.open(path) as store:
        for start in range(0, LARGE, 300):
            await store.commit(THREAD, messages=[Message.user(f"message {start + i}") for i in range(300)])
        return [line async for line in export_lines(store)]


async def imported(path: str) -> None:
    """Import the lines that lie beside the store."""

    def lines() -> Iterator[bytes]:
        yield from Path(f"{path}.jsonl").read_bytes().splitlines()

    async with perdure.open(path) as store:
        await import_lines(store, lines)
        print("ack import", flush=True)


PROGRAMS = {"commits": commits, "delete": delete, "opened": opened, "imported": imported}


if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](sys.argv[2]))
