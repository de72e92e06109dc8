"""Perdure as a subject, through nothing but its public API, on both faces.

A commit carries messages, one step of the thread's run and, when asked, state documents. Message objects are made
before the clock starts, as the peers' are; validating, encoding and storing them is timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from harness import Case
from workload import Commit, Json, history

import perdure
from perdure import Message

CHUNK = 500


class Prepared(NamedTuple):
    """One commit in Perdure's own types."""

    messages: list[Message]
    state: dict[str, Json] | None


def prepare(commit: Commit) -> Prepared:
    return Prepared([Message.from_json(message) for message in commit.messages], commit.state or None)


def chunks(messages: list[Message]) -> list[list[Message]]:
    """A long history as several commits, below the limit of one."""
    return [messages[at : at + CHUNK] for at in range(0, len(messages), CHUNK)]


class Perdure:
    """The async face. Thread names of the benchmark map to the ids that Perdure gave."""

    name = "perdure"
    grows = False
    prepare = staticmethod(prepare)

    def __init__(self, path: Path, store: Any) -> None:
        self.path, self.store = path, store
        self._runs: dict[str, Any] = {}

    @classmethod
    async def open(cls, path: Path) -> Perdure:
        return cls(path, await perdure.open(f"sqlite:///{path}"))

    @classmethod
    async def connect(cls, url: str) -> Perdure:
        """On a server, which has no path of its own."""
        return cls(Path(), await perdure.open(url))

    def adopt(self, other: Perdure) -> None:
        """Go on with the threads of another opening of the same data."""
        self._runs = other._runs

    async def create(self, thread: str, first: Commit) -> None:
        made = await self.store.threads.create(title=thread)
        run = await self.store.runs.start(made.id, agent_id="bench")
        for messages in chunks(prepare(first).messages):
            run = (await self.store.commit(made.id, messages=messages, run=run.step())).run
        self._runs[thread] = run

    async def commit(self, thread: str, prepared: Prepared) -> None:
        run = self._runs[thread]
        receipt = await self.store.commit(
            run.thread_id,
            messages=prepared.messages,
            run=run.step(input_tokens=1200, output_tokens=340),
            state=prepared.state,
        )
        self._runs[thread] = receipt.run

    async def load(self, thread: str) -> list[Any]:
        whole = await self.store.load(self._runs[thread].thread_id)
        messages: list[Any] = whole.messages
        return messages

    async def history(self, thread: str) -> list[Any]:
        messages: list[Any] = await self.store.messages.history(self._runs[thread].thread_id)
        return messages

    async def newest(self, thread: str, count: int) -> list[Any]:
        page = await self.store.messages.list(self._runs[thread].thread_id, order="desc", limit=count)
        items: list[Any] = page.items
        return items

    async def new_thread(self, title: str, custom: Json) -> None:
        await self.store.threads.create(title=title, custom=custom)

    async def list_threads(self, count: int) -> list[Any]:
        items: list[Any] = (await self.store.threads.list(limit=count)).items
        return items

    async def close(self) -> None:
        await self.store.close()


class PerdureSync:
    """The sync face, called from a plain thread as a program without an event loop would call it."""

    def __init__(self, path: Path) -> None:
        import perdure.sync

        self._thread = ThreadPoolExecutor(1)
        self._store: Any = self._thread.submit(perdure.sync.open, f"sqlite:///{path}").result()

    def _create(self, first: Commit) -> Any:
        made = self._store.threads.create()
        run = self._store.runs.start(made.id, agent_id="bench")
        return self._store.commit(made.id, messages=prepare(first).messages, run=run.step()).run

    def _commits(self, run: Any, work: list[Prepared]) -> int:
        commit = self._store.commit
        for messages, state in work:
            step = run.step(input_tokens=1200, output_tokens=340)
            run = commit(run.thread_id, messages=messages, run=step, state=state).run
        return len(work)

    def case(self, name: str, make: Callable[[int], Commit], count: int) -> Case:
        """`count` commits on a new thread each round, like the async cases beside it."""
        ready: dict[str, Any] = {}
        loop = asyncio.get_running_loop()

        async def setup() -> None:
            ready["run"] = await loop.run_in_executor(self._thread, self._create, history(10))
            ready["work"] = [prepare(make(index)) for index in range(count)]

        async def run() -> int:
            return await loop.run_in_executor(self._thread, self._commits, ready["run"], ready["work"])

        return Case(name, run, setup)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()
