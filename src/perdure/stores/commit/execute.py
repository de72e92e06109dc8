"""The commit: messages, run, state and key, in one transaction, refused in one order.

A try is one round trip. When it conflicts, one view of everything the commit named decides what the caller is told, in
the order key → fence → expect → run machine → state → ids; or that the guess was stale and a better one is worth a try.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure import failpoints, limits
from perdure.errors import (
    AlreadyExists,
    IllegalTransition,
    KeyReused,
    NotFoundError,
    OutcomeUnknown,
    StaleClaim,
    VersionConflict,
)  # fmt: skip
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Applied, Get, Op, Read, Ref, Row
from perdure.model.branch import MAIN
from perdure.model.receipt import Receipt
from perdure.model.run import DONE, RUNNING, WAITING, NewRun, Run, RunChange, RunInput
from perdure.model.run_snapshots import SeqRange
from perdure.rules import message_shape, run_machine
from perdure.rules.checks import lineage
from perdure.stores.branch_paths import aim_at
from perdure.stores.commit.plan import EMPTY_QUEUE, LOG, Guess, changed_body, new_body, operations, produced
from perdure.stores.commit.request import Prepared
from perdure.stores.context import Core, gave_up, thread_topic
from perdure.stores.records import receipt_from, run_from, run_output
from perdure.stores.thread_creation import Birth, ancestor_checks, is_expired


class Scene(msgspec.Struct, frozen=True):
    """What one snapshot shows of everything a commit names."""

    head: Row | None
    cold: Row | None
    branch: Row | None
    now: int
    key: Row | None
    key_run: Row | None
    run: Row | None
    state: dict[str, Row | None]
    taken: list[str]
    branch_number: int


async def perform(core: Core, commit: Prepared, extra: Sequence[Op] = ()) -> Receipt:
    """Carry out a prepared commit. `extra` operations ride in the same transaction; a conflict that is theirs alone
    is raised as the kernel's `Conflict`, for the store that added them to judge."""
    if commit.branch_name is not None:
        number = await aim_at(core, commit.thread_id, commit.branch_name)
        commit = msgspec.structs.replace(commit, branch=number)
    guess = _first_guess(core, commit)
    if commit.brought_ids and commit.thread_id in core.queues:
        guess = msgspec.structs.replace(guess, queue=EMPTY_QUEUE)
    if any(message.compaction is not None for message in commit.messages):
        await _check_summaries(core, commit)
    for _ in range(limits.COMMIT_ATTEMPTS):
        if _illegal(commit):
            answer = await explain(core, commit, guess)
        else:
            ops = operations(commit, guess)
            try:
                applied = await _send(core, commit, ops, extra)
            except Conflict as conflict:
                answer = await explain(core, commit, guess)
                if isinstance(answer, Guess) and conflict.op >= len(ops):
                    raise
            else:
                if guess.current:
                    core.remember_current(commit.thread_id, guess.branch)
                if commit.brought_ids and guess.birth is None:
                    core.remember_queue(commit.thread_id)
                return _receipt(core, commit, guess, applied)
        if isinstance(answer, Receipt):
            return answer
        guess = await _guard_queue(core, commit, answer)
    raise gave_up(f"thread {commit.thread_id!r}")


async def _send(core: Core, commit: Prepared, ops: list[Op], extra: Sequence[Op]) -> Applied:
    topic = thread_topic(commit.thread_id)
    send = core.kernel.transact_unchecked
    if extra:
        ops, send = [*ops, *extra], core.kernel.transact
    failpoints.hit("commit.before_transact")
    try:
        applied = await send(core.scope, ops, (topic,))
    except OutcomeUnknown as unknown:
        hint = "retry with the same key" if commit.key else "read the thread before trying again; use key= next time"
        raise OutcomeUnknown(unknown.message, rev=unknown.rev, key=commit.key, hint=hint) from None
    failpoints.hit("commit.after_transact")
    core.clean_up()
    return applied


def _first_guess(core: Core, commit: Prepared) -> Guess:
    if commit.branch is not None:
        return Guess(commit.branch, current=False)
    if isinstance(commit.run, RunChange):
        return Guess(commit.run.run.branch, current=False)
    if isinstance(commit.run, Run):
        return Guess(commit.run.branch, current=False)
    return Guess(core.current.get(commit.thread_id, MAIN), current=True)


