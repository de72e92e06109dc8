"""`perdure run`, `perdure cancel` and `perdure delete`: look at one run, end it from outside, delete a thread."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.cli.program import SCRIPT, Program, answered

import perdure
from perdure import Run, Store
from perdure.errors import IllegalTransition

T = TypeVar("T")


def opened(program: Program, body: Callable[[Store], Awaitable[T]]) -> T:
    async def scenario() -> T:
        async with perdure.open(program.url) as store:
            return await body(store)

    return asyncio.run(scenario())


def waiting_run(program: Program) -> Run:
    async def find(store: Store) -> Run:
        return (await store.runs.list(status="waiting")).items[0]

    return opened(program, find)


def facts(text: str) -> dict[str, str]:
    """The facts before the first empty line."""
    lines = [line.split("  ", 1) for line in text.partition("\n\n")[0].splitlines()]
    return {line[0]: line[-1].strip() for line in lines}


def test_a_waiting_run_shows_what_it_waits_for(program: Program) -> None:
    run = waiting_run(program)
    text = program("run", run.id)
    shown = facts(text)
    assert (shown["run"], shown["thread"], shown["agent"]) == (run.id, "kyoto", "planner")
    assert (shown["status"], shown["waits for"]) == ("waiting", "tool_permission")
    assert "finished" not in shown
    assert ["t-1", "call-2"] in [line.split() for line in text.splitlines()]


def test_a_done_run_shows_its_end_and_its_state(program: Program) -> None:
    done = program.json("runs", "kyoto", "--status", "done")["items"][0]
    text = program("run", done["id"])
    shown = facts(text)
    assert (shown["outcome"], shown["final output"]) == ("natural_end", "Museums, then.")
    assert (shown["steps"], shown["tokens"]) == ("2", "12 in, 0 out")
    assert shown["finished"].endswith("Z")
    assert "scratch" in text
    document = program.json("run", done["id"])
    assert document["run"] == done
    assert [(doc["name"], doc["value"]) for doc in document["state"]] == [("scratch", [1, None])]


def test_metadata_and_an_error_are_shown(program: Program) -> None:
    async def fail(store: Store) -> None:
        run = await store.runs.start("empty", "a", run_id="failing", metadata={"ticket": 7}, session_id="s-1")
        await store.commit("empty", run=run.fail("no luck", error={"code": 500}))

    opened(program, fail)
    shown = facts(program("run", "fail"))
    assert (shown["outcome"], shown["detail"], shown["error"]) == ("error", "no luck", '{"code":500}')
    assert (shown["metadata"], shown["session"]) == ('{"ticket":7}', "s-1")


def test_a_run_is_named_by_a_unique_beginning(program: Program) -> None:
    async def start(store: Store) -> None:
        for name in ("abc", "abcd", "abd", *[f"many{n}" for n in range(9)]):
            await store.runs.start("empty", "a", run_id=name)

    opened(program, start)
    assert program.json("run", "abd")["run"]["id"] == "abd"
    assert program.json("run", "abc")["run"]["id"] == "abc"
    assert "'ab' is the beginning of several runs: abc, abcd, abd (give more of the id)" in program.error("run", "ab")
    assert "several runs: many0, many1, many2, many3, many4, … (give" in program.error("cancel", "many", "--yes")
    assert "no run id is or starts with 'zzz' (perdure runs lists them)" in program.error("run", "zzz")


def test_a_run_is_cancelled(program: Program) -> None:
    run = waiting_run(program)
    assert program("cancel", run.id, "--yes", "--detail", "no longer needed") == f"cancelled run {run.id}\n"
    document = program.json("run", run.id)["run"]
    assert document["status"] == "done"
    assert document["outcome"]["termination"] == {"type": "cancelled", "detail": "no longer needed"}
    assert f"run '{run.id}' is already done (cancelled)" in program.error("cancel", run.id, "--yes")

    async def go_on(store: Store) -> None:
        with pytest.raises(IllegalTransition):
            await store.commit("kyoto", run=run.resume())

    opened(program, go_on)


def test_a_ticket_is_decided(program: Program) -> None:
    run = waiting_run(program)
    assert "must be JSON, not 'yes'" in program.error("decide", run.id, "t-1", "yes")
    assert "any JSON value but null" in program.error("decide", run.id, "t-1", "null")
    assert "does not wait for ticket 't-9'" in program.error("decide", run.id, "t-9", "true")
    assert program("decide", run.id, "t-1", '{"ok": true}') == (
        f"decided ticket t-1 of run {run.id} (ready to resume)\n"
    )
    assert ["t-1", "call-2", '{"ok":true}'] in [line.split() for line in program("run", run.id).splitlines()]
    document = program.json("decide", run.id, "t-1", '{"ok":true}')
    assert document["waiting"]["tickets"][0]["decision"] == {"ok": True}
    assert "already has another decision" in program.error("decide", run.id, "t-1", "false")

    async def go_on(store: Store) -> None:
        await store.commit("kyoto", run=(await store.runs.get(run.id)).resume())

    opened(program, go_on)
    text = program("run", run.id)
    assert "\ndecisions it was resumed with\n" in text
    assert ["t-1", "call-2", '{"ok":true}'] in [line.split() for line in text.splitlines()]


def test_a_run_is_run_again(program: Program) -> None:
    run = waiting_run(program)
    question = "Cancel the open runs of thread 'kyoto'"
    assert question in program.error("rerun", run.id)
    assert program.json("run", run.id)["run"]["status"] == "waiting"
    document = program.json("rerun", run.id, "--yes", "--message", "Two days in Nara.", "--key", "once")
    assert (document["status"], document["agent_id"]) == ("running", run.agent_id)
    assert program.json("run", run.id)["run"]["outcome"]["termination"]["type"] == "cancelled"
    assert "Two days in Nara." in program("show", "kyoto")
    again = program("rerun", run.id, "--yes", "--message", "Two days in Nara.", "--key", "once")
    assert again.startswith(f"started run {document['id']} on branch ")
    program("cancel", document["id"], "--yes")
    named = program("rerun", document["id"], "--agent", "critic", "--name", "second")
    assert named.endswith(" on branch second of thread kyoto\n")
    assert "already has a branch called 'second'" in program.error("rerun", run.id, "--name", "second", "--yes")
    assert "no run id is or starts with 'zzz'" in program.error("rerun", "zzz")


def test_without_a_terminal_nothing_is_cancelled_or_deleted_unasked(program: Program) -> None:
    run = waiting_run(program)
    assert "There is no terminal to ask on (--yes answers yes)" in program.error("cancel", run.id)
    assert "There is no terminal to ask on (--yes answers yes)" in program.error("delete", "kyoto")
    assert waiting_run(program) == run


def test_a_person_is_asked(program: Program) -> None:
    run = waiting_run(program)
    code, text = answered(program, "\n", "cancel", run.id)
    assert (code, waiting_run(program)) == (2, run)
    assert "agent 'planner' (waiting)? [y/N]" in text
    code, text = answered(program, "n\n", "delete", "kyo")
    assert "Delete thread 'kyoto' (Plan a trip) with 10 messages? It has 2 children: they become roots." in text
    assert (code, "nothing was changed" in text) == (2, True)
    code, text = answered(program, "yes\n", "delete", "kyo")
    assert (code, "deleted thread kyoto" in text) == (0, True)
    assert "no thread id" in program.error("show", "kyoto")


def test_ctrl_c_at_a_question_changes_nothing(program: Program) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [SCRIPT, "delete", "kyoto"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=program.environment(TERM="xterm"),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - it only resets a signal
    ) as process:
        os.close(theirs)
        text = b""
        while b"[y/N]" not in text:
            text += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    os.close(ours)
    assert program.json("show", "kyoto")["thread"]["id"] == "kyoto"


def test_a_thread_is_deleted_with_its_runs(program: Program) -> None:
    document = program.json("delete", "kyoto", "--yes")
    assert (document["deleted"]["id"], document["strategy"]) == ("kyoto", "detach")
    assert program.json("show", "child")["thread"]["parent_thread_id"] is None
    assert program.json("runs", "--status", "waiting")["items"] == []
    assert program("doctor", "verify").startswith("all is well")


def test_what_becomes_of_the_children(program: Program) -> None:
    assert "child" in program.error("delete", "kyoto", "--yes", "--strategy", "reject")
    assert "the strategy 'x' is not known (use detach, cascade, reject)" in program.error(
        "delete", "kyoto", "--yes", "--strategy", "x"
    )
    program("delete", "kyoto", "--yes", "--strategy", "cascade")
    ids = {thread["id"] for thread in program.json("threads")["items"]}
    assert ids == {"empty", "grandchild", "hostile [bold]", "late-parent"}
