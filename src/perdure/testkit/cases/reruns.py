"""Cases: `runs.rerun`. A question is edited, or an answer regenerated, on a new branch and in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure import errors, limits
from perdure.kernel.engine import Engine
from perdure.kernel.ops import ReadOp
from perdure.model.message import Message
from perdure.model.run import Run, RunInput
from perdure.model.run_snapshots import SeqRange
from perdure.model.tickets import Ticket
from perdure.stores.store import Store
from perdure.testkit.helpers import REFUSED_IDS, calling, ids, move
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import GatedEngine, overtaken, together, untouched

RERUN = ("runs.rerun",)
_MANY_STEPS = 3_000


def asks(*texts: str) -> list[Message]:
    """User messages whose ids are their texts."""
    return [Message.user(text, id=text) for text in texts]


def says(text: str, **fields: Any) -> Message:
    """An assistant message whose id is its text."""
    return Message.assistant(text, id=text, **fields)


async def answered(store: Store, run: Run, *messages: Message) -> Run:
    """The run after it produced these messages and finished."""
    for message in messages:
        run = (await store.commit("t", messages=[message], run=run.step())).run
    return (await store.commit("t", run=run.finish())).run


async def first_turn(kit: Kit, *messages: Message, **options: Any) -> Run:
    """A finished run of the thread `t` that was asked `q` after a greeting."""
    await kit.store.commit("t", messages=asks("hello"))
    run = await kit.store.runs.start("t", "agent", messages=asks("q"), run_id="r1", **options)
    return await answered(kit.store, run, *(messages or (says("a"),)))


async def line(kit: Kit, branch: int | str | None = None) -> list[str]:
    """Every id on a branch's path, internal ones too."""
    return ids(await kit.store.messages.path("t", branch=branch))


async def status(kit: Kit, run: Run) -> str:
    """The status that a run has now."""
    return (await kit.store.runs.get(run.id)).status


@case("runs", "rerun", covers=RERUN)
async def case_rerun(kit: Kit) -> None:
    """A new branch before what the run produced is current, and a new run of the agent has the same input."""
    old = await first_turn(kit, calling("c", id="call"), Message.tool("c", "sun", id="result"), says("a"))
    kit.clock.advance(5)
    run = await kit.store.runs.rerun("r1")
    equal((run.thread_id, run.agent_id, run.status, run.branch), ("t", "agent", "running", 1), "the run")
    equal((run.created_at, run.started_at, run.steps, run.output), (kit.clock.now, kit.clock.now, 0, None), "fresh")
    equal(run.input, RunInput(range=SeqRange(2, 2), trigger_message_ids=["q"]), "the input of the old run")
    equal(await kit.store.runs.get(run.id), run, "as it is stored")
    branch = await kit.store.branches.current("t")
    fields = (branch.id, branch.parent, branch.fork_seq, branch.length, branch.path_length, branch.preview)
    equal(fields, (1, 0, 2, 0, 2, "q"), "the branch")
    thread = await kit.store.threads.get("t")
    pointers = (thread.active_run_id, thread.open_run_id, thread.latest_run_id, thread.version)
    equal(pointers, (run.id, run.id, run.id, 5), "the thread")
    await answered(kit.store, run, says("b"))
    paths = (await line(kit), await line(kit, 0))
    equal(paths, (["hello", "q", "b"], ["hello", "q", "call", "result", "a"]), "both answers")
    equal(await kit.store.runs.get("r1"), old, "the old run is as it was")


@case("runs", "rerun-edited", covers=RERUN)
async def case_rerun_edited(kit: Kit) -> None:
    """New messages replace the run's input: they are the first of the branch, and the input of the new run."""
    await first_turn(kit)
    run = await kit.store.runs.rerun("r1", messages=[*asks("q2"), Message.user("more", id="more")], name="edited")
    equal(run.input, RunInput(range=SeqRange(4, 5), trigger_message_ids=["q2", "more"]), "its input")
    equal((await kit.store.branches.get("t", "edited")).id, run.branch, "the name of the branch")
    await answered(kit.store, run, says("b"))
    equal((await line(kit), await line(kit, 0)), (["hello", "q2", "more", "b"], ["hello", "q", "a"]), "paths")
    first = await kit.store.messages.get("t", "q2")
    equal((first.parent_id, first.message.run_id), ("hello", None), "the question belongs to no run")


