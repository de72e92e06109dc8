"""A commit of a known kind as its values, in one pass.

Most commits are one of a few kinds: messages or none, a step of a run, an end, documents, a key. What follows from the
kind is worked out once, from the operations that `plan` makes; after that a commit is only the list of its values. Each
part below adds the values of its operations, in the order in which `plan.operations` has them, and returns what
distinguishes its operations from those of other kinds. So a new part of a commit is a function here and one in `plan`,
and a test compares the two on every commit of the suite.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

from perdure.kernel import codec
from perdure.kernel.kinds import Filled, Kind, values_of
from perdure.kernel.shapes import describe_columns
from perdure.model.run import STATUSES, NewRun, Run, RunChange
from perdure.rules import run_machine
from perdure.stores.commit.plan import Guess, entries, new_run_row, operations
from perdure.stores.commit.request import Prepared

Token = tuple[Any, ...]

_MOST_KINDS = 4_096
_MOST_DOCUMENTS = 8
"""Every number of documents is a kind of its own."""
_kinds: dict[Token, Kind | None] = {}
"""By what the parts return. None: no engine takes it as a kind."""


def fill(commit: Prepared, guess: Guess) -> Filled | None:
    """The transaction of a commit; None if its kind is too rare to be one."""
    if guess.birth is not None or guess.fork is not None or commit.if_idle or commit.resource is not None:
        return None
    if (commit.brought_ids and guess.queue is None) or commit.expect_state or commit.removes_state:
        return None
    if len(commit.state) > _MOST_DOCUMENTS:
        return None
    run, count = commit.run, len(commit.messages)
    values: list[Any] = []
    token: Token = (
        _hot(commit, guess, count, values),
        _messages(commit, guess, count, values),
        _queue(commit, guess, values) if commit.brought_ids else None,
        _run(commit, guess, run, values) if run is not None else None,
        _state(commit, values) if commit.state else None,
        _key(commit, guess, count, values) if commit.key is not None else None,
    )
    try:
        kind = _kinds[token]
    except KeyError:
        kind = _learn(token, commit, guess, values)
    if kind is None:
        return None
    return Filled(kind, values, entries(commit, guess.branch) if count else [], partial(operations, commit, guess))


def _learn(token: Token, commit: Prepared, guess: Guess, values: list[Any]) -> Kind | None:
    """The kind of a commit that is the first of its token."""
    ops = operations(commit, guess)
    if len(_kinds) >= _MOST_KINDS:
        _kinds.clear()
    # What is not the same both ways goes the slower way: nothing wrong is ever written.
    kind = _kinds[token] = Kind(ops, owned=True) if values_of(ops) == values else None
    return kind


def _hot(commit: Prepared, guess: Guess, count: int, values: list[Any]) -> Token:
    values.append(commit.thread_id)
    if count:
        values.append(count)
    fence = commit.fence
    if fence is not None:
        values.append(fence)
    run, status, is_new = commit.run, None, False
    if isinstance(run, RunChange) and commit.effect is not None:
        status = commit.effect.status
        values += _POINTER_VALUES[status]((None, commit.run_id))
    elif isinstance(run, NewRun):
        status, is_new = run.status, True
        values += _NEW_POINTER_VALUES[status]((None, commit.run_id))
    guarded = guess.current and (count > 0 or is_new or commit.expect_head is not None)
    if guarded:
        values.append(guess.branch)
    if fence is not None:
        values.append(fence)
    expects = commit.expect is not None and not count
    if expects:
        values.append(commit.expect)
    return count > 0, fence is not None, status, is_new, guarded, expects


def _pointer_values(*, created: bool) -> dict[str, Callable[[Token], Token]]:
    """By status of a run: picks the values of its moves from None and its id. First come the pointers that it takes,
    then those that it fills, then those that it clears."""
    moves = {status: run_machine.pointers(status, created=created) for status in STATUSES}
    return {
        status: _picking([*[1] * len(move.take), *[0, 1] * len(move.fill), *[1, 0] * len(move.clear)])
        for status, move in moves.items()
    }


def _picking(positions: list[int]) -> Callable[[Token], Token]:
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda both: tuple([both[at] for at in positions])


_POINTER_VALUES = _pointer_values(created=False)
_NEW_POINTER_VALUES = _pointer_values(created=True)


def _messages(commit: Prepared, guess: Guess, count: int, values: list[Any]) -> Token:
    """The row of the branch, and the append."""
    head, expect = commit.expect_head, commit.expect
    if not count:
        if head is None and commit.branch is None:
            return ()
        values += (commit.thread_id, guess.branch) if head is None else (commit.thread_id, guess.branch, head)
        return (head is not None,)
    values += (commit.thread_id, guess.branch, commit.message_ids[-1], 0, count)
    if head is not None:
        values.append(head)
    values += (commit.thread_id, count)
    if expect:
        values.append(expect)
    return head is not None, None if expect is None else expect > 0


def _queue(commit: Prepared, guess: Guess, values: list[Any]) -> Token:
    values.append(commit.thread_id)
    if not isinstance(guess.queue, dict):
        return (guess.queue,)
    values += guess.queue.values()
    return tuple(guess.queue)


def _run(commit: Prepared, guess: Guess, run: Run | RunChange | NewRun, values: list[Any]) -> Token:
    values.append(commit.run_id)
    if isinstance(run, NewRun):
        return describe_columns(*new_run_row(commit, run, guess.branch), values)
    effect = commit.effect
    if not isinstance(run, RunChange) or effect is None:
        values.append(run.rev if isinstance(run, Run) else None)
        return ()
    values += (effect.steps, effect.input_tokens, effect.output_tokens)
    moved = effect.status != run.run.status
    if moved:
        values.append(effect.status)
    if effect.count:
        values.append(effect.last_back)
        if effect.first_back is not None:
            values.append(effect.first_back)
        values.append(effect.count)
    if effect.encoded is not None:
        values.append(effect.encoded.decode())
    values.append(run.run.rev)
    return moved, effect.starts, effect.ends, effect.count > 0, effect.first_back is None, effect.encoded is None


def _state(commit: Prepared, values: list[Any]) -> Token:
    for owner, name, (schema, body) in commit.state:
        values += (commit.thread_id, owner, name, schema, body.decode())
    return (len(commit.state),)


def _key(commit: Prepared, guess: Guess, count: int, values: list[Any]) -> Token:
    ids = codec.encode(commit.message_ids).decode()
    values += (commit.thread_id, commit.key, 0 if count else None, count, commit.digest, commit.run_id, ids)
    if guess.key_rev is not None:
        values.append(guess.key_rev)
    return count > 0, guess.key_rev is None
