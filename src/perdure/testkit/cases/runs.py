"""Cases: runs as records. Creating and starting them, every field that comes back, refusals, what they produced."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, CorruptError, IllegalTransition, InvalidError, NotFoundError, VersionConflict
from perdure.kernel.ops import Patch
from perdure.model.careful import from_json
from perdure.model.faithful import Extra
from perdure.model.message import Message, ToolUse
from perdure.model.run import NewRun, Outcome, Run, RunBody, RunChange, RunInput, RunOutput, Termination
from perdure.model.run_snapshots import (
    Decision,
    RunActivation,
    RunIntent,
    RunOptions,
    RunRequest,
    RunTrace,
    SeqRange,
)  # fmt: skip
from perdure.testkit.helpers import REFUSED_IDS, commit_texts, move
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import dump, untouched

ACTIVATION: dict[str, Any] = {
    "intent": {"kind": "hitl_resume", "run_id": "r0", "agent_id": "a", "thread_id": "t", "new1": 1},
    "options": {"overrides": {"temperature": 0.5}, "frontend_tools": [{"id": "f", "x": []}], "new2": [2]},
    "trace": {
        "parent_run_id": "r0",
        "resource_id": "acme",
        "origin": "subagent",
        "adapter": "ag_ui",
        "run_mode": "scheduled",
        "dispatch_id": "d",
        "session_id": "s",
        "transport_request_id": "q",
        "correlation_id": "c",
        "new3": {"deep": None},
    },
    "decisions": [
        {
            "call_id": "c1",
            "action": "cancel",
            "result": {"ok": False},
            "reason": "no",
            "decision_id": "d1",
            "updated_at": 5,
            "new4": "x",
        }
    ],
    "resolution_id": "reg-1",
    "new5": True,
}
REQUEST: dict[str, Any] = {
    "origin": "mcp",
    "sender_id": "bob",
    "input_message_ids": ["m1", "m2"],
    "input_message_count": 2,
    "request_extras": {"any": ["thing", 1.5, None]},
    "decisions": [{"call_id": "c2", "new6": 6}],
    "frontend_tools": [{"name": "draw"}],
    "parent_thread_id": "p",
    "transport_request_id": "q2",
    "new7": [[]],
}


@case("runs", "create", covers=("runs.create", "runs.get", "runs.find"))
async def case_create(kit: Kit) -> None:
    """A created run has not begun: counters at zero, no start, no end; get and find read what create returned."""
    run = await kit.store.runs.create("t", "agent", run_id="r")
    now = kit.clock.now
    expected = Run(
        id="r",
        thread_id="t",
        agent_id="agent",
        status="created",
        branch=0,
        parent_run_id=None,
        steps=0,
        input_tokens=0,
        output_tokens=0,
        created_at=now,
        started_at=None,
        finished_at=None,
        updated_at=now,
        input=None,
        output=None,
        body=RunBody(),
        rev=run.rev,
    )
    equal(run, expected, "the created run")
    equal(await kit.store.runs.get("r"), expected, "get")
    equal(await kit.store.runs.find("r"), expected, "find")
    equal(len((await kit.store.runs.create("t", "agent")).id), 26, "a minted id")


@case("runs", "start", covers=("runs.start",))
async def case_start(kit: Kit) -> None:
    """Starting is one commit: the run runs, and its messages are its input, not its output."""
    await commit_texts(kit.store, "t", "before")
    kit.clock.advance(10)
    run = await kit.store.runs.start("t", "agent", messages=[Message.system("be kind"), Message.user("hello")])
    equal((run.status, run.started_at, run.created_at), ("running", kit.clock.now, kit.clock.now), "it began now")
    ids = [record.message_id for record in await kit.store.messages.range(run.thread_id, 2, 3)]
    equal(run.input, RunInput(range=SeqRange(2, 3), trigger_message_ids=ids), "the input")
    equal(run.output, None, "nothing produced yet")
    equal(await kit.store.runs.get(run.id), run, "what get reads")
    records = await kit.store.messages.history("t")
    equal([(r.run_id, r.step) for r in records], [(None, None)] * 3, "input has no producer")


@case("runs", "every-field", covers=("runs.create", "runs.start", "runs.get"))
async def case_every_field(kit: Kit) -> None:
    """Every field comes back as it was given, snapshots and their unknown fields at every level included."""
    await kit.store.threads.create("t")
    fields: dict[str, Any] = {
        "parent_run_id": "r0",
        "activation": from_json(RunActivation, ACTIVATION, "activation"),
        "request": from_json(RunRequest, REQUEST, "request"),
        "input": RunInput(
            trigger_message_ids=["m1"],
            selected_message_ids=["m1", "m2"],
            context_policy={"keep": 3},
            compacted_snapshot_id="snap",
            extra=Extra(new8=8),
        ),
        "resolution_id": "reg-1",
        "dispatch_id": "d",
        "session_id": "s",
        "transport_request_id": "q",
        "metadata": {"ключ": ["v", 1, 2.5, None, {"x": False}], "": 0},
    }
    for begin in (kit.store.runs.create, kit.store.runs.start):
        made = await begin("t", "agent", **fields)
        run = await kit.store.runs.get(made.id)
        equal(run, made, "the stored run against the returned one")
        for name, value in fields.items():
            stored = getattr(run, name) if name == "parent_run_id" else getattr(run.body, name)
            equal(stored, value, name)
        equal(
            (run.activation, run.request, run.input),
            (fields["activation"], fields["request"], fields["input"]),
            "views",
        )


@case("runs", "snapshots-survive-moves", covers=("store.commit", "runs.get"))
async def case_snapshots_survive_moves(kit: Kit) -> None:
    """Moving a run never loses what it was created with."""
    activation = from_json(RunActivation, ACTIVATION, "activation")
    run = await kit.store.runs.start(
        "t", "agent", activation=activation, metadata={"k": 1}, messages=[Message.user("x")]
    )
    for change in ("step", "wait", "resume", "finish"):
        run = await move(kit.store, getattr(run, change)())
        equal((run.activation, run.body.metadata), (activation, {"k": 1}), f"after {change}")
        equal(run.input and run.input.range, SeqRange(1, 1), f"input after {change}")


@case("runs", "unknown-body-fields-survive", covers=("store.commit", "runs.get"))
async def case_unknown_body_fields_survive(kit: Kit) -> None:
    """Fields that a newer build wrote into a run come back, also after this build moved the run."""
    store = kit.store
    run = await store.runs.start("t", "agent", run_id="r")
    body = b'{"session_id":"s","tomorrow":{"x":[1]}}'
    await store.engine.transact(store.scope, [Patch("runs", ("r",), {"steps": 0}, body=body)])
    run = await store.runs.get("r")
    equal(run.body.extra, Extra(tomorrow={"x": [1]}), "the unknown field")
    run = await move(store, run.wait(reason="rate_limit"))
    equal(run.body.extra, Extra(tomorrow={"x": [1]}), "the unknown field after a move")


@case("runs", "duplicate-id", covers=("runs.create", "runs.start", "store.commit"))
async def case_duplicate_id(kit: Kit) -> None:
    """A run id is taken once per scope, whichever thread it is in; nothing of the second try stays."""
    await kit.store.runs.start("t", "agent", run_id="r")
    await kit.store.threads.create("u")
    message = Message.user("x")
    for thread in ("t", "u", "new"):
        await untouched(
            kit.store, AlreadyExists, kit.store.runs.create(thread, "agent", run_id="r"), f"create in {thread}"
        )
        call = kit.store.runs.start(thread, "agent", run_id="r", messages=[message])
        await untouched(kit.store, AlreadyExists, call, f"start in {thread}")
        commit = kit.store.commit(thread, messages=[message], run=NewRun(agent_id="a", id="r"), state={"s": 1})
        await untouched(kit.store, AlreadyExists, commit, f"commit in {thread}")


@case("runs", "missing", covers=("runs.get", "runs.find", "runs.latest"))
async def case_missing(kit: Kit) -> None:
    """A missing run is not found, or None; a thread without runs has no latest one."""
    await raises(NotFoundError, kit.store.runs.get("unknown"))
    equal(await kit.store.runs.find("unknown"), None, "find")
    await raises(NotFoundError, kit.store.runs.latest("nowhere"))
    await kit.store.threads.create("t")
    equal(await kit.store.runs.latest("t"), None, "latest of a thread without runs")


@case("runs", "gone-with-thread", covers=("runs.get", "runs.find", "runs.list", "threads.delete"))
async def case_gone_with_thread(kit: Kit) -> None:
    """Deleting a thread takes its runs; a change to one of them finds nothing, and the id is free again."""
    run = await kit.store.runs.start("t", "agent", run_id="r")
    await kit.store.commit("t", run=run, run_state={"s": 1})
    await kit.store.threads.delete("t")
    equal(await kit.store.runs.find("r"), None, "find")
    await raises(NotFoundError, kit.store.runs.get("r"))
    equal((await kit.store.runs.list()).items, [], "list")
    await untouched(kit.store, NotFoundError, kit.store.commit("t", run=run.step()), "a step")
    equal((await dump(kit.store, "t"))["runs"], [], "rows")
    again = await kit.store.runs.create("u", "agent", run_id="r")
    equal(again.thread_id, "u", "the id may be used again")


@case("runs", "bad-ids", covers=("runs.create", "runs.start", "runs.get", "runs.find", "runs.latest"))
async def case_bad_ids(kit: Kit) -> None:
    """Blank and malformed ids are refused before anything is read or written."""
    await kit.store.threads.create("t")
    runs = kit.store.runs
    for name in REFUSED_IDS:
        for attempt in (
            runs.create(name, "agent"),
            runs.start("t", name),
            runs.start("t", "agent", run_id=name),
            runs.start("t", "agent", parent_run_id=name),
            runs.start("t", "agent", resolution_id=name),
            runs.start("t", "agent", session_id=name),
            runs.get(name),
            runs.find(name),
            runs.latest(name),
        ):
            await untouched(kit.store, InvalidError, attempt, f"{name!r:.20}")
    options: dict[str, Any] = {"colour": "red"}
    await untouched(kit.store, TypeError, runs.start("t", "agent", **options), "an unknown option")


@case("runs", "bad-snapshots", covers=("runs.start",))
async def case_bad_snapshots(kit: Kit) -> None:
    """Snapshots that contradict the run, hold blank call ids or empty ranges are refused."""
    await kit.store.threads.create("t")
    intent = RunActivation(intent=RunIntent(thread_id="other"))
    blank = Decision(call_id=" ")
    bad: list[dict[str, Any]] = [
        {"activation": intent},
        {"activation": RunActivation(decisions=[blank])},
        {"request": RunRequest(decisions=[blank])},
        {"input": RunInput(range=SeqRange(0, 1))},
        {"input": RunInput(range=SeqRange(2, 1))},
    ]
    for options in bad:
        await untouched(kit.store, InvalidError, kit.store.runs.start("t", "agent", **options), repr(options))
    equal(len(SeqRange(2, 4)), 3, "the length of a range")
    activation = RunActivation(intent=RunIntent(thread_id="t"))
    equal((await kit.store.runs.start("t", "agent", activation=activation)).activation, activation, "its own thread")


@case("runs", "bad-types", covers=("runs.start", "store.commit"))
async def case_bad_types(kit: Kit) -> None:
    """A value of the wrong type is refused when it is written: no stored run may ever be unreadable."""
    run = await kit.store.runs.start("t", "agent")
    wrong: Any = 5
    start, commit = kit.store.runs.start, kit.store.commit
    attempts = [
        start("t", "agent", activation=RunActivation(trace=RunTrace(origin=wrong))),
        start("t", "agent", activation=RunActivation(options=RunOptions(frontend_tools=wrong))),
        start("t", "agent", activation=wrong),
        start("t", "agent", request=RunRequest(input_message_count="2")),  # type: ignore[arg-type]
        start("t", "agent", input=RunInput(trigger_message_ids=wrong)),
        start("t", "agent", metadata=wrong),
        start("t", "agent", input=RunInput(extra=Extra(range="mine"))),
        commit("t", run=RunChange(run=run, status="done", outcome=Outcome(Termination("natural_end"), wrong))),
        commit("t", run=run.fail(wrong)),
        commit("t", run=run.stop(wrong)),
        commit("t", run=run.wait(message=wrong)),
        commit("t", run=run.wait(reason=wrong)),
        commit("t", run=run.step(input_tokens="3")),  # type: ignore[arg-type]
        commit("t", run=run.step(output_tokens=-1)),
    ]
    for attempt in attempts:
        await untouched(kit.store, InvalidError, attempt)
    equal(await kit.store.runs.get(run.id), run, "the run is as it was, and readable")


@case("runs", "not-json", covers=("runs.start", "store.commit"))
async def case_not_json(kit: Kit) -> None:
    """What is not JSON is refused with its path, with a key and without."""
    run = await kit.store.runs.start("t", "agent")
    for value in (float("nan"), float("inf"), b"x", {1}, (1,), {1: 2}, "\ud800", object()):
        for key in (None, "k"):
            start = kit.store.runs.start("t", "agent", metadata={"deep": [value]}, key=key)
            error = await untouched(kit.store, InvalidError, start, f"metadata {value!r}")
            expect("metadata.deep[0]" in str(error), f"the path is named: {error}")
            fail = kit.store.commit("t", run=run.fail("boom", error={"why": value}), key=key)
            error = await untouched(kit.store, InvalidError, fail, f"error {value!r}")
            expect("outcome.error.why" in str(error), f"the path is named: {error}")


@case("runs", "size-limit", covers=("runs.start",))
async def case_size_limit(kit: Kit) -> None:
    """A run's JSON has a limit."""
    await kit.store.threads.create("t")
    huge = {"x": "y" * limits.RUN_BYTES}
    await untouched(kit.store, InvalidError, kit.store.runs.start("t", "agent", metadata=huge))
    fits = {"x": "y" * (limits.RUN_BYTES - 100)}
    run = await kit.store.runs.start("t", "agent", metadata=fits)
    equal((await kit.store.runs.get(run.id)).body.metadata, fits, "just below the limit")