@case("runs", "rerun-again", covers=RERUN)
async def case_rerun_again(kit: Kit) -> None:
    """What was run again is run again: regenerated answers hang in one place, and an edit replaces the question."""
    await first_turn(kit)
    second = await answered(kit.store, await kit.store.runs.rerun("r1"), says("a2"))
    third = await answered(kit.store, await kit.store.runs.rerun(second.id), says("a3"))
    equal((third.branch, await line(kit)), (2, ["hello", "q", "a3"]), "the third answer")
    edited = await answered(kit.store, await kit.store.runs.rerun(third.id, messages=asks("q2")), says("b"))
    equal((edited.branch, await line(kit)), (3, ["hello", "q2", "b"]), "an edit of a regenerated run")
    await answered(kit.store, await kit.store.runs.rerun(edited.id), says("b2"))
    equal(await line(kit), ["hello", "q2", "b2"], "a regenerated answer to the edited question")
    await kit.store.branches.switch("t", 0)
    await kit.store.branches.delete("t", second.branch)
    await answered(kit.store, await kit.store.runs.rerun(second.id), says("a4"))
    equal(await line(kit), ["hello", "q", "a4"], "the run of a deleted branch")


@case("runs", "rerun-message", covers=("runs.rerun", "runs.of_message"))
async def case_rerun_message(kit: Kit) -> None:
    """A message names its run: one that the run produced, or any that it was given, even if the run was stopped."""
    runs = kit.store.runs
    await first_turn(kit)
    asked = await runs.start("t", "agent", messages=asks("q1", "q2", "q3"), run_id="r2")
    await runs.cancel("r2")
    owners = [await runs.of_message("t", message_id) for message_id in ("q1", "q2", "q3", "a", "hello")]
    equal([run and run.id for run in owners], ["r2", "r2", "r2", "r1", None], "whose messages these are")
    edited = await runs.rerun(message_id="q2", thread_id="t", messages=asks("e"), key="k")
    equal((edited.agent_id, await line(kit)), ("agent", ["hello", "q", "a", "e"]), "its whole question is replaced")
    again = await runs.rerun(message_id="q1", thread_id="t")
    equal((again.input, await line(kit)), (asked.input, [*"hello q a q1 q2 q3".split()]), "answered again")
    first = await runs.of_message("t", "q1")
    equal(first and first.id, "r2", "the first run that was given it")
    retried = await (await kit.second()).runs.rerun(message_id="q2", thread_id="t", messages=asks("e"), key="k")
    equal(retried.id, edited.id, "a retry")
    handle = await kit.store.thread("t").rerun(message_id="a")
    equal((handle.input and handle.input.range, await line(kit)), (SeqRange(2, 2), ["hello", "q"]), "by the answer")


@case("runs", "rerun-message-refused", covers=("runs.rerun", "runs.of_message"))
async def case_rerun_message_refused(kit: Kit) -> None:
    """A message that belongs to no run, or to no thread that was named, is refused with a hint."""
    runs = kit.store.runs
    await first_turn(kit)
    error = await untouched(
        kit.store, errors.NotFoundError, runs.rerun(message_id="hello", thread_id="t"), "a message of no run"
    )
    expect("runs.start" in (getattr(error, "hint", None) or ""), f"the hint: {error!r}")
    await untouched(kit.store, errors.NotFoundError, runs.rerun(message_id="none", thread_id="t"), "no such message")
    await untouched(kit.store, errors.NotFoundError, runs.rerun(message_id="q", thread_id="u"), "no such thread")
    await raises(errors.NotFoundError, runs.of_message("t", "none"), "no such message")
    await raises(errors.NotFoundError, runs.of_message("u", "q"), "no such thread")
    await raises(errors.InvalidError, runs.of_message("t", ""), "a bad id")
    wrong: list[dict[str, Any]] = [
        {},
        {"message_id": "q"},
        {"run_id": "r1", "message_id": "q", "thread_id": "t"},
        {"message_id": "", "thread_id": "t"},
        {"message_id": "q", "thread_id": "t", "new_run_id": "r1"},
    ]
    for options in wrong:
        await untouched(kit.store, errors.InvalidError, runs.rerun(**options), f"{options}")
    foreign = Message.assistant("x", id="x", run_id="r1")
    await kit.store.commit("u", messages=[foreign])
    equal(await runs.of_message("u", "x"), None, "the run of another thread")


