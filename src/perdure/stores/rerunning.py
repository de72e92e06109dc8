"""`runs.rerun`: a fork that starts a run, checked and put together here. `forking` makes it, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.errors import InvalidError
from perdure.model.message import Message
from perdure.model.run import NewRun, Run, RunBody, RunInput
from perdure.rules import checks
from perdure.stores.commit.receipt import with_run
from perdure.stores.commit.request import Fork, Request, prepare
from perdure.stores.context import Context
from perdure.stores.forking import make_fork
from perdure.stores.run_cancelling import get_run


class Rerun(NamedTuple):
    """What the caller of `runs.rerun` asked for."""

    run_id: str
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
    _check(asked)
    # What the caller brought is refused before anything is read: with the run's id where the run is not known yet.
    prepare(_request(asked, asked.run_id, NewRun(agent_id=asked.run_id)))
    old = await get_run(context, asked.run_id, asked.thread_id)
    request = _request(asked, old.thread_id, NewRun(agent_id=old.agent_id, parent_run_id=old.parent_run_id), old.input)
    return with_run((await make_fork(context, prepare(request), _fork(asked))).receipt).run


def _fork(asked: Rerun) -> Fork:
    return Fork(name=asked.name, switch=True, rerun=asked.run_id, replaces=asked.replace)


def _request(asked: Rerun, thread_id: str, run: NewRun, same_input: RunInput | None = None) -> Request:
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
        fork=_fork(asked),
    )


def _check(asked: Rerun) -> None:
    checks.check_id(asked.run_id, "run id")
    checks.check_flag(asked.replace, "replace")
    if asked.thread_id is not None:
        checks.check_id(asked.thread_id, "thread id")
    if asked.new_run_id is not None:
        checks.check_id(asked.new_run_id, "new_run_id")
        if asked.new_run_id == asked.run_id:
            raise InvalidError("new_run_id is the id of the run that is run again", hint="leave it out to mint one")
    if asked.name is not None:
        checks.check_branch_name(asked.name)
    if type(asked.messages) in (list, tuple) and not asked.messages:
        raise InvalidError("messages is empty", hint="leave it out to regenerate the answer to the same question")
