"""A worker's hold on a run: commits while the run is as this worker left it, and the end of that.

A hold ends when another process moved the run, or when the lease was lost. What a tool did is stored even then. A
handler sees a hold through its `Job`; `driving` looks after it from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import uuid4

from msgspec.structs import replace

from perdure.errors import IllegalTransition, NotFoundError, StaleClaim, VersionConflict
from perdure.model.faithful import Extra
from perdure.model.message import Message, ToolResult, ToolUse, UnfinishedCall
from perdure.model.receipt import Receipt, RunReceipt
from perdure.model.run import RUNNING, WAITING, Run, RunChange
from perdure.stores.options import AppendOptions
from perdure.stores.store import Store
from perdure.stores.thread_handle import ThreadHandle
from perdure.workers.trouble import until_stored

DOUBTS = "uncertain_calls"
"""The field of a wait that names the calls that may have run before it."""
UnfinishedCalls = list[UnfinishedCall]


class Stopped(Exception):
    """The run is no longer this worker's: it was ended, paused or deleted, or another worker has it.

    `serve` takes it as the normal end of a handler, so let it pass.
    """

    def __init__(self, message: str, run: Run | None) -> None:
        super().__init__(message)
        self.run: Run | None = run
        """The run as it was when this was noticed; None if it was deleted."""


class Hold:
    """A run as this worker left it, and whether that is over.

    `recovered`: the run was running already when it was picked up, so another worker may have started any of its calls.
    `doubtful`: the calls that may have been started although it was not.
    """

    def __init__(self, store: Store, run: Run, *, recovered: bool, doubtful: frozenset[str]) -> None:
        self.store: Store = store
        self.run: Run = run
        self.recovered: bool = recovered
        self.end: Stopped | None = None
        self.shields: int = 0
        self.unshielded: asyncio.Event = asyncio.Event()
        self.unshielded.set()
        self._doubtful = doubtful
        self._own_calls: set[str] = set()
        # Commits take turns, and a look at the run never falls into the middle of one.
        self._turn = asyncio.Lock()

    @property
    def thread(self) -> ThreadHandle:
        """The thread of the run."""
        return self.store.thread(self.run.thread_id)

    async def unfinished_calls(self) -> UnfinishedCalls:
        """The tool calls of this run that have no result yet."""
        return await self.thread.unfinished_calls(branch=self.run.branch, run_id=self.run.id)

    def is_uncertain(self, call: ToolUse) -> bool:
        """May another worker have started this unfinished call?"""
        return (self.recovered or call.id in self._doubtful) and call.id not in self._own_calls

    async def commit(self, messages: Sequence[Message], change: RunChange | None, options: AppendOptions) -> RunReceipt:
        """Commit a step, repeated while the store is in trouble; raises `Stopped` if the hold has ended."""
        async with self._turn:
            if self.end is None:
                change = self.run.step() if change is None else change
                receipt = await self._step(messages, await self._with_doubts(change, messages), options)
                if receipt is not None:
                    return receipt
            raise await self._rescued(messages)

    async def _step(self, messages: Sequence[Message], change: RunChange, options: AppendOptions) -> RunReceipt | None:
        """The receipt, or None if another process moved the run."""
        named = options.copy()
        named["key"] = options.get("key") or f"{self.run.id}/{self.run.rev}"

        async def write() -> RunReceipt:
            return await self.store.commit(self.run.thread_id, messages=messages, run=change, **named)

        try:
            receipt = await until_stored(write)
        except (IllegalTransition, NotFoundError, StaleClaim, VersionConflict):
            await until_stored(self._look)
            if self.end is None:  # the caller's own guard, or a change that the run's status forbids
                raise
            return None
        self.run = receipt.run
        self._own_calls.update(call.id for message in messages for call in message.tool_calls)
        return receipt

    async def check(self) -> None:
        """Look whether another process moved the run."""
        async with self._turn:
            if self.end is None and self.run.status == RUNNING:
                await self._look()

    def lose(self) -> None:
        """The lease was lost."""
        if self.end is None:
            self.end = Stopped(f"the lease of run {self.run.id!r} was lost", self.run)

    async def _look(self) -> None:
        current = await self.store.runs.find(self.run.id)
        if current is None:
            self.end = Stopped(f"run {self.run.id!r} was deleted", None)
        elif current.rev != self.run.rev:
            self.run, self.end = current, Stopped(_cause(current), current)

    async def _rescued(self, messages: Sequence[Message]) -> Stopped:
        """Store the results among the messages without the run, and return the reason why the hold ended."""
        end = self.end or Stopped(f"run {self.run.id!r} is over", self.run)
        results = [message for message in messages if _results(message)]
        key = uuid4().hex

        async def write() -> Receipt:
            return await self.store.commit(self.run.thread_id, messages=results, branch=self.run.branch, key=key)

        if results and end.run is not None:
            try:
                await until_stored(write)
            except NotFoundError:
                return Stopped(f"run {self.run.id!r} was deleted", None)
        return end

    async def _with_doubts(self, change: RunChange, messages: Sequence[Message]) -> RunChange:
        """A wait that also names the calls that may have run, unless this commit answers them or asks about them."""
        wait = change.waiting
        if wait is None or not (self.recovered or self._doubtful):
            return change
        settled = {ticket.tool_call_id for ticket in wait.tickets}
        settled |= {result.tool_use_id for message in messages for result in _results(message)}
        unfinished = [item.call for item in await until_stored(self.unfinished_calls)]
        doubtful = [call.id for call in unfinished if self.is_uncertain(call) and call.id not in settled]
        if not doubtful:
            return change
        return replace(change, waiting=replace(wait, extra=Extra({**wait.extra, DOUBTS: doubtful})))


def doubts(run: Run) -> frozenset[str]:
    """The calls that may have run before the wait that the last `resume` ended."""
    wait = run.body.resumed_from
    names = [] if wait is None else wait.extra.get(DOUBTS)
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def _results(message: Message) -> list[ToolResult]:
    return [block for block in message.content if isinstance(block, ToolResult)]


def _cause(run: Run) -> str:
    if run.outcome is not None:
        return f"run {run.id!r} was ended from outside: {run.outcome.termination.type}"
    if run.status == WAITING:
        return f"run {run.id!r} was paused from outside"
    return f"another worker has taken over run {run.id!r}"