@case("runs", "rerun-message-many", covers=("runs.of_message",))
async def case_rerun_message_many(kit: Kit) -> None:
    """The run of a question is found behind more runs than a page holds."""
    runs = kit.store.runs
    for _ in range(limits.PAGE_MAX + 5):
        kit.clock.advance(1)
        await runs.create("t", "agent", messages=[Message.user("other")])
    kit.clock.advance(1)
    await runs.start("t", "agent", messages=asks("one", "two"), run_id="r")
    run = await runs.of_message("t", "two")
    equal(run and run.id, "r", "its run")


@case("runs", "rerun-internal", covers=RERUN)
async def case_rerun_internal(kit: Kit) -> None:
    """Internal messages at the beginning of a turn do not stay on the path, though they are not output."""
    notes = [says("plan", visibility="internal"), Message.user("nudge", id="nudge", visibility="internal")]
    old = await first_turn(kit, *notes, says("a"))
    equal((old.output.first if old.output else 0, await line(kit)), (5, ["hello", "q", "plan", "nudge", "a"]), "before")
    await kit.store.runs.rerun("r1")
    equal(await line(kit), ["hello", "q"], "the path of the new branch")
    only = await kit.store.runs.start("t", "agent", branch=0, messages=asks("q2"))
    await answered(kit.store, only, says("hidden", visibility="internal"))
    equal((await kit.store.runs.get(only.id)).output, None, "nothing that counts as output")
    await kit.store.runs.rerun(only.id)
    equal(await line(kit), ["hello", "q", "plan", "nudge", "a", "q2"], "it is left behind all the same")


@case("runs", "rerun-named-input", covers=RERUN)
async def case_rerun_named_input(kit: Kit) -> None:
    """Input that carries the run's id is input all the same: it stays when the answer is regenerated."""
    question = Message.user("q", id="q", run_id="r1")
    run = await kit.store.runs.start("t", "agent", messages=[question], run_id="r1")
    equal((await kit.store.messages.get("t", "q")).message.run_id, "r1", "the question names its run")
    await answered(kit.store, run, says("a"))
    again = await kit.store.runs.rerun("r1")
    equal(await line(kit), ["q"], "regenerated")
    await answered(kit.store, again, says("b"))
    await kit.store.runs.rerun(again.id, messages=asks("q2"))
    equal(await line(kit), ["q2"], "edited")


@case("runs", "rerun-beginnings", covers=RERUN)
async def case_rerun_beginnings(kit: Kit) -> None:
    """A run without input or output: the branch begins where its first message is, or would be."""
    runs = kit.store.runs
    empty = await runs.start("t", "agent")
    root = await runs.rerun(empty.id)
    current = await kit.store.branches.current("t")
    equal((root.branch, current.parent, await line(kit)), (1, None, []), "in an empty thread")
    await answered(kit.store, root, says("a"))
    waiting = await runs.start("t", "agent", messages=asks("q"))
    await kit.store.commit("t", messages=asks("aside"))
    await runs.rerun(waiting.id)
    equal(await line(kit), ["a", "q"], "input and no output: after the input")
    silent = await runs.start("t", "agent", branch=1)
    equal((silent.input, await line(kit, 1)), (None, ["a", "q", "aside"]), "neither")
    await runs.rerun(silent.id)
    equal(await line(kit), ["a", "q", "aside"], "neither: at the end of its branch")
    spoken = await answered(kit.store, await runs.start("t", "agent", branch=1), says("b"))
    edited = await runs.rerun(spoken.id, messages=asks("instead"))
    equal(await line(kit), ["a", "q", "aside", "instead"], "no input: messages hang where the output does")
    equal(edited.input and edited.input.range, SeqRange(5, 5), "and they are the input of the new run")
    first = await runs.start("u", "agent", messages=[Message.user("only")])
    await runs.rerun(first.id, messages=[Message.user("else")])
    equal((await kit.store.branches.current("u")).parent, None, "the first question of a thread: another root")


@case("runs", "rerun-options", covers=RERUN)
async def case_rerun_options(kit: Kit) -> None:
    """Another agent, metadata, an id, a fence and the parent run; of the rest of the old run nothing is passed on."""
    parent = await kit.store.runs.start("p", "boss")
    await first_turn(kit, parent_run_id=parent.id, metadata={"a": 1}, session_id="s")
    same = await kit.store.runs.rerun("r1")
    fields = (same.agent_id, same.parent_run_id, same.metadata, same.body.session_id)
    equal(fields, ("agent", parent.id, None, None), "by default")
    other = await kit.store.runs.rerun(
        "r1", agent_id="critic", metadata={"b": 2}, new_run_id="r9", fence=7, thread_id="t", name="x"
    )
    equal((other.id, other.agent_id, other.metadata), ("r9", "critic", {"b": 2}), "as asked")
    equal((await kit.store.threads.get("t")).fence, 7, "the fence")
    handle = kit.store.thread("t")
    equal((await handle.rerun("r1", messages=asks("q2"))).branch, 3, "by a handle")


