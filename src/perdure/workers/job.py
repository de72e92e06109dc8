"""What a handler holds: a run that this worker has picked up, and the calls on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Unpack, cast

from perdure.errors import InvalidError, short_repr
from perdure.model.message import ALL, Message, ToolUse
from perdure.model.receipt import RunReceipt
from perdure.model.run import RUNNING, Run, RunChange
from perdure.model.tickets import Ticket
from perdure.stores.messages import End, Records
from perdure.stores.options import AppendOptions
from perdure.stores.store import Store
from perdure.stores.thread_handle import ThreadHandle
from perdure.workers.hold import NOT_MADE, Hold
from perdure.workers.late_results import with_late_results
from perdure.workers.takeovers import in_a_row
from perdure.workers.tool_calls import result_of
from perdure.workers.tool_loop import CUT_OFF, DENIED, Choice, ToolLoop, Tools

INTERRUPTED = "The call was interrupted: it may or may not have taken effect."
"""What the model reads as the result of a call that never got one."""


class Job:
    """A run that this worker drives. Made by `serve`, and passed to the handler."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def __repr__(self) -> str:
        return f"<perdure.workers.Job {self.run.id!r} {self.run.status}>"

    @property
    def run(self) -> Run:
        """The run as the last commit of this job left it; once stopped, as it was found then."""
        return self._hold.run

    @property
    def thread(self) -> ThreadHandle:
        """The thread of the run, for reading. Commit through the job."""
        return self._hold.thread

    @property
    def store(self) -> Store:
        """The store that `serve` was given. Commit through the job."""
        return self._hold.store

    @property
    def stopped(self) -> bool:
        """Whether the run is known to be no longer this worker's."""
        return self._hold.end is not None

    @property
    def takeovers(self) -> int:
        """How many workers in a row were lost while they worked on this run, since its last step; mostly 0."""
        return in_a_row(self.run)

    async def history(
        self, *, upto: End | None = None, limit: int | None = None, interrupted: str | None = INTERRUPTED
    ) -> Records:
        """What the model should see of the run's branch.

        The options are those of `store.messages.history`. A call of an earlier run that never got a result, because the
        run was stopped, is shown with the text `interrupted` as its result; None leaves such calls out. If its result
        came late and is on the branch of the call only, it is shown instead of the text. If it came when another
        worker had answered the call, for example with "may or may not", it is shown behind that answer.
        """
        own = None if interrupted is None else self.run.id
        history = await self.thread.history(
            branch=self.run.branch, upto=upto, limit=limit, interrupted=interrupted, run_id=own
        )
        return history if interrupted is None else await with_late_results(self.store, history)

    async def unfinished_calls(self) -> list[ToolUse]:
        """The tool calls of this run that have no result yet, in order."""
        return [item.call for item in await self._hold.unfinished_calls()]

    def uncertain(self, call: ToolUse) -> bool:
        """Whether this unfinished call may have been started: by another worker that died, or by this job.

        True after a crash, after a pause from outside (a tool may have been running then), and if the handler is called
        again after an error that may pass: for all unfinished calls or, with `in_order`, only for the first. False for
        calls that this job has committed since, until it starts their tools. False after a wait that a job itself
        committed, because no tool was running; but a call that was uncertain before that wait, and has no ticket, is
        still uncertain.
        """
        return self._hold.is_uncertain(_checked(call))

    def decision(self, call: ToolUse | str) -> Any:
        """The decision on a call, or on a ticket by its id; None if there is none.

        A decision is about one call, even if the model repeats ids: it is over once the call has a result.
        """
        calls, wait = self._hold.calls, self.run.body.resumed_from
        return calls.decision_by_id(wait, call) if isinstance(call, str) else calls.decision(wait, _checked(call))

    def approved(self, call: ToolUse | str) -> bool:
        """Whether the decision on a call is `True`, or an object whose `approved` is true."""
        decision = self.decision(call)
        return (decision.get("approved") if isinstance(decision, dict) else decision) is True

    def draft(self, delta: str | None) -> None:
        """Show words of an answer before it is committed: `job.draft(stream.add(chunk))`.

        It returns at once: a task of the job stores the text so far, a few times per second, where `follow_drafts` of
        the thread finds it. The next commit of the job with messages, a wait, and the end of the handler remove the
        draft; words that come later begin a new one. A draft that cannot be stored never fails or delays the run, and
        one of more than 256 KiB no longer grows. Call it in the event loop.

        - `delta`: the new words, which people may see. None and `""` add nothing.
        """
        words: object = delta
        if words is not None and not isinstance(words, str):
            raise InvalidError(f"delta must be a text or None, not {short_repr(words)}", hint="job.draft(text)")
        if delta and not self.stopped:
            self._hold.drafts.add(delta, self.run.rev)

    async def call_tool(self, call: ToolUse, function: Callable[..., Any] | None) -> Message:
        """Run a tool with the arguments of a call; returns the result for `commit`, whatever comes of it.

        An async function is awaited, any other runs in a separate thread. Text is the result as it is, other JSON
        data as JSON. If the tool raises an error, does not exist or does not take the arguments, the model reads about
        it. A result that is too long to be stored is cut. Nothing is committed here, and nothing keeps a tool from
        being run twice: ask `uncertain` before. If the job is `stopped`, the tool is not run, and the result says so.

        - `call`: a call of `unfinished_calls()`.
        - `function`: the tool, such as `TOOLS.get(call.name)`; None if the model named one that does not exist.
        """
        _checked(call)
        if self.stopped:
            return Message.tool(call.id, NOT_MADE, is_error=True)
        self._hold.note_started(call)
        return await result_of(call, function, self._hold.key_of(call))

    async def use_tools(
        self,
        tools: Tools,
        *,
        ask: Choice = (),
        repeatable: Choice = (),
        denied: str = DENIED,
        cut_off: str = CUT_OFF,
    ) -> bool:
        """Answer the open calls of the run with the results of tools, and commit each result before the next tool.

        Returns True if the model is to be asked next, and False if the run waits for a person now, or is over: then
        return from the handler. So the loop of an agent is `while await job.use_tools(TOOLS): …`, with a call of the
        model and `job.answer(message)` inside. A stop from outside does not cut off a tool halfway.

        - `tools`: the functions by name. Each is run as by `call_tool`.
        - `ask`: the calls that need the approval of a person: the names of tools, or a function that is given a call
          and returns True for these. The run waits until `runs.decide` has a decision on each, and no tool runs before.
        - `repeatable`: the calls that may be made again if they are `uncertain`, because a tool does no harm when it
          runs twice: names or a function, too. Any other uncertain call is not made.
        - `denied`: what the model reads as the result of a call that was not approved.
        - `cut_off`: what it reads as the result of an uncertain call that was not made again.
        """
        loop = ToolLoop(tools, ask, repeatable, denied, cut_off)
        loop.check()
        async with self._hold.answering:
            return await loop.answer(self)

    async def commit(
        self, *messages: Message, run: RunChange | None = None, **options: Unpack[AppendOptions]
    ) -> RunReceipt:
        """Commit messages together with a change to the run, and update `job.run`.

        - `messages`: appended to the run's branch, in order.
        - `run`: a change to `job.run`: `job.run.step()` (the default), `job.run.finish()` or another.
        - The options are those of `Store.commit`. By default, the key is made from the run's id and rev.

        While the store is unavailable, it repeats the commit, for as long as this worker holds its lease. It raises
        `Stopped` if another process has changed the run; then only the results of tools are stored, without the run.
        """
        change: object = run
        if change is not None and (type(change) is not RunChange or change.run.id != self.run.id):
            raise InvalidError(
                f"run must be a change to run {self.run.id!r}, not {short_repr(change)}", hint="run=job.run.step()"
            )
        receipt = await self._hold.commit(messages, run, options)
        if messages or self.stopped or self.run.status != RUNNING:
            self._hold.drafts.end()
        else:
            self._hold.drafts.move(self.run.rev)
        return receipt

    async def answer(self, message: Message, **options: Unpack[AppendOptions]) -> RunReceipt:
        """Commit an answer from the model: a step if it calls tools, otherwise the end of the run.

        - `message`: the answer. Its usage is added to the run; its text is the run's final output, unless it is
          internal.
        - The options are those of `commit`.
        """
        if type(cast(object, message)) is not Message or message.role != "assistant":
            raise InvalidError(
                f"message must be a Message of the assistant, not {short_repr(message)}",
                hint="job.answer(stream.message())",
            )
        run, usage = self.run, message.usage
        words = message.text if message.visibility == ALL else ""  # the final output is for everybody
        change = run.step(usage=usage) if message.tool_calls else run.finish(words or None, usage=usage)
        return await self.commit(message, run=change, **options)

    async def ask(self, *calls: ToolUse, reason: str = "tool_permission", message: str | None = None) -> RunReceipt:
        """Make the run wait for a decision on each of these calls: `runs.decide(run_id, ticket.ticket_id, …)`.

        Return from the handler right after this call. When all are decided, a worker calls the handler again.

        - `calls`: the tool calls that need a decision. The id of each is the id of its ticket. If the run has used the
          id before, the ticket's id ends in `~2`, `~3` and so on.
        - `reason`: why the run waits, in a word.
        - `message`: a text for the person who is asked.
        """
        if not calls:
            raise InvalidError("there is nothing to ask: name a call", hint="job.ask(call)")
        tickets = [Ticket.for_call(_checked(call)) for call in calls]
        return await self.commit(run=self.run.wait(tickets, reason=reason, message=message))

    @contextmanager
    def shield(self) -> Iterator[None]:
        """`with job.shield():` – inside the block, a stop from outside does not cancel the handler.

        For a tool that must not be cut off halfway; `commit` then stores its result and raises `Stopped`. The same
        holds if the lease is lost. Between two shields, the handler is cancelled as soon as it awaits something. The
        end of `serve` cancels it even inside a shield.
        """
        hold = self._hold
        hold.shields += 1
        hold.unshielded.clear()
        try:
            yield
        finally:
            hold.shields -= 1
            if not hold.shields:
                hold.unshielded.set()


def _checked(call: object) -> ToolUse:
    if not isinstance(call, ToolUse):
        raise InvalidError(f"call must be a ToolUse, not {short_repr(call)}", hint="a call of job.unfinished_calls()")
    return call