@case("runs", "corrupt", covers=("runs.get", "runs.list", "runs.latest", "store.load"))
async def case_corrupt(kit: Kit) -> None:
    """A damaged stored run is reported by name, never served and never skipped."""
    store = kit.store
    run = await store.runs.start("t", "agent", run_id="r")
    for body in (b'{"session_id":', b'{"waiting":{"tickets":3}}', b"[]", b'{"outcome":{}}'):
        await store.engine.transact(store.scope, [Patch("runs", ("r",), {"steps": 0}, body=body)])
        for attempt in (store.runs.get("r"), store.runs.list(), store.runs.latest("t"), store.load("t")):
            error = await raises(CorruptError, attempt, body.decode())
            expect("'r'" in error.where, f"the record is named: {error}")
    equal(run.id, "r", "the run was fine before")


@case("runs", "unknown-status", covers=("runs.get", "runs.list", "store.commit"))
async def case_unknown_status(kit: Kit) -> None:
    """An unknown status is refused where it is asked for, carried where it is stored, and never moved."""
    store = kit.store
    run = await store.runs.start("t", "agent", run_id="r")
    await raises(InvalidError, store.runs.list(status="resting"))
    change = msgspec.structs.replace(run.step(), status="resting")
    await untouched(store, InvalidError, store.commit("t", run=change), "a move to it")
    await store.engine.transact(store.scope, [Patch("runs", ("r",), {"status": "resting"})])
    run = await store.runs.get("r")
    equal(run.status, "resting", "what a newer build stored")
    await untouched(store, IllegalTransition, store.commit("t", run=run.finish()), "a move from it")


