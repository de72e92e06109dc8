"""A worker's hold on a run: commits while the run is as this worker left it, and the end of that.

A hold ends when another process moved the run, or when the lease was lost. What a tool did is stored even then. A
handler sees a hold through its `Job`; `driving` looks after it from outside.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from uuid import uuid4

from msgspec.structs import replace

from perdure import limits
from perdure.errors import IllegalTransition, NotFoundError, StaleClaim, VersionConflict
from perdure.model.faithful import Extra
from perdure.model.message import Message, ToolResult, ToolUse, UnfinishedCall
from perdure.model.receipt import Receipt, RunReceipt
from perdure.model.run import DONE, NATURAL_END, RUNNING, WAITING, Run, RunChange
from perdure.rules.views import LATE, unfinished
from perdure.stores.options import AppendOptions
from perdure.stores.store import Store
from perdure.stores.thread_handle import ThreadHandle
from perdure.workers.calls import Calls
from perdure.workers.drafts import Drafts
from perdure.workers.logs import LOGGER, brief
from perdure.workers.trouble import until_stored

NOT_MADE = "The call was not made: the run was stopped before."
"""The result of a call whose tool was not started because the run was stopped."""
DOUBTS = "uncertain_calls"
"""The field of a wait that names the calls that may have run before it."""
FROM_JOB = "from_job"
"""The field that marks a wait that a job committed: nothing else proves that the run's tools had not started."""
UnfinishedCalls = list[UnfinishedCall]
_ENDS = {
    "cancelled": "cancelled",
    "error": "ended with an error by another process",
    NATURAL_END: "finished by another process",
}


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

    `recovered`: the run was running already when it was picked up, or something other than a job had paused it, so
    another worker may have started any of its calls.
    `calls`: the calls of the run, which tell what its decisions are about.
    `committed`: whether this hold has moved the run on since.
    `lost`: whether it ended because the lease was lost; as far as this worker knows, nobody else has moved the run.
    """

    def __init__(self, store: Store, run: Run, *, recovered: bool, calls: Calls) -> None:
        self.store: Store = store
        self.run: Run = run
        self.recovered: bool = recovered
        self.end: Stopped | None = None
        self.lost: bool = False
        self.committed: bool = False
        self.shields: int = 0
        self.unshielded: asyncio.Event = asyncio.Event()
        self.unshielded.set()
        self.calls: Calls = calls
        self.drafts: Drafts = Drafts(store, run.thread_id, run.id)
        self._doubtful = _doubts(run)
        self._begun: frozenset[str] | None = None
        """The calls that an earlier worker or attempt may have started; None: any of them."""
        self._own_calls: set[str] = set()
        self._started: set[str] = set()
        """The calls whose tools this job has started, and whose results it has not committed."""
        self.answering: asyncio.Lock = asyncio.Lock()
        """Whoever answers calls in a loop holds it: two would make the same call."""
        self._calling_messages: dict[str, str] = {}
        """The id of the message that made a call, by the id of the call."""
        self._last_seq = 0
        # Commits take turns, and a look at the run never falls into the middle of one.
        self._turn = asyncio.Lock()

    @property
    def thread(self) -> ThreadHandle:
        """The thread of the run."""
        return self.store.thread(self.run.thread_id)

    async def unfinished_calls(self) -> UnfinishedCalls:
        """The tool calls of this run that have no result yet."""
        items = await self.thread.unfinished_calls(branch=self.run.branch, run_id=self.run.id)
        if self.end is None:
            self._last_seq = max([self._last_seq, *[item.seq for item in items]])
        self._calling_messages.update({item.call.id: item.message_id for item in items})
        return items

    def key_of(self, call: ToolUse) -> str:
        """A key that is the same whenever this call is made, whichever worker makes it, and that no other call has."""
        message_id = self._calling_messages.get(call.id, self.run.id)
        return hashlib.sha256(f"{self.run.thread_id}\n{message_id}\n{call.id}".encode()).hexdigest()

    def is_uncertain(self, call: ToolUse) -> bool:
        """May somebody have started this unfinished call: another worker, an earlier attempt, or this job?"""
        begun = self.recovered and (self._begun is None or call.id in self._begun)
        begun_before = (begun or call.id in self._doubtful) and call.id not in self._own_calls
        return begun_before or call.id in self._started

    def note_started(self, call: ToolUse) -> None:
        """The tool of this call is about to run."""
        self._started.add(call.id)

    def begin_again(self) -> None:
        """The handler is called again: it may have started any of the calls."""
        self.recovered, self._begun = True, None
        self._own_calls.clear()

    async def narrow(self) -> None:
        """The handler keeps the order of the calls, so that only the first one without a result may have begun."""
        items = await until_stored(self.unfinished_calls)
        self._begun = frozenset(item.call.id for item in items[:1])

    async def commit(self, messages: Sequence[Message], change: RunChange | None, options: AppendOptions) -> RunReceipt:
        """Commit a step, repeated while the store is in trouble; raises `Stopped` if the hold has ended."""
        async with self._turn:
            if self.end is None:
                change = self.run.step() if change is None else change
                receipt = await self._step(messages, change, options)
                if receipt is not None:
                    return receipt
            raise await self._rescued(messages)

    async def _step(self, messages: Sequence[Message], change: RunChange, options: AppendOptions) -> RunReceipt | None:
        """The receipt, or None if another process moved the run."""
        named = options.copy()
        named["key"] = options.get("key") or _key(self.run)

        try:
            prepared = await self._prepared(change, messages)

            async def write() -> RunReceipt:
                return await self.store.commit(self.run.thread_id, messages=messages, run=prepared, **named)

            receipt = await until_stored(write)
        except (IllegalTransition, NotFoundError, StaleClaim, VersionConflict):
            await until_stored(self._look)
            if self.end is None:  # the caller's own guard, or a change that the run's status forbids
                raise
            return None
        self._last_seq = max([self._last_seq, *receipt.seqs])
        if receipt.replayed and await until_stored(lambda: self._is_old(receipt)):
            return replace(receipt, run=self.run)
        self.run = receipt.run
        self.committed = True
        self._started.difference_update(result.tool_use_id for message in messages for result in _results(message))
        for message, message_id in zip(messages, receipt.message_ids, strict=False):
            for call in message.tool_calls:
                self._own_calls.add(call.id)
                self._calling_messages[call.id] = message_id
        self.calls.add(messages)
        return receipt

    async def _is_old(self, receipt: RunReceipt) -> bool:
        """Was this the commit of an earlier hold, under a key of the caller's? Its run is older than ours."""
        current = await self.store.runs.find(self.run.id)
        if current is not None and current.rev == receipt.run.rev:
            return False  # this hold's own commit, repeated because its answer was lost
        self._take(current)
        return True

    async def check(self) -> None:
        """Look whether another process moved the run."""
        async with self._turn:
            if self.end is None and self.run.status == RUNNING:
                await self._look()

    def lose(self) -> None:
        """The lease was lost."""
        if self.end is None:
            self.lost = True
            self.end = Stopped(f"the lease of run {self.run.id!r} was lost", self.run)

    async def _look(self) -> None:
        self._take(await self.store.runs.find(self.run.id))

    def _take(self, current: Run | None) -> None:
        """Take note of the run as it is now; if another process moved it, the hold ends, whatever ended it before."""
        if current is None:
            self.lost, self.end = False, Stopped(f"run {self.run.id!r} was deleted", None)
        elif current.rev != self.run.rev:
            self.lost, self.run, self.end = False, current, Stopped(_cause(current), current)

    async def _rescued(self, messages: Sequence[Message]) -> Stopped:
        """Store the results among the messages without the run, and return the reason why the hold ended."""
        end = self.end or Stopped(f"run {self.run.id!r} is over", self.run)
        results = [message for message in messages if _results(message)]
        if end.run is not None and end.run.status != DONE:  # another worker may make them
            results = [message for message in results if message.result_text != NOT_MADE]
        if results and end.run is not None:
            try:
                await self._store_late(results)
            except NotFoundError as error:
                LOGGER.warning("a late result of run %r is not stored: %s", self.run.id, brief(error))
                return Stopped(f"run {self.run.id!r} was deleted", None)
        return end

    async def _store_late(self, results: Sequence[Message]) -> None:
        """Store results, except where a later call of another worker has the same id: it would answer that one."""
        path = await until_stored(lambda: self.thread.path(branch=self.run.branch))
        last = self._last_seq or (path[-1].seq if path else 0)
        newer = {item.call.id for item in unfinished(path) if item.run_id == self.run.id and item.seq > last}
        again = {call.id for record in path if record.seq > last for call in record.message.tool_calls}
        late = [message for message in results if message.tool_call_id not in newer]
        if len(late) < len(results):
            LOGGER.warning("a late result of run %r is not stored: the id of its call was used again", self.run.id)
        if not late:
            return
        late = [message if message.tool_call_id in again else _marked(message) for message in late]
        key = uuid4().hex

        async def write() -> Receipt:
            # With the run as its guard: another thread may have taken the id of one that was deleted.
            return await self.store.commit(self.run.thread_id, messages=late, run=self.run, key=key)

        while True:
            try:
                await until_stored(write)
            except VersionConflict:  # its successor has moved the run, or it is another run
                await until_stored(self._follow)
            else:
                return

    async def _follow(self) -> None:
        """Read the run again; raises `NotFoundError` if it is gone, also if another one has its id now."""
        current = await self.store.runs.get(self.run.id)
        if (current.thread_id, current.created_at) != (self.run.thread_id, self.run.created_at):
            raise NotFoundError(f"run {self.run.id!r} was deleted, and its id was used again")
        self.lost = self.lost and current.rev == self.run.rev
        self.run = current

    async def _prepared(self, change: RunChange, messages: Sequence[Message]) -> RunChange:
        """The change; a wait also says that a job made it, what its tickets are about, and which calls are doubtful."""
        wait = change.waiting
        if wait is None:
            return change
        wait = replace(wait, extra=Extra({**wait.extra, FROM_JOB: True}))
        if not (self.recovered or self._doubtful or any(each.tool_call_id for each in wait.tickets)):
            return replace(change, waiting=wait)
        calls = await until_stored(lambda: read_calls(self.store, self.run))
        calls.add(messages)
        # What was decided about calls that are still open is not asked again, nor forgotten.
        decided = self.calls.decided(self.run.body.resumed_from, but=wait.tickets)
        wait = replace(wait, tickets=calls.numbered([*decided, *wait.tickets]))
        settled = {ticket.tool_call_id for ticket in wait.tickets}
        settled |= {call.id for message in messages for call in message.tool_calls}
        doubtful = [each.call.id for each in calls.open if self.is_uncertain(each.call)]
        if doubtful := [call_id for call_id in doubtful if call_id not in settled]:
            wait = replace(wait, extra=Extra({**wait.extra, DOUBTS: doubtful}))
        return replace(change, waiting=wait)


