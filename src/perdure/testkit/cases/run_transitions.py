"""Cases: transitions of runs. Which are legal, what each changes on the record, and that stale records are refused.

created → running ⇄ waiting → done. Commits carry transitions, so a refusal must leave the whole scope untouched.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import ConflictError, IllegalTransition, InvalidError, VersionConflict
from perdure.model.faithful import Extra
from perdure.model.message import Message
from perdure.model.run import Outcome, Run, RunChange, Termination
from perdure.model.tickets import Ticket, Waiting
from perdure.stores.store import Store
from perdure.testkit.helpers import conflict, move, race
from perdure.testkit.kit import Kit, case, equal, expect
from perdure.testkit.probe import untouched

STATUSES = ("created", "running", "waiting", "done")
LEGAL = {
    ("created", "created"),
    ("created", "running"),
    ("created", "done"),
    ("running", "running"),
    ("running", "waiting"),
    ("running", "done"),
    ("waiting", "waiting"),
    ("waiting", "running"),
    ("waiting", "done"),
}


async def run_in(store: Store, status: str) -> Run:
    """A fresh run of thread t in the given status."""
    if status == "created":
        return await store.runs.create("t", "agent")
    run = await store.runs.start("t", "agent")
    if status == "waiting":
        return await move(store, run.wait())
    return await move(store, run.finish()) if status == "done" else run


def to(run: Run, status: str | None) -> RunChange:
    """A well-formed change to a status; None is a plain step."""
    if status is None:
        return run.step()
    waiting = Waiting(reason="user_input") if status == "waiting" else None
    outcome = Outcome(Termination("natural_end")) if status == "done" else None
    return RunChange(run=run, status=status, waiting=waiting, outcome=outcome)


@case("runs", "legal-moves", covers=("store.commit",))
async def case_legal_moves(kit: Kit) -> None:
    """Every legal move is made, in the store and on the receipt."""
    for before, after in sorted(LEGAL):
        run = await run_in(kit.store, before)
        moved = await move(kit.store, to(run, after))
        equal(moved.status, after, f"{before} to {after}")
        expect(moved.rev != run.rev, f"{before} to {after}: the rev moves")


@case("runs", "illegal-moves", covers=("store.commit",))
async def case_illegal_moves(kit: Kit) -> None:
    """Every other move is refused inside the transaction, messages and state with it."""
    for before in STATUSES:
        for after in STATUSES:
            if (before, after) in LEGAL:
                continue
            run = await run_in(kit.store, before)
            commit = kit.store.commit("t", messages=[Message.user("x")], run=to(run, after), state={"s": 1})
            error = await untouched(kit.store, IllegalTransition, commit, f"{before} to {after}")
            conflict(error, after, before)


@case("runs", "steps", covers=("store.commit",))
async def case_steps(kit: Kit) -> None:
    """A step is legal in every status but done, and leaves the status alone."""
    for status in ("created", "running", "waiting"):
        run = await run_in(kit.store, status)
        moved = await move(kit.store, run.step(input_tokens=1))
        equal((moved.status, moved.steps, moved.waiting), (status, 1, run.waiting), f"a step while {status}")
    done = await run_in(kit.store, "done")
    await untouched(
        kit.store, IllegalTransition, kit.store.commit("t", run=done.step()), "a step of a run that is done"
    )


@case("runs", "done-is-final", covers=("store.commit",), needs=("durable",))
async def case_done_is_final(kit: Kit) -> None:
    """Done stays done after a crash, for a fresh record and for one read long before."""
    run = await kit.store.runs.start("t", "agent")
    await kit.store.commit("t", run=run.finish("bye"))
    store = await kit.crash()
    fresh = await store.runs.get(run.id)
    for record in (fresh, run):
        for change in (record.begin(), record.wait(), record.fail("x"), record.step()):
            await untouched(store, IllegalTransition, store.commit("t", run=change))
    equal(await store.runs.get(run.id), fresh, "the outcome stays")


@case("runs", "status-and-reason", covers=("store.commit",))
async def case_status_and_reason(kit: Kit) -> None:
    """A run has something to wait for exactly while it waits, and an outcome exactly when it is done."""
    run = await kit.store.runs.start("t", "agent")
    waiting, outcome = Waiting(reason="user_input"), Outcome(Termination("natural_end"))
    bad = [
        RunChange(run=run, status="waiting"),
        RunChange(run=run, status="running", waiting=waiting),
        RunChange(run=run, waiting=waiting),
        RunChange(run=run, status="done", outcome=outcome, waiting=waiting),
        RunChange(run=run, status="done"),
        RunChange(run=run, status="waiting", waiting=waiting, outcome=outcome),
        RunChange(run=run, outcome=outcome),
    ]
    for change in bad:
        await untouched(kit.store, InvalidError, kit.store.commit("t", run=change), repr(change)[-200:])


@case("runs", "times", covers=("store.commit",))
async def case_times(kit: Kit) -> None:
    """started_at is set once, finished_at only at the end, updated_at by every move, created_at never again."""
    run = await kit.store.runs.create("t", "agent")
    made = kit.clock.now
    times = []
    for change in ("step", "begin", "wait", "resume", "finish"):
        kit.clock.advance(100)
        run = await move(kit.store, getattr(run, change)())
        times.append((run.created_at - made, run.updated_at - made, run.started_at, run.finished_at))
    began = made + 200
    expected = [(0, 100, None, None), (0, 200, began, None), (0, 300, began, None), (0, 400, began, None)]
    equal(times, [*expected, (0, 500, began, made + 500)], "created, updated, started, finished")


@case("runs", "counters", covers=("store.commit",))
async def case_counters(kit: Kit) -> None:
    """Counters are increments, whichever move carries them."""
    run = await kit.store.runs.create("t", "agent")
    run = await move(kit.store, run.begin(input_tokens=1))
    run = await move(kit.store, run.step(input_tokens=10, output_tokens=20))
    run = await move(kit.store, run.step(output_tokens=5))
    run = await move(kit.store, run.wait(steps=1, output_tokens=100))
    run = await move(kit.store, run.resume())
    run = await move(kit.store, run.fail("x", steps=2, input_tokens=1_000))
    equal((run.steps, run.input_tokens, run.output_tokens), (5, 1_011, 125), "the sums")


@case("runs", "bad-counters", covers=("store.commit",))
async def case_bad_counters(kit: Kit) -> None:
    """Counters are whole numbers that are not negative."""
    run = await kit.store.runs.start("t", "agent")
    bad: list[Any] = [-1, 1.0, True, "1", None, 2**53]
    for value in bad:
        for name in ("steps", "input_tokens", "output_tokens"):
            change = msgspec.structs.replace(run.begin(), **{name: value})
            await untouched(kit.store, InvalidError, kit.store.commit("t", run=change), f"{name}={value!r}")


@case("runs", "counters-end", covers=("store.commit", "runs.get"))
async def case_counters_end(kit: Kit) -> None:
    """A counter reaches 2^52, which every engine keeps exactly; what would pass it is refused and writes nothing."""
    run = await kit.store.runs.start("t", "agent")
    run = await move(kit.store, run.step(input_tokens=2**52 - 1, output_tokens=2**52))
    for change in (run.step(input_tokens=2), run.step(output_tokens=2**52), run.finish(output_tokens=1)):
        await untouched(kit.store, InvalidError, kit.store.commit("t", run=change, messages=[Message.user("q")]))
    run = await move(kit.store, run.step(input_tokens=1))
    equal((run.steps, run.input_tokens, run.output_tokens), (2, 2**52, 2**52), "the sums")
    # A record that lies about what it counted cannot push a stored counter past the end either.
    run = await move(kit.store, msgspec.structs.replace(run, input_tokens=0).step(input_tokens=2**52))
    stored = await kit.store.runs.get(run.id)
    equal((type(stored.input_tokens), stored.input_tokens), (int, 2**52), "the stored sum")
    for huge in (2**53, -1, 10**5_000, 1.0, "1", None):
        forged = msgspec.structs.replace(run, output_tokens=huge)
        await untouched(kit.store, InvalidError, kit.store.commit("t", run=forged.step(output_tokens=1)))
    await move(kit.store, run.finish())


@case("runs", "waiting", covers=("store.commit", "runs.get"))
async def case_waiting(kit: Kit) -> None:
    """Tickets come back sorted by their call, whole; a resumed run, under its own id, waits for nothing."""
    run = await kit.store.runs.start("t", "agent")
    tickets = [
        Ticket(ticket_id="z", tool_call_id="c2", tool_name="f", arguments={"x": [1, None]}, reason="why"),
        Ticket(ticket_id="b", tool_call_id="c1", resume_mode="pass_decision_to_tool", updated_at=7),
        Ticket(ticket_id="a", tool_call_id="c1", extra=Extra(colour="red")),
        Ticket(ticket_id="none"),
    ]
    waiting = await move(kit.store, run.wait(tickets, reason="tool_permission", message="may I?"))
    waits_for = (await kit.store.runs.get(run.id)).waiting
    expected = Waiting(reason="tool_permission", tickets=[tickets[i] for i in (3, 2, 1, 0)], message="may I?")
    equal(waits_for, expected, "what it waits for")
    resumed = await move(kit.store, waiting.resume())
    equal((resumed.id, resumed.status, resumed.waiting), (run.id, "running", None), "resumed")


@case("runs", "waiting-again", covers=("store.commit",))
async def case_waiting_again(kit: Kit) -> None:
    """A waiting run may wait for something else; only the last reason stays."""
    run = await kit.store.runs.start("t", "agent")
    run = await move(kit.store, run.wait([Ticket(ticket_id="a"), Ticket(ticket_id="b")]))
    run = await move(kit.store, run.wait([Ticket(ticket_id="b")], reason="external_event"))
    equal(run.waiting, Waiting(reason="external_event", tickets=[Ticket(ticket_id="b")]), "the last wait")


@case("runs", "bad-tickets", covers=("store.commit",))
async def case_bad_tickets(kit: Kit) -> None:
    """Tickets have ids of their own; the reason is a word, known or not."""
    run = await kit.store.runs.start("t", "agent")
    ticket = Ticket(ticket_id="k")
    bad = [run.wait([ticket, ticket]), run.wait([Ticket(ticket_id=" ")]), run.wait(reason="Two Words")]
    for change in bad:
        await untouched(kit.store, InvalidError, kit.store.commit("t", run=change))
    waiting = await move(kit.store, run.wait(reason="full_moon"))
    equal(waiting.waiting, Waiting(reason="full_moon"), "an unknown reason is carried")


@case("runs", "outcomes", covers=("store.commit", "runs.get"))
async def case_outcomes(kit: Kit) -> None:
    """Each way to end keeps its whole story: type, code, detail, output, payload."""
    payload = {"trace": ["a", {"line": 3}], "retry": None}
    ends: list[tuple[Any, Outcome]] = [
        (lambda r: r.finish("bye"), Outcome(Termination("natural_end"), "bye")),
        (lambda r: r.finish(), Outcome(Termination("natural_end"))),
        (lambda r: r.finish(termination="behavior_requested"), Outcome(Termination("behavior_requested"))),
        (lambda r: r.fail("boom", error=payload), Outcome(Termination("error", detail="boom"), error=payload)),
        (lambda r: r.cancel("user"), Outcome(Termination("cancelled", detail="user"))),
        (lambda r: r.stop("max_steps", "50"), Outcome(Termination("stopped", code="max_steps", detail="50"))),
        (lambda r: r.block("policy"), Outcome(Termination("blocked", detail="policy"))),
    ]
    for end, outcome in ends:
        run = await move(kit.store, end(await kit.store.runs.start("t", "agent")))
        stored = await kit.store.runs.get(run.id)
        equal((stored.status, stored.outcome), ("done", outcome), outcome.termination.type)
        equal(stored.finished_at, kit.clock.now, "finished_at")


@case("runs", "end-from-waiting", covers=("store.commit",))
async def case_end_from_waiting(kit: Kit) -> None:
    """A run that ends while it waits no longer waits."""
    run = await run_in(kit.store, "waiting")
    done = await move(kit.store, run.cancel())
    equal((done.status, done.waiting), ("done", None), "done")


@case("runs", "stale-record", covers=("store.commit",))
async def case_stale_record(kit: Kit) -> None:
    """Two holders of one record: the second learns both revs, and overwrites nothing."""
    other = await kit.second()
    run = await kit.store.runs.start("t", "agent")
    theirs = await other.runs.get(run.id)
    moved = await move(kit.store, run.step(output_tokens=3))
    for change in (theirs.step(output_tokens=9), theirs.wait(), theirs.finish("mine")):
        late = other.commit("t", messages=[Message.assistant("late")], run=change)
        conflict(await untouched(kit.store, VersionConflict, late), run.rev, moved.rev)
    equal((await move(other, (await other.runs.get(run.id)).step())).steps, 2, "a fresh record goes on")


@case("runs", "stale-and-done", covers=("store.commit",))
async def case_stale_and_done(kit: Kit) -> None:
    """A stale record of a run that is done is refused because the run is done: reading it again would not help."""
    run = await kit.store.runs.start("t", "agent")
    await kit.store.commit("t", run=run.finish())
    error = await untouched(kit.store, IllegalTransition, kit.store.commit("t", run=run.step()))
    conflict(error, "running", "done")


@case("runs", "stale-and-legal-now", covers=("store.commit",))
async def case_stale_and_legal_now(kit: Kit) -> None:
    """A move that is illegal from the record but legal from what is stored is a conflict of revs."""
    run = await kit.store.runs.create("t", "agent")
    await kit.store.commit("t", run=run.begin())
    await untouched(kit.store, VersionConflict, kit.store.commit("t", run=run.wait()))


@case("runs", "racing-moves", covers=("store.commit",))
async def case_racing_moves(kit: Kit) -> None:
    """Of many moves on one record, from two clients, exactly one is made."""
    run = await kit.store.runs.start("t", "agent")
    clients = [kit.store, await kit.second()]
    won, lost = await race(*[clients[i % 2].commit("t", run=run.step(output_tokens=1)) for i in range(16)])
    equal((len(won), {type(error) for error in lost}), (1, {VersionConflict}), "one winner")
    stored = await kit.store.runs.get(run.id)
    equal((stored.steps, stored.output_tokens), (1, 1), "one step")


@case("runs", "racing-ends", covers=("store.commit",))
async def case_racing_ends(kit: Kit) -> None:
    """A finish and a cancel at once: one outcome, and the loser learns that the run is done."""
    run = await kit.store.runs.start("t", "agent")
    other = await kit.second()
    won, lost = await race(kit.store.commit("t", run=run.finish("a")), other.commit("t", run=run.cancel()))
    equal((len(won), len(lost)), (1, 1), "one winner")
    expect(isinstance(lost[0], (IllegalTransition, VersionConflict)), f"the loser: {lost[0]!r}")
    equal(won[0].run, await kit.store.runs.get(run.id), "the winner's outcome is stored")
    error: ConflictError = await untouched(kit.store, IllegalTransition, other.commit("t", run=run.cancel()))
    equal(error.actual, "done", "a second look")
