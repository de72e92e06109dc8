"""What a change does to its run, worked out once: the transaction and the receipt both follow it.

A change is built on a record with its rev, so every value but the clock and the seqs is known before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.kernel import codec
from perdure.kernel.ops import NOW, Applied, Inc, Seq
from perdure.model.faithful import to_json
from perdure.model.message import ALL, Message
from perdure.model.run import DONE, RUNNING, NewRun, Run, RunBody, RunChange, RunInput, RunOutput
from perdure.stores.commit.resumption import most_bytes, resumed, taken_over, within_limit

LOG = "messages"
_PRODUCERS = ("assistant", "tool")


class RunEffect(msgspec.Struct, frozen=True, gc=False):
    """A run after a change, but for what the database decides.

    `body` is the new body, and `encoded` its JSON; both None if the change leaves it alone. The commit adds `count`
    messages to the run's output; `first_back` and `last_back` say how far the first and the last of them are from the
    commit's last message, and `first_back` is None if the run had output before.
    """

    status: str
    starts: bool
    ends: bool
    steps: int
    input_tokens: int
    output_tokens: int
    body: RunBody | None
    encoded: bytes | None
    count: int
    first_back: int | None
    last_back: int


def effect_of(change: RunChange, messages: Sequence[Message], *, inputs: bool) -> RunEffect:
    """What a checked change does to its run, in a commit of these messages."""
    run = change.run
    status = change.status or run.status
    rewritten = run.body.waiting is not None or change.waiting is not None
    rewritten = rewritten or change.outcome is not None or change.dispatch_id is not None
    rewritten = rewritten or change.takeovers is not None
    body = _changed_body(change) if rewritten else None
    positions = [] if inputs else produced(messages, run.id)
    newest = len(messages) - 1
    return RunEffect(
        status,
        change.status == RUNNING and run.started_at is None,
        change.status == DONE,
        # The sums, not increments: the rev guards what they build on, and no engine has to add beyond 2^52.
        run.steps + change.steps,
        run.input_tokens + change.input_tokens,
        run.output_tokens + change.output_tokens,
        body,
        None if body is None else encoded_body(body),
        len(positions),
        newest - positions[0] if positions and run.output is None else None,
        newest - positions[-1] if positions else 0,
    )


def _changed_body(change: RunChange) -> RunBody:
    """The run's JSON after a change: it waits only while waiting, and keeps its outcome once done."""
    before = change.run.body
    body = before if change.status is None else msgspec.structs.replace(before, waiting=change.waiting)
    if change.status == RUNNING and before.waiting is not None:
        body = resumed(body, before.waiting)
    if change.outcome is not None:
        body = msgspec.structs.replace(body, outcome=change.outcome)
    if change.dispatch_id is not None:
        body = msgspec.structs.replace(body, dispatch_id=change.dispatch_id)
    if change.takeovers is not None:
        body = taken_over(body, change.takeovers)
    return within_limit(body)


def encoded_body(body: RunBody) -> bytes:
    """The stored JSON of a run; raises `InvalidError` beyond the limit."""
    return codec.encode_checked(to_json(body), "run", most_bytes(body))


def produced(messages: Sequence[Message], run_id: str | None) -> list[int]:
    """Positions of the messages that count as the run's visible output."""
    return [
        i for i, m in enumerate(messages) if m.run_id == run_id and m.role in _PRODUCERS and m.visibility == ALL
    ]  # fmt: skip


def changed_columns(effect: RunEffect, before: Run) -> dict[str, Any]:
    """The columns that a change writes."""
    columns: dict[str, Any] = {
        "updated_at": NOW,
        "steps": effect.steps,
        "input_tokens": effect.input_tokens,
        "output_tokens": effect.output_tokens,
    }
    if effect.status != before.status:
        columns["status"] = effect.status
    if effect.starts:
        columns["started_at"] = NOW
    if effect.ends:
        columns["finished_at"] = NOW
    if effect.count:
        columns["output_last"] = Seq(LOG, effect.last_back)
        if effect.first_back is not None:
            columns["output_first"] = Seq(LOG, effect.first_back)
        columns["output_count"] = Inc(effect.count)
    return columns


def run_after(before: Run, effect: RunEffect, applied: Applied, last: int | None) -> Run:
    """The run as a change left it; `last` is the seq of the commit's last message."""
    output = before.output
    if effect.count and last is not None:
        first, count = (last - (effect.first_back or 0), 0) if output is None else (output.first, output.count)
        output = RunOutput(count + effect.count, first, last - effect.last_back)
    now = applied.now
    return msgspec.structs.replace(
        before,
        status=effect.status,
        steps=effect.steps,
        input_tokens=effect.input_tokens,
        output_tokens=effect.output_tokens,
        started_at=now if effect.starts else before.started_at,
        finished_at=now if effect.ends else before.finished_at,
        updated_at=now,
        output=output,
        body=before.body if effect.body is None else effect.body,
        rev=applied.rev,
    )


def new_body(run: NewRun, trigger_ids: Sequence[str]) -> RunBody:
    """The JSON of a new run: its input messages are its triggers, unless the caller named others."""
    source = run.body.input or RunInput()
    if not trigger_ids or source.trigger_message_ids:
        return run.body
    triggers = msgspec.structs.replace(source, trigger_message_ids=list(trigger_ids))
    return msgspec.structs.replace(run.body, input=triggers)