@case("runs", "rerun-replaces", covers=RERUN)
async def case_rerun_replaces(kit: Kit) -> None:
    """Open runs of the thread are cancelled with it, whichever they are; those of other threads go on."""
    store = kit.store
    elsewhere = await store.runs.start("u", "agent")
    await first_turn(kit)
    asking = await move(store, (await store.runs.start("t", "agent")).wait([Ticket(ticket_id="k")]))
    busy = await store.runs.start("t", "agent")
    created = await store.runs.create("t", "agent")
    run = await store.runs.rerun("r1", key="once")
    for old in (asking, busy):
        ended = await store.runs.get(old.id)
        how = None if ended.outcome is None else ended.outcome.termination
        equal((ended.status, ended.finished_at), ("done", kit.clock.now), old.status)
        equal((how.type, how.detail) if how else None, ("cancelled", f"replaced by run {run.id}"), "how it ended")
    equal([await status(kit, each) for each in (elsewhere, created)], ["running", "created"], "these go on")
    await untouched(store, errors.IllegalTransition, store.runs.decide(asking.id, "k", True), "no approval any more")
    late = store.commit("t", messages=asks("late"), run=busy.step())
    await untouched(store, errors.IllegalTransition, late, "no late answer")
    equal((await store.threads.get("t")).open_run_id, run.id, "the open run")
    own = await store.runs.rerun(run.id)
    equal([await status(kit, each) for each in (run, own)], ["done", "running"], "the run itself")
    begun = await store.runs.rerun(created.id)
    equal([await status(kit, each) for each in (created, own, begun)], ["done", "done", "running"], "one not begun")
    await store.commit("t", run=begun.finish())
    equal((await store.runs.start("t", "agent", if_idle=True)).status, "running", "nothing else is open")


@case("runs", "rerun-beside", covers=RERUN)
async def case_rerun_beside(kit: Kit) -> None:
    """`replace=False` leaves open runs alone: they can be decided, and finish on their branches."""
    store = kit.store
    await first_turn(kit)
    begun = await store.runs.start("t", "agent", messages=asks("q2"))
    asking = await move(store, begun.wait([Ticket(ticket_id="k")]))
    run = await store.runs.rerun(asking.id, replace=False)
    equal(await status(kit, asking), "waiting", "it still waits")
    decided = await store.runs.decide(asking.id, "k", True)
    resumed = (await store.commit("t", run=decided.resume())).run
    await answered(store, resumed, says("old"))
    await answered(store, run, says("new"))
    equal((await line(kit, 0), await line(kit)), ([*"hello q a q2 old".split()], [*"hello q a q2 new".split()]), "both")


@case("runs", "rerun-key", covers=RERUN)
async def case_rerun_key(kit: Kit) -> None:
    """A retry returns the same run, makes no second branch and cancels nothing, whatever happened in between."""
    store, other = kit.store, await kit.second()
    await first_turn(kit)
    for messages in (None, asks("q2")):
        key = f"key-{messages is None}"
        run = await store.runs.rerun("r1", messages=messages, key=key)
        equal(await other.runs.rerun("r1", messages=messages, key=key), run, "at once")
        branches = len(await store.branches.list("t"))
        await store.commit("t", messages=[Message.assistant("a")], run=run.finish())
        later = await store.runs.start("t", "agent", messages=[Message.user("next")])
        await store.branches.switch("t", 0)
        beside = await store.runs.start("t", "agent")
        again = await other.runs.rerun("r1", messages=messages, key=key)
        equal((again.id, again.branch, again.status), (run.id, run.branch, "done"), "after it is done")
        equal([await status(kit, each) for each in (later, beside)], ["running", "running"], "nothing is cancelled")
        equal(len(await store.branches.list("t")), branches, "no second branch")
        equal((await store.threads.get("t")).branch, 0, "no second switch")
        for changed in ({"agent_id": "else"}, {"name": "else"}, {"messages": asks("q3")}, {"metadata": {"a": 1}}):
            asked: dict[str, Any] = {"messages": messages, **changed}
            await untouched(
                store, errors.KeyReused, store.runs.rerun("r1", key=key, **asked), f"another request: {changed}"
            )
        await untouched(store, errors.KeyReused, store.runs.rerun(run.id, messages=messages, key=key), "another run")


