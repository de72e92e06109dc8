"""Plans a prepared commit as the operations of one transaction.

`operations` takes a guess about the target branch and lists what must change; nothing here reads or waits, so a
commit's cost follows what it adds. The guess is a condition of the transaction: if it is wrong, nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.kernel import codec
from perdure.kernel.ops import (
    ABSENT,
    ANY,
    NOW,
    Append,
    AtMost,
    Check,
    Condition,
    Default,
    Delete,
    Inc,
    LogEntry,
    Max,
    Op,
    Patch,
    Put,
    Seq,
    Swap,
)  # fmt: skip
from perdure.model.branch import MAIN
from perdure.model.run import RUNNING, NewRun, Run, RunChange
from perdure.model.state import REMOVE
from perdure.rules import run_machine
from perdure.stores.commit.request import Prepared
from perdure.stores.commit.run_change import LOG, changed_columns, encoded_body, new_body, produced
from perdure.stores.context import Context
from perdure.stores.thread_creation import Birth, birth_ops


class ForkPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A branch to make: its name, the message it continues, and the incarnation of the thread that has this message.

    `unmoved`: the hot row must be the one that the guess was read with.
    """

    name: str
    parent: int | None
    seq: int
    message_id: str | None
    born: int
    switch: bool
    unmoved: bool = False


class Guess(msgspec.Struct, frozen=True, gc=False):
    """What a try assumes: the target branch, whether it is the current one, and a birth when the thread is missing.

    `key_rev` is the rev of an expired key row that this try replaces. `queue` is a condition under which no id that the
    caller brought is pending; None while the thread may have no queue row yet. `head_rev` is the rev of the hot row
    that the guess was read with: the same guess with the same rev again means that no other writer is in the way.
    `fork` makes the target branch, whose number is then the next one that is free.
    """

    branch: int
    current: bool
    birth: Birth | None = None
    parent_checks: tuple[Op, ...] = ()
    key_rev: int | None = None
    queue: Condition | None = None
    head_rev: int | None = None
    fork: ForkPlan | None = None


EMPTY_QUEUE: Condition = {"count": 0}


def first_guess(context: Context, commit: Prepared) -> Guess:
    """The branch named by the commit or its run, else the one that was current when this process last looked."""
    if commit.branch is not None:
        return Guess(commit.branch, current=False)
    if isinstance(commit.run, RunChange):
        return Guess(commit.run.run.branch, current=False)
    if isinstance(commit.run, Run):
        return Guess(commit.run.branch, current=False)
    return Guess(context.current.get(commit.thread_id, MAIN), current=True)


def operations(commit: Prepared, guess: Guess) -> list[Op]:
    """The one transaction of a commit."""
    count = len(commit.messages)
    hot: dict[str, Any] = {"version": Inc(count), "updated_at": NOW} if count else {"updated_at": NOW}
    if commit.fence is not None:
        hot["fence"] = Max(commit.fence)
    if guess.fork is not None:
        hot.update({"branches": Inc(1), "branch": guess.branch} if guess.fork.switch else {"branches": Inc(1)})
    hot.update(_pointers(commit))
    ops: list[Op] = []
    if guess.birth is None:
        ops.append(Patch("thread_heads", (commit.thread_id,), hot, _hot_condition(commit, guess)))
        ops.extend(_branch_ops(commit, guess))
    else:
        ops.extend(_birth(commit, guess.birth, hot))
        ops.extend(guess.parent_checks)
    if count:
        expect = 0 if guess.birth is not None else commit.expect
        ops.append(Append(LOG, commit.thread_id, entries(commit, guess.branch), expect))
    if commit.brought_ids and guess.birth is None:
        ops.append(_queue_op(commit, guess))
    ops.extend(_run_ops(commit, guess))
    ops.extend(_state_ops(commit))
    ops.extend(_key_ops(commit, guess))
    return ops


def _hot_condition(commit: Prepared, guess: Guess) -> Condition:
    if (commit.if_idle or (guess.fork is not None and guess.fork.unmoved)) and guess.head_rev is not None:
        # Every commit that moves a run moves the hot row too: with its rev, nothing that was looked at has changed.
        return guess.head_rev
    condition: dict[str, Any] = {}
    if guess.current and (commit.messages or isinstance(commit.run, NewRun) or commit.expect_head is not None):
        condition["branch"] = guess.branch
    if commit.resource is not None:
        condition["resource"] = commit.resource
    if commit.fence is not None:
        condition["fence"] = AtMost(commit.fence)
    if commit.expect is not None and not commit.messages:
        condition["version"] = commit.expect
    if guess.fork is not None:
        condition.update(branches=guess.branch, born=guess.fork.born)
    return condition or ANY


def _branch_ops(commit: Prepared, guess: Guess) -> list[Op]:
    key = (commit.thread_id, guess.branch)
    if guess.fork is not None:
        return [Put("branches", key, _fork_columns(commit, guess.fork), None, ABSENT)]
    condition: dict[str, Any] = {"deleted_at": None}
    if commit.expect_head is not None:
        condition["head"] = commit.expect_head
    if commit.messages:
        moved = {"head": commit.message_ids[-1], "head_seq": Seq(LOG), "length": Inc(len(commit.messages))}
        return [Patch("branches", key, moved, condition)]
    return [Check("branches", key, condition)] if commit.expect_head is not None or commit.branch is not None else []


