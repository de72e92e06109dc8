"""Answers the open calls of a run: asks people first, runs no tool twice by accident, and commits every result.

The calls are taken one at a time, in their order, and each result is committed before the next tool starts. So after a
crash only the first call without a result is uncertain, which is what `serve(in_order=True)` promises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.errors import InvalidError, short_repr
from perdure.model.message import Message, ToolUse
from perdure.model.plain import check_json
from perdure.model.run import RUNNING
from perdure.workers.trouble import is_async

if TYPE_CHECKING:
    from perdure.workers.job import Job

Tools = Mapping[str, Callable[..., Any]]
"""The tools by the names that the model uses."""
Choice = Collection[str] | Callable[[ToolUse], bool]
"""Some of the calls: those of the tools with these names, or those of which a function says so."""
DENIED = "The user did not approve this call: it was not made."
CUT_OFF = "The call was cut off. It may or may not have taken effect: ask before you repeat it."


class ToolLoop(NamedTuple):
    """How the calls of a run are answered: by which tools, after which questions, and with which texts otherwise."""

    tools: Tools
    ask: Choice
    repeatable: Choice
    denied: str
    cut_off: str

    def check(self) -> None:
        """Refuse a loop that would run a tool without the approval it needs, or cannot answer."""
        tools: object = self.tools
        if not isinstance(tools, Mapping) or not all(callable(tool) for tool in tools.values()):
            raise InvalidError(
                f"tools must be a dict of functions by name, not {short_repr(tools)}", hint='{"weather": weather}'
            )
        for name, choice in (("ask", self.ask), ("repeatable", self.repeatable)):
            _check_choice(name, choice, tools)
        for name, text in (("denied", self.denied), ("cut_off", self.cut_off)):
            if type(text) is not str:
                raise InvalidError(f"{name} must be text, not {short_repr(text)}")
            check_json(text, name)

    async def answer(self, job: Job) -> bool:
        """Answer the open calls; True if the model is to be asked next, False if the run waits or is over."""
        if job.run.status != RUNNING:
            return False
        calls: Sequence[ToolUse] = await job.unfinished_calls()
        if asked := [call for call in calls if self._must_ask(job, call)]:
            await job.ask(*asked)
            return False
        for call in calls:
            with job.shield():  # a stop does not cut off a tool halfway
                await job.commit(await self._result(job, call))
        return True

    def _must_ask(self, job: Job, call: ToolUse) -> bool:
        """Not about a call that is not made in any case: a yes would not say whether it was made before."""
        return _is_chosen(self.ask, call) and job.decision(call) is None and not self._is_cut_off(job, call)

    def _is_cut_off(self, job: Job, call: ToolUse) -> bool:
        return job.uncertain(call) and not _is_repeatable(self.repeatable, call)

    async def _result(self, job: Job, call: ToolUse) -> Message:
        # Whatever `ask` says by now: what a person has denied is not done.
        if job.decision(call) is not None and not job.approved(call):
            return Message.tool(call.id, self.denied, is_error=True)
        if self._is_cut_off(job, call):
            return Message.tool(call.id, self.cut_off, is_error=True)
        return await job.call_tool(call, self.tools.get(call.name))


def _is_chosen(choice: Choice, call: ToolUse) -> bool:
    return bool(choice(call)) if callable(choice) else call.name in choice


def _is_repeatable(choice: Choice, call: ToolUse) -> bool:
    """Only a plain True of a function lets a tool run twice."""
    return choice(call) is True if callable(choice) else call.name in choice


def _check_choice(name: str, choice: object, tools: Tools) -> None:
    if callable(choice):
        if is_async(choice):
            raise InvalidError(f"{name} must not be an async function, as {short_repr(choice)} is")
        return
    if isinstance(choice, (str, bytes, Mapping)) or not isinstance(choice, Collection):
        raise InvalidError(
            f"{name} must be names of tools or a function, not {short_repr(choice)}", hint=f'{name}={{"book_table"}}'
        )
    # A misspelt name would run a tool that nobody has approved.
    for item in choice:
        if type(item) is not str or item not in tools:
            raise InvalidError(f"{name} names {short_repr(item)}, which is not among the tools")