@case("runs", "rerun-key-expired", covers=RERUN)
async def case_rerun_key_expired(kit: Kit) -> None:
    """A key is remembered for a week; after that the call is a new one."""
    await first_turn(kit)
    run = await kit.store.runs.rerun("r1", key="k")
    kit.clock.advance(8 * 24 * 3600 * 1000)
    again = await kit.store.runs.rerun("r1", key="k")
    equal((again.branch, await status(kit, run)), (run.branch + 1, "done"), "another run")
    equal((await kit.store.runs.rerun("r1", key="k")).id, again.id, "which the key now names")


@case("runs", "rerun-refused", covers=RERUN)
async def case_rerun_refused(kit: Kit) -> None:
    """A refusal leaves everything as it was: no branch, no run, and no run is cancelled."""
    await first_turn(kit)
    await kit.store.commit("t", run=(await kit.store.runs.start("t", "agent", run_id="r2")).wait(), fence=5)
    await kit.store.pending.append("t", asks("queued"))
    await kit.store.branches.fork("t", at="q", name="x")
    for messages in (None, asks("q2")):
        asked: list[tuple[type[BaseException], dict[str, Any]]] = [
            (errors.StaleClaim, {"fence": 4}),
            (errors.AlreadyExists, {"name": "x"}),
            (errors.AlreadyExists, {"new_run_id": "r2"}),
            (errors.NotFoundError, {"thread_id": "u"}),
            (errors.InvalidError, {"new_run_id": "r1"}),
            (errors.InvalidError, {"name": "12"}),
            (errors.InvalidError, {"agent_id": ""}),
            (errors.InvalidError, {"agent_id": 5}),
            (errors.InvalidError, {"metadata": {"x": object()}}),
            (errors.InvalidError, {"metadata": [1]}),
            (errors.InvalidError, {"replace": 1}),
            (errors.InvalidError, {"fence": -1}),
            (errors.InvalidError, {"key": ""}),
            (errors.InvalidError, {"thread_id": 5}),
        ]
        for kind, options in asked:
            attempt = kit.store.runs.rerun("r1", messages=messages, **options)
            await untouched(kit.store, kind, attempt, f"{options}")
    wrong: list[tuple[type[BaseException], Any]] = [
        (errors.InvalidError, []),
        (errors.InvalidError, "text"),
        (errors.InvalidError, Message.user("x")),
        (errors.InvalidError, ["x"]),
        (errors.InvalidError, [Message.summary("s", 1, 99)]),
        (errors.AlreadyExists, asks("q")),
        (errors.AlreadyExists, asks("queued")),
    ]
    for kind, messages in wrong:
        error = await untouched(kit.store, kind, kit.store.runs.rerun("r1", messages=messages), f"{messages!r:.60}")
        if messages == []:
            expect("regenerate" in (getattr(error, "hint", None) or ""), f"the hint: {error!r}")
    for bad in REFUSED_IDS:
        await raises(errors.InvalidError, kit.store.runs.rerun(bad), f"run {bad!r}")
    await untouched(kit.store, errors.NotFoundError, kit.store.runs.rerun("missing"), "no such run")
    elsewhere = await kit.second(scope="other")
    await raises(errors.NotFoundError, elsewhere.runs.rerun("r1"), "a run of another scope")
    await kit.store.threads.delete("t")
    await raises(errors.NotFoundError, kit.store.runs.rerun("r1"), "a deleted thread")


@case("runs", "rerun-input-gone", covers=RERUN)
async def case_rerun_input_gone(kit: Kit) -> None:
    """A run that names input which the thread does not have cannot be run again, and the error says why."""
    named = RunInput(range=SeqRange(7, 9))
    await kit.store.runs.start("t", "agent", run_id="r1", input=named)
    for messages, seq in ((None, "9"), (asks("x"), "7")):
        error = await untouched(
            kit.store, errors.NotFoundError, kit.store.runs.rerun("r1", messages=messages), "no input"
        )
        expect(f"message {seq} " in error.message and "'r1'" in error.message, f"the error: {error}")