@case("runs", "other-thread", covers=("store.commit",))
async def case_other_thread(kit: Kit) -> None:
    """A run belongs to its thread; anything but a run is refused."""
    run = await kit.store.runs.start("t", "agent")
    await kit.store.threads.create("u")
    await untouched(kit.store, InvalidError, kit.store.commit("u", run=run.step()), "another thread's run")
    await untouched(kit.store, InvalidError, kit.store.commit("u", run=run), "another thread's run, unchanged")
    bad: list[Any] = ["r", {"id": "r"}, run.id, 5]
    for thing in bad:
        await untouched(kit.store, InvalidError, kit.store.commit("t", run=thing), repr(thing))


@case("runs", "bad-new-run", covers=("store.commit",))
async def case_bad_new_run(kit: Kit) -> None:
    """A new run begins as created or running, and neither waits nor has an outcome."""
    run = await kit.store.runs.start("t", "agent")
    waiting = run.wait().waiting
    outcome = run.finish().outcome
    bad = [
        NewRun(agent_id="a", status="waiting"),
        NewRun(agent_id="a", status="done"),
        NewRun(agent_id="a", status=""),
        NewRun(agent_id="a", body=RunBody(waiting=waiting)),
        NewRun(agent_id="a", body=RunBody(outcome=outcome)),
        NewRun(agent_id=""),
    ]
    for new in bad:
        await untouched(kit.store, InvalidError, kit.store.commit("t", run=new), repr(new))