def _fork_columns(commit: Prepared, fork: ForkPlan) -> dict[str, Any]:
    count = len(commit.messages)
    return {
        "parent": fork.parent,
        "fork_seq": fork.seq,
        "fork": fork.message_id,
        "head": commit.message_ids[-1] if count else fork.message_id,
        "head_seq": Seq(LOG) if count else fork.seq,
        "length": count,
        "created_at": NOW,
        "name": fork.name,
    }


def _queue_op(commit: Prepared, guess: Guess) -> Op:
    """Guard the brought ids by the thread's queue row: every change of the queue moves it, an absent one is made."""
    key = (commit.thread_id,)
    if guess.queue is not None:
        return Check("queues", key, guess.queue)
    made = Default({"count": 0, "revision": 0, "waiting": None})
    return Patch("queues", key, {"waiting": None}, EMPTY_QUEUE, default=made)


def _birth(commit: Prepared, birth: Birth, hot: Mapping[str, Any]) -> list[Op]:
    count = len(commit.messages)
    head = {name: value.new if isinstance(value, Swap) else value for name, value in hot.items()}
    head["version"] = Seq(LOG) if count else 0
    main = {"head": commit.message_ids[-1], "head_seq": Seq(LOG), "length": count} if count else {}
    return birth_ops(birth, head, main)


def entries(commit: Prepared, branch: int) -> list[LogEntry]:
    """The log entries of a commit's messages, as `records.message_entry` makes them."""
    return [
        (m.id, m.role, branch, m.visibility, m.run_id, m.step, NOW, body)
        for m, body in zip(commit.messages, commit.bodies, strict=True)
    ]


def _pointers(commit: Prepared) -> dict[str, Any]:
    run, run_id = commit.run, commit.run_id
    if run_id is None or isinstance(run, Run) or run is None:
        return {}
    status = run.status if isinstance(run, NewRun) else run.status or run.run.status
    moves = run_machine.pointers(status, created=isinstance(run, NewRun))
    changes: dict[str, Any] = dict.fromkeys(moves.take, run_id)
    for name in moves.fill:
        changes[name] = Swap(None, run_id)
    for name in moves.clear:
        changes[name] = Swap(run_id, None)
    return changes


def _run_ops(commit: Prepared, guess: Guess) -> list[Op]:
    run = commit.run
    if run is None or commit.run_id is None:
        return []
    key = (commit.run_id,)
    if isinstance(run, NewRun):
        return [Put("runs", key, *new_run_row(commit, run, guess.branch), ABSENT)]
    if isinstance(run, Run):
        return [Check("runs", key, run.rev)]
    if commit.effect is None:
        raise TypeError("a commit that changes a run has its effect")
    return [Patch("runs", key, changed_columns(commit.effect, run.run), run.run.rev, commit.effect.encoded)]


def new_run_row(commit: Prepared, run: NewRun, branch: int) -> tuple[dict[str, Any], bytes]:
    """The columns and the body of a run that the commit creates."""
    body = encoded_body(new_body(run, commit.message_ids if commit.inputs else []))
    return new_run_columns(commit, run, branch), body


def new_run_columns(commit: Prepared, run: NewRun, branch: int) -> dict[str, Any]:
    """The columns of a run that the commit creates."""
    columns: dict[str, Any] = {
        "thread": commit.thread_id,
        "agent_id": run.agent_id,
        "status": run.status,
        "parent_run_id": run.parent_run_id,
        "branch": branch,
        "created_at": NOW,
        "started_at": NOW if run.status == RUNNING else None,
        "updated_at": NOW,
        "steps": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "output_count": 0,
    }
    count = len(commit.messages)
    if commit.inputs and count:
        columns.update(input_first=Seq(LOG, count - 1), input_last=Seq(LOG))
    else:
        columns.update(_first_output(commit))
    return columns


def _first_output(commit: Prepared) -> dict[str, Any]:
    positions = produced(commit.messages, commit.run_id)
    if not positions:
        return {}
    newest = len(commit.messages) - 1
    return {
        "output_last": Seq(LOG, newest - positions[-1]),
        "output_first": Seq(LOG, newest - positions[0]),
        "output_count": len(positions),
    }


def _state_ops(commit: Prepared) -> list[Op]:
    ops: list[Op] = []
    written = set()
    for owner, name, value in commit.state:
        condition: Condition = ANY
        if not owner:
            written.add(name)
            if name in commit.expect_state:
                rev = commit.expect_state[name]
                condition = ABSENT if rev is None else rev
        key = (commit.thread_id, owner, name)
        if value is REMOVE:
            ops.append(Delete("state", key, condition))
        else:
            ops.append(Put("state", key, {"schema": value[0], "at": NOW}, value[1], condition))
    for name, rev in commit.expect_state.items():
        if name not in written and rev is not None:
            ops.append(Check("state", (commit.thread_id, "", name), rev))
    return ops


def _key_ops(commit: Prepared, guess: Guess) -> list[Op]:
    if commit.key is None:
        return []
    count = len(commit.messages)
    columns = {
        "version": Seq(LOG) if count else None,
        "count": count,
        "at": NOW,
        "digest": commit.digest,
        "run": commit.run_id,
    }
    condition: Condition = ABSENT if guess.key_rev is None else guess.key_rev
    return [Put("keys", (commit.thread_id, commit.key), columns, codec.encode(commit.message_ids), condition)]