@case("runs", "rerun-overtaken", covers=RERUN)
async def case_rerun_overtaken(kit: Kit) -> None:
    """What others commit between the plan and the write is taken into account."""
    old = await kit.store.runs.start("t", "agent", messages=asks("q"), run_id="r1")

    async def rerun(store: Store) -> Run:
        return await store.runs.rerun("r1", new_run_id="r2")

    async def finish(store: Store) -> Any:
        return await store.commit("t", messages=[says("a")], run=old.finish())

    run, receipt = await overtaken(kit, rerun, finish)
    equal((receipt.run.status, run.id, await line(kit)), ("done", "r2", ["q"]), "its worker was faster")
    equal((await kit.store.runs.get("r1")).outcome, receipt.run.outcome, "and its end stands")

    async def start(store: Store) -> Run:
        return await store.runs.start("t", "agent", run_id="r3")

    async def again(store: Store) -> Run:
        return await store.runs.rerun("r1", new_run_id="r4")

    fourth, third = await overtaken(kit, again, start)
    equal([await status(kit, each) for each in (run, third, fourth)], ["done", "done", "running"], "a run began")

    async def refused(store: Store) -> Run:
        return await store.runs.rerun("r1", new_run_id="r5", fence=3)

    async def take_over(store: Store) -> Any:
        return await store.commit("t", state={"x": 1}, fence=4)

    error, _ = await overtaken(kit, refused, take_over)
    equal((type(error), await status(kit, fourth)), (errors.StaleClaim, "running"), "a claim was taken over")


@case("runs", "rerun-at-once", covers=RERUN)
async def case_rerun_at_once(kit: Kit) -> None:
    """Of several callers with one key, all get one run; without, each gets its own, and one of them is open."""
    await first_turn(kit)
    stores = [kit.store, await kit.second(), await kit.second()]
    same = await together(*[store.runs.rerun("r1", key="k") for store in stores])
    equal(len({run.id for run in same}), 1, "one run")
    equal(len(await kit.store.branches.list("t")), 2, "one branch")
    each = await together(*[store.runs.rerun("r1") for store in stores])
    equal(sorted(run.branch for run in each), [2, 3, 4], "a branch each")
    statuses = [await status(kit, run) for run in (same[0], *each)]
    equal(sorted(statuses), ["done", "done", "done", "running"], "one is open")
    current = await kit.store.threads.get("t")
    equal((await kit.store.runs.get(current.open_run_id or "")).branch, current.branch, "on the current branch")


class _Outrun(GatedEngine):
    """An engine whose client is always late: after each of its looks, a worker makes another step."""

    def __init__(self, engine: Engine, store: Store, run: Run) -> None:
        super().__init__(engine, _MANY_STEPS)
        self._store = store
        self._run: Run | None = run
        self.steps = 0

    async def view(self, scope: str, reads: Sequence[ReadOp]) -> list[Any]:
        answers = await super().view(scope, reads)
        if self._run is not None:
            try:
                self._run = (await self._store.commit("t", run=self._run.step())).run
                self.steps += 1
            except errors.ConflictError:
                self._run = None
        return answers


@case("runs", "rerun-eager", covers=RERUN)
async def case_rerun_eager(kit: Kit) -> None:
    """A worker that has always just committed does not prevent it, and its next step is refused."""
    run = await kit.store.runs.start("t", "agent", messages=asks("q"))
    engine = _Outrun((await kit.second()).engine, kit.store, run)
    new = await Store(engine, kit.store.scope, owner=False).runs.rerun(run.id)
    ended = await kit.store.runs.get(run.id)
    equal((new.status, ended.status, ended.steps), ("running", "done", engine.steps), "the worker was stopped")
    expect(engine.steps > 0, "the worker made no step")
    equal(ended.outcome and ended.outcome.termination.detail, f"replaced by run {new.id}", "why")


@case("runs", "rerun-crash", covers=RERUN, needs=("durable",))
async def case_rerun_crash(kit: Kit) -> None:
    """After a crash the retry finds the run that was started, with everything that was done together."""
    await first_turn(kit)
    open_run = await kit.store.runs.start("t", "agent")
    run = await kit.store.runs.rerun("r1", messages=asks("q2"), key="k")
    store = await kit.crash()
    equal(await store.runs.rerun("r1", messages=asks("q2"), key="k"), run, "the same run")
    equal((await status(kit, open_run), await line(kit)), ("done", ["hello", "q2"]), "as one")
    equal((await store.threads.get("t")).branch, run.branch, "and switched")