async def read_calls(store: Store, run: Run) -> Calls:
    """The calls of a run, as they are stored now."""
    return Calls(await store.messages.path(run.thread_id, branch=run.branch), run.id)


def may_have_begun(run: Run) -> bool:
    """May another worker have started tools of this run, which is about to be picked up?"""
    if run.waiting is not None:
        return run.started_at is not None and run.waiting.extra.get(FROM_JOB) is not True
    return run.status == RUNNING


def _doubts(run: Run) -> frozenset[str]:
    """The calls that may have run before the wait that the last `resume` ended."""
    wait = run.body.resumed_from
    names = [] if wait is None else wait.extra.get(DOUBTS)
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def _key(run: Run) -> str:
    """The key of the next step of a run."""
    key = f"{run.id}/{run.rev}"
    if len(key.encode()) <= limits.ID_BYTES:
        return key
    return f"{hashlib.sha256(run.id.encode()).hexdigest()}/{run.rev}"


def _marked(message: Message) -> Message:
    """A late result that says so: if another worker has answered the call meanwhile, the model is shown both."""
    return replace(message, extra=Extra({**message.extra, LATE: True}))


def _results(message: Message) -> list[ToolResult]:
    return [block for block in message.content if isinstance(block, ToolResult)]


def _cause(run: Run) -> str:
    if run.outcome is not None:
        return f"run {run.id!r} was {_ENDS.get(run.outcome.termination.type, 'ended by another process')}"
    if run.status == WAITING:
        return f"run {run.id!r} was paused from outside"
    return f"another worker has taken over run {run.id!r}"
