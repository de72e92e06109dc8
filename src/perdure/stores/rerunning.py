"""`runs.rerun`: a fork that starts a run, checked and put together here. `forking` makes it, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.errors import InvalidError, NotFoundError
from perdure.model.message import Message
from perdure.model.run import NewRun, Run, RunBody, RunInput
from perdure.rules import checks
from perdure.stores.commit.receipt import with_run
from perdure.stores.commit.request import Fork, Request, prepare
from perdure.stores.context import Context
from perdure.stores.forking import make_fork
from perdure.stores.run_cancelling import get_run
from perdure.stores.runs_of_messages import find_run_of_message


class Rerun(NamedTuple):
    """What the caller of `runs.rerun` asked for. Either `run_id` or `message_id` is set."""

    run_id: str | None
    message_id: str | None
    messages: Sequence[Message] | None
    agent_id: str | None
    metadata: dict[str, Any] | None
    name: str | None
    replace: bool
    thread_id: str | None
    new_run_id: str | None
    fence: int | None
    key: str | None


async def rerun_run(context: Context, asked: Rerun) -> Run:
    """The run that answers again, or the one that answered when this keyed call was made first."""
    named = _check(asked)
    # What the caller brought is refused before anything is read: with an id of the caller's where the run's is unknown.
    prepare(_request(asked, _fork(asked, named), named, NewRun(agent_id=named)))
    old = await _old_run(context, asked)
    if asked.new_run_id == old.id:
        raise InvalidError("new_run_id is the id of the run that is run again", hint="leave it out to mint one")
    fork = _fork(asked, old.id)
    run = NewRun(agent_id=old.agent_id, parent_run_id=old.parent_run_id)
    request = _request(asked, fork, old.thread_id, run, old.input)
    return with_run((await make_fork(context, prepare(request), fork)).receipt).run


async def _old_run(context: Context, asked: Rerun) -> Run:
    if asked.run_id is not None:
        return await get_run(context, asked.run_id, asked.thread_id)
    thread_id, message_id = asked.thread_id or "", asked.message_id or ""
    run = await find_run_of_message(context, thread_id, message_id)
    if run is None:
        raise NotFoundError(
            f"no run of thread {thread_id!r} was started with or produced message {message_id!r}",
            hint="runs.start(messages=…) makes messages the input of a run",
        )
    return run


def _fork(asked: Rerun, run_id: str) -> Fork:
    return Fork(name=asked.name, switch=True, rerun=run_id, replaces=asked.replace)


def _request(asked: Rerun, fork: Fork, thread_id: str, run: NewRun, same_input: RunInput | None = None) -> Request:
    """The commit: a run of the same agent, under the same parent, with the same input unless that is replaced."""
    body = RunBody(input=same_input if asked.messages is None else None, metadata=asked.metadata)
    agent_id = run.agent_id if asked.agent_id is None else asked.agent_id
    return Request(
        thread_id=thread_id,
        messages=() if asked.messages is None else asked.messages,
        run=msgspec.structs.replace(run, agent_id=agent_id, id=asked.new_run_id, body=body),
        fence=asked.fence,
        key=asked.key,
        inputs=True,
        fork=fork,
    )


def _check(asked: Rerun) -> str:
    """The id that the caller named: of the run, or of a message of its turn."""
    if (asked.run_id is None) == (asked.message_id is None):
        raise InvalidError(
            "runs.rerun takes a run_id or a message_id, one of them",
            hint='runs.rerun("r-1") or runs.rerun(message_id="m-1", thread_id="t-1")',
        )
    named = _checked_name(asked)
    checks.check_flag(asked.replace, "replace")
    if asked.thread_id is not None:
        checks.check_id(asked.thread_id, "thread id")
    if asked.new_run_id is not None:
        checks.check_id(asked.new_run_id, "new_run_id")
    if asked.name is not None:
        checks.check_branch_name(asked.name)
    if type(asked.messages) in (list, tuple) and not asked.messages:
        raise InvalidError("messages is empty", hint="leave it out to regenerate the answer to the same question")
    return named


def _checked_name(asked: Rerun) -> str:
    if asked.run_id is not None:
        return checks.check_id(asked.run_id, "run id")
    if asked.thread_id is None:
        raise InvalidError("message_id needs a thread_id: the thread that has the message", hint="pass thread_id, too")
    return checks.check_id(asked.message_id, "message id")