@case("runs", "producer", covers=("store.commit",))
async def case_producer(kit: Kit) -> None:
    """Messages of a commit with a run carry it and its step; those that name their own producer keep it."""
    run = await kit.store.runs.start("t", "agent", run_id="r")
    own = Message.assistant("theirs", run_id="other", step=7)
    await kit.store.commit("t", messages=[Message.assistant("a"), own], run=run.step())
    run = await kit.store.runs.get("r")
    await kit.store.commit("t", messages=[Message.assistant("b")], run=run)
    producers = [(r.text, r.run_id, r.step) for r in await kit.store.messages.history("t")]
    equal(producers, [("a", "r", 0), ("theirs", "other", 7), ("b", "r", 1)], "producers")


@case("runs", "output", covers=("store.commit", "runs.get"))
async def case_output(kit: Kit) -> None:
    """Output counts visible assistant and tool messages; its range is there only while nothing lies between."""
    run = await kit.store.runs.start("t", "agent", messages=[Message.user("q")])
    call = Message.assistant([ToolUse(id="c", name="f")])
    run = await move(kit.store, run.step(), messages=[call, Message.tool("c", "result")])
    equal(run.output, RunOutput(2, 2, 3), "after the first step")
    equal(run.output.range if run.output else None, SeqRange(2, 3), "a range without holes")
    run = await move(kit.store, run.step(), messages=[Message.assistant("more")])
    equal(run.output, RunOutput(3, 2, 4), "it grows")
    hidden = Message.assistant("hidden", visibility="internal")
    run = await move(kit.store, run.step(), messages=[hidden, Message.user("aside"), Message.assistant("end")])
    equal(run.output, RunOutput(4, 2, 7), "internal and user messages do not count")
    equal(run.output.range if run.output else None, None, "and make a hole")


@case("runs", "associate", covers=("store.commit",))
async def case_associate(kit: Kit) -> None:
    """A run passed unchanged only associates: its rev, times and output stay, and a stale one is refused."""
    run = await kit.store.runs.start("t", "agent")
    kit.clock.advance(1_000)
    receipt = await kit.store.commit("t", messages=[Message.assistant("a")], run=run)
    equal(receipt.run, run, "the receipt carries it as it was")
    equal(await kit.store.runs.get(run.id), run, "the record did not move")
    equal((await kit.store.messages.history("t"))[0].run_id, run.id, "the message has its producer")
    equal((await kit.store.commit("t", run=run)).run, run, "with nothing else in the commit too")
    await kit.store.commit("t", run=run.step())
    await untouched(kit.store, VersionConflict, kit.store.commit("t", messages=[Message.user("x")], run=run))