async def _check_summaries(core: Core, commit: Prepared) -> None:
    """A summary must stand after what it covers; versions only rise, so what one look allows stays allowed."""
    now, heads, keys = await core.view(
        NOW,
        Get("thread_heads", [(commit.thread_id,)]),
        Get("keys", [(commit.thread_id, commit.key)] if commit.key is not None else []),
    )
    if keys and _remembered(keys[0], heads[0], now):
        return
    version = heads[0]["version"] if heads[0] is not None else 0
    for i, message in enumerate(commit.messages, 1):
        if message.compaction is not None:
            message_shape.check_summary_place(message.compaction, version + i, f"messages[{i - 1}]")


def _illegal(commit: Prepared) -> bool:
    change = commit.run
    return isinstance(change, RunChange) and not run_machine.allows(change.run.status, change)


async def landed(core: Core, commit: Prepared) -> Receipt | None:
    """The stored receipt if this keyed commit was made before; None while its key is free."""
    scene = await _look(core, commit, _first_guess(core, commit))
    return _replay(core, commit, scene) if _remembered(scene.key, scene.head, scene.now) else None


def _remembered(key: Row | None, head: Row | None, now: int) -> bool:
    """Is there a receipt under the key? Not of a deleted thread, even while its keys are being erased.

    `now` is the engine's time, as `at` is: a client whose clock is a week ahead must not repeat an effect.
    """
    if key is None or head is None:
        return False
    return bool(key["at"] + limits.KEY_RETENTION_MS >= now)


async def explain(core: Core, commit: Prepared, guess: Guess) -> Receipt | Guess:
    """Why a try failed: a stored receipt, an error for the caller, or a better guess."""
    scene = await _look(core, commit, guess)
    if _remembered(scene.key, scene.head, scene.now):
        return _replay(core, commit, scene)
    # An expired key is replaced if it is still there; housekeeping may have removed it since the last try.
    key_rev = None if scene.key is None else scene.key.rev
    if scene.head is not None and guess.key_rev != key_rev:
        return msgspec.structs.replace(guess, key_rev=key_rev)
    guess = msgspec.structs.replace(guess, key_rev=key_rev)
    if scene.head is None:
        return await _absent(core, commit, guess, scene)
    if guess.current and guess.branch != scene.head["branch"]:
        # What was guarded on the wrong branch says nothing: try the right one first.
        core.remember_current(commit.thread_id, scene.head["branch"])
        return Guess(scene.head["branch"], current=True, key_rev=guess.key_rev)
    _refuse_fence(commit, scene.head)
    _refuse_expect(commit, scene)
    _refuse_run(commit, scene)
    _refuse_state(commit, scene)
    if scene.taken:
        raise AlreadyExists(
            f"message {scene.taken[0]!r} already exists in thread {commit.thread_id!r}",
            actual=scene.taken,
            hint="committed messages never change; leave the id out to mint a new one",
        )
    return Guess(guess.branch, guess.current, key_rev=guess.key_rev)


async def _guard_queue(core: Core, commit: Prepared, guess: Guess) -> Guess:
    """The guess with a condition on the queue under which the brought ids are free; raises if one is pending."""
    if not commit.brought_ids or guess.birth is not None:
        return guess
    queues, rows = await core.view(
        Get("queues", [(commit.thread_id,)]), Get("pending", [(commit.thread_id, name) for name in commit.brought_ids])
    )
    taken = [str(row.key[1]) for row in rows if row is not None]
    if taken:
        raise AlreadyExists(
            f"message {taken[0]!r} is pending in thread {commit.thread_id!r}",
            actual=taken,
            hint="pending.freeze commits it, pending.retract takes it back; leave the id out to mint a new one",
        )
    row = queues[0]
    if row is None:
        return msgspec.structs.replace(guess, queue=None)
    return msgspec.structs.replace(guess, queue={"revision": row["revision"]} if row["count"] else EMPTY_QUEUE)


async def _look(core: Core, commit: Prepared, guess: Guess) -> Scene:
    thread = commit.thread_id
    guarded = list(commit.expect_state)
    now, heads, colds, branches, keys, key_runs, runs, states, taken = await core.view(
        NOW,
        Get("thread_heads", [(thread,)]),
        Get("threads", [(thread,)]),
        Get("branches", [(thread, guess.branch)]),
        Get("keys", [(thread, commit.key)] if commit.key is not None else []),
        Get("runs", Ref(4, ("run",))),
        Get("runs", [(commit.run_id,)] if commit.run_id is not None else []),
        Get("state", [(thread, "", name) for name in guarded]),
        Read(LOG, thread, where={"id": tuple(commit.message_ids)}, limit=10 if commit.message_ids else 0),
    )
    return Scene(
        head=heads[0],
        cold=colds[0],
        branch=branches[0],
        now=now,
        key=keys[0] if keys else None,
        key_run=key_runs[0] if key_runs else None,
        run=runs[0] if runs else None,
        state=dict(zip(guarded, states, strict=True)),
        taken=[entry[2] for entry in taken],
        branch_number=guess.branch,
    )


def _replay(core: Core, commit: Prepared, scene: Scene) -> Receipt:
    key = scene.key
    if key is None or key["digest"] != commit.digest:
        raise KeyReused(
            f"the key {commit.key!r} was used for another commit on thread {commit.thread_id!r}",
            expected=commit.digest,
            actual=None if key is None else key["digest"],
            hint="a key names one commit: use a new one for new content",
        )
    last, ids = receipt_from(key)
    return Receipt(
        thread_id=commit.thread_id,
        version=last,
        message_ids=ids,
        seqs=[] if last is None else list(range(last - len(ids) + 1, last + 1)),
        run=_run_left(commit, key, scene.key_run),
        durable=core.durable,
        replayed=True,
        at=key["at"],
    )


def _run_left(commit: Prepared, key: Row, row: Row | None) -> Run | None:
    """The run as the first commit of this key left it, as far as it is still so.

    A run that was moved since is shown as it is now, but with the rev it had then: whoever goes on with it was
    overtaken, and is refused.
    """
    if isinstance(commit.run, Run) or row is None:
        return commit.run if isinstance(commit.run, Run) else None
    return msgspec.structs.replace(run_from(row), rev=key.rev)


async def _absent(core: Core, commit: Prepared, guess: Guess, scene: Scene) -> Guess:
    thread = commit.thread_id
    tombstone = scene.cold
    if tombstone is not None and not is_expired(tombstone, scene.now):
        raise NotFoundError(f"thread {thread!r} was deleted", hint="threads.create makes a new one under this id")
    existing = isinstance(commit.run, (Run, RunChange)) or commit.fence is not None
    if not existing and commit.expect not in (None, 0):
        raise VersionConflict(
            f"thread {thread!r} does not exist, the commit expects version {commit.expect}",
            expected=commit.expect,
            actual=0,
        )
    if not commit.may_create or commit.expect_head is not None:
        raise NotFoundError(f"thread {thread!r} does not exist", hint="create it first")
    _refuse_run(commit, scene)
    parent, resource = _lineage(commit)
    checks = await ancestor_checks(core, thread, parent)
    replaced = None if tombstone is None else tombstone.rev
    birth = Birth(thread_id=thread, parent=parent, resource=resource, tombstone=replaced)
    # The parent itself is guarded by the patch of its hot row; naming its cold row as well guards its own lineage.
    return Guess(MAIN, current=True, birth=birth, parent_checks=tuple(checks), key_rev=guess.key_rev)


def _lineage(commit: Prepared) -> tuple[str | None, str | None]:
    if not isinstance(commit.run, NewRun):
        return None, None
    body = commit.run.body
    trace = body.activation.trace if body.activation is not None else None
    parent = trace.parent_thread_id if trace is not None else None
    if parent is None and body.request is not None:
        parent = body.request.parent_thread_id
    resource = trace.resource_id if trace is not None else None
    return lineage(parent, "parent_thread_id"), lineage(resource, "resource_id")


def _refuse_fence(commit: Prepared, head: Row) -> None:
    if commit.fence is not None and head["fence"] is not None and head["fence"] > commit.fence:
        raise StaleClaim(
            f"fence {commit.fence} is older than {head['fence']}, which already started",
            expected=commit.fence,
            actual=head["fence"],
            hint="another worker took over: stop, and do not retry",
        )


def _refuse_expect(commit: Prepared, scene: Scene) -> None:
    if scene.head is None:
        return
    if commit.expect is not None and scene.head["version"] != commit.expect:
        raise VersionConflict(
            f"thread {commit.thread_id!r} is at version {scene.head['version']}, the commit expects {commit.expect}",
            expected=commit.expect,
            actual=scene.head["version"],
            hint="read the new messages and decide again",
        )
    _refuse_branch(commit, scene)


def _refuse_branch(commit: Prepared, scene: Scene) -> None:
    named, number = commit.branch is not None or isinstance(commit.run, (Run, RunChange)), scene.branch_number
    if not commit.messages and commit.branch is None and commit.expect_head is None:
        return
    gone = scene.branch is None or scene.branch["deleted_at"] is not None
    if gone and named:
        raise NotFoundError(f"branch {commit.branch_name or number!r} of thread {commit.thread_id!r} does not exist")
    if commit.expect_head is not None and scene.branch is not None and scene.branch["head"] != commit.expect_head:
        raise VersionConflict(
            f"branch {scene.branch_number} ends at message {scene.branch['head']!r}, not {commit.expect_head!r}",
            expected=commit.expect_head,
            actual=scene.branch["head"],
        )


def _refuse_run(commit: Prepared, scene: Scene) -> None:
    run = commit.run
    if run is None:
        return
    if isinstance(run, NewRun):
        if scene.run is not None:
            raise AlreadyExists(f"run {commit.run_id!r} already exists", actual=commit.run_id)
        return
    if scene.run is None:
        raise NotFoundError(f"run {commit.run_id!r} does not exist")
    record = run.run if isinstance(run, RunChange) else run
    stored = scene.run["status"]
    if isinstance(run, RunChange) and not run_machine.allows(stored, run):
        move = f"move to {run.status}" if run.status is not None else "take another step"
        hint = "a waiting run is resumed, not begun" if run.only_from is not None and stored == WAITING else None
        raise IllegalTransition(
            f"run {record.id!r} is {stored} and cannot {move}",
            expected=run.status or record.status,
            actual=stored,
            hint=hint,
        )
    if scene.run.rev != record.rev:
        raise VersionConflict(
            f"run {record.id!r} changed since it was read",
            expected=record.rev,
            actual=scene.run.rev,
            hint="read the run again and repeat the change on the new record",
        )


def _refuse_state(commit: Prepared, scene: Scene) -> None:
    for name, rev in commit.expect_state.items():
        row = scene.state[name]
        actual = None if row is None else row.rev
        if actual != rev:
            raise VersionConflict(f"state {name!r} changed since it was read", expected=rev, actual=actual)


def _receipt(core: Core, commit: Prepared, guess: Guess, applied: Applied) -> Receipt:
    count = len(commit.messages)
    last = applied.seqs.get((LOG, commit.thread_id))
    seqs = list(range(last - count + 1, last + 1)) if last is not None else []
    return Receipt(
        thread_id=commit.thread_id,
        version=last,
        message_ids=commit.message_ids,
        seqs=seqs,
        run=_run_after(commit, guess, applied, seqs),
        durable=core.durable,
        replayed=False,
        at=applied.now,
    )


def _run_after(commit: Prepared, guess: Guess, applied: Applied, seqs: list[int]) -> Run | None:
    """The run as this commit left it, built from what was sent: nothing needs to be read back."""
    run = commit.run
    if run is None or isinstance(run, Run):
        return run
    places = [] if commit.inputs else produced(commit.messages, commit.run_id)
    if isinstance(run, NewRun):
        return _new_run(commit, run, guess.branch, applied, seqs)
    old, now = run.run, applied.now
    output = old.output
    if places:
        first = _first_output(old) or seqs[places[0]]
        output = run_output(first, seqs[places[-1]], (old.output.count if old.output else 0) + len(places))
    return msgspec.structs.replace(
        old,
        status=run.status or old.status,
        steps=old.steps + run.steps,
        input_tokens=old.input_tokens + run.input_tokens,
        output_tokens=old.output_tokens + run.output_tokens,
        started_at=now if run.status == RUNNING and old.started_at is None else old.started_at,
        finished_at=now if run.status == DONE else old.finished_at,
        updated_at=now,
        output=output,
        body=changed_body(run),
        rev=applied.rev,
    )


def _first_output(run: Run) -> int | None:
    return run.output.first if run.output is not None else None


def _new_run(commit: Prepared, run: NewRun, branch: int, applied: Applied, seqs: list[int]) -> Run:
    body = new_body(commit, run)
    places = [] if commit.inputs else produced(commit.messages, commit.run_id)
    if commit.inputs and seqs:
        given = msgspec.structs.replace(body.input or RunInput(), range=SeqRange(seqs[0], seqs[-1]))
        body = msgspec.structs.replace(body, input=given)
    return Run(
        id=commit.run_id or "",
        thread_id=commit.thread_id,
        agent_id=run.agent_id,
        status=run.status,
        branch=branch,
        parent_run_id=run.parent_run_id,
        steps=0,
        input_tokens=0,
        output_tokens=0,
        created_at=applied.now,
        started_at=applied.now if run.status == RUNNING else None,
        finished_at=None,
        updated_at=applied.now,
        input=body.input,
        output=run_output(seqs[places[0]], seqs[places[-1]], len(places)) if places else None,
        body=body,
        rev=applied.rev,
    )
