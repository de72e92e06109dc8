"""What a worker logs: on stderr if its program says nothing else, and one line per event of a run."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workers.scenes import PAY, begun, ended, finish, serving
from tests.workers.test_serving import on_memory

import perdure
import perdure.sync
from perdure import Message, Store, UnavailableError
from perdure.clock import ManualClock
from perdure.workers import LEASES, Job, driving, run
from perdure.workers.logs import described, logging_to_stderr

PROGRAM = """
import logging, os, signal, sys
from perdure import Ticket, workers

async def handler(job):
    os.kill(os.getpid(), signal.SIGTERM)
    if "later" in sys.argv:
        configure()
    if job.run.id == "waits":
        await job.commit(run=job.run.wait([Ticket(ticket_id="x")]))
    elif job.run.id == "fails":
        raise ValueError("no such tool")
    else:
        await job.commit(run=job.run.finish("Done."))

def configure():
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="own %(message)s")

if "own" in sys.argv:
    configure()
if "child" in sys.argv:
    child = logging.StreamHandler(sys.stdout)
    child.setFormatter(logging.Formatter("own %(message)s"))
    logging.getLogger("perdure.workers").addHandler(child)
workers.run(sys.argv[1], handler, agent_id="clerk", worker="w-1", poll_ms=20, log="silent" not in sys.argv)
print("handlers:", [type(each).__name__ for each in logging.getLogger("perdure").handlers])
"""
LINE = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<text>(?:INFO|WARNING|ERROR) perdure\.\w+: .*)$", re.MULTILINE
)
DEADLINE = 60


def program(path: Path, run_id: str, *words: str) -> tuple[str, str]:
    """What a worker wrote to stdout and stderr that was stopped after the run."""
    with perdure.sync.open(path) as store:
        store.runs.start("t", "clerk", run_id=run_id)
    command = [sys.executable, "-c", PROGRAM, str(path), *words]
    process = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    return process.stdout, process.stderr


@pytest.mark.parametrize(
    ("run_id", "end"),
    [
        ("ends", "INFO perdure.workers: run 'ends' is done: natural_end"),
        ("waits", "INFO perdure.workers: run 'waits' waits: 1 ticket is open"),
        ("fails", "ERROR perdure.workers: the handler of run 'fails' failed: ValueError: no such tool"),
    ],
)
def test_a_program_tells_what_it_does(run_id: str, end: str, tmp_path: Path) -> None:
    out, errors = program(tmp_path / "agents.db", run_id)
    assert out == "handlers: ['NullHandler']\n"
    texts = LINE.findall(errors)
    store = f"<perdure.Store {tmp_path}/agents.db scope='default' open>"
    assert texts[0] == f"INFO perdure.workers: worker 'w-1' serves agent 'clerk' in {store}"
    assert texts[1] == f"INFO perdure.workers: run '{run_id}' of agent 'clerk' is picked up"
    assert end in texts
    assert texts[-1] == "INFO perdure.workers: worker 'w-1' has stopped"
    assert ("Traceback" in errors) is (run_id == "fails")


def test_a_program_that_configures_logging_has_its_way(tmp_path: Path) -> None:
    out, errors = program(tmp_path / "agents.db", "ends", "own")
    assert errors == ""
    assert out.count("own run 'ends' is done") == 1


@pytest.mark.parametrize("when", ["child", "later"])
def test_no_line_comes_twice_if_the_program_has_a_handler_for_a_part_or_adds_one_later(
    when: str, tmp_path: Path
) -> None:
    out, errors = program(tmp_path / "agents.db", "ends", when)
    own = re.findall(r"^own (.*)$", out, re.MULTILINE)
    printed = [text.partition(": ")[2] for text in LINE.findall(errors)]
    assert "run 'ends' is done: natural_end" in own
    assert not set(own) & set(printed)
    started = [line for line in [*own, *printed] if line.startswith("worker 'w-1' serves")]
    assert len(started) == 1
    assert bool(printed) is (when == "later")


def test_it_can_be_silent(tmp_path: Path) -> None:
    assert program(tmp_path / "agents.db", "ends", "silent") == ("handlers: ['NullHandler']\n", "")


def test_the_level_that_the_program_chose_stays(capsys: pytest.CaptureFixture[str]) -> None:
    perdure_logger = logging.getLogger("perdure")
    before, perdure_logger.propagate = perdure_logger.level, False  # pytest has handlers of its own
    try:
        for level, printed in ((logging.NOTSET, ["info", "warning"]), (logging.WARNING, ["warning"])):
            perdure_logger.setLevel(level)
            with logging_to_stderr():
                logging.getLogger("perdure.workers").info("info")
                logging.getLogger("perdure.workers").warning("warning")
            assert perdure_logger.level == level
            assert [line.rsplit(": ")[-1] for line in capsys.readouterr().err.splitlines()] == printed
    finally:
        perdure_logger.setLevel(before)
        perdure_logger.propagate = True


def test_log_takes_a_bool() -> None:
    with pytest.raises(perdure.InvalidError, match="log"):
        run("memory://", finish, log="yes")  # type: ignore[arg-type]


def messages(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


def test_a_run_that_is_taken_over_is_a_warning_with_its_uncertain_calls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "perdure.workers")

    async def body(store: Store, clock: ManualClock) -> None:
        left = await begun(store, "t")
        await store.profiles.put(LEASES, left.id, {"worker": "dead"}, if_rev=0, ttl_ms=1_000)
        clock.advance(1_000)
        async with serving(store, finish):
            await ended(store, left.id)
            fresh = await store.runs.start("t-2", "clerk", run_id="fresh")
            await ended(store, fresh.id)
        text = f"run {left.id!r} is taken over from an earlier worker; 1 call is uncertain"
        assert messages(caplog, "WARNING") == [text]
        assert "run 'fresh' of agent 'clerk' is picked up" in messages(caplog, "INFO")

    on_memory(body)


def test_a_retry_and_an_outage_tell_their_cause_on_one_short_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "FIRST_PAUSE", 0.001)
    caplog.set_level(logging.INFO, "perdure.workers")
    errors = [ConnectionError("hung up\n\x1b[31m" + 500 * "x"), UnavailableError("the store is down")]

    async def handler(job: Job) -> None:
        if errors:
            raise errors.pop(0)
        await job.commit(Message.assistant([PAY]))
        await job.commit(Message.tool(PAY.id, "Paid."))
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        await store.runs.start("t", "clerk", run_id="r")
        async with serving(store, handler, retry_on=(ConnectionError,)):
            await ended(store, "r")

    on_memory(body)
    retry, later = messages(caplog, "WARNING")[:2]
    assert retry.startswith("the handler of run 'r' is called again in 0.001 s: ConnectionError: hung up ")
    assert retry.endswith("x…")
    assert "\x1b" not in retry
    assert "\n" not in retry
    assert len(retry) < 300
    assert later == "run 'r' is left for later: UnavailableError: the store is down"
    assert "run 'r' is done: natural_end" in messages(caplog, "INFO")


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("cancel", "was cancelled"),
        ("fail", "was ended with an error by another process"),
        ("finish", "was finished by another process"),
        ("block", "was ended by another process"),
    ],
)
def test_a_stop_tells_how_the_run_ended(end: str, cause: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "perdure.workers")
    working, go_on = asyncio.Event(), asyncio.Event()

    async def handler(job: Job) -> None:
        working.set()
        await go_on.wait()
        await job.commit(Message.assistant("Too late."))

    async def body(store: Store, _: ManualClock) -> None:
        await store.runs.start("t", "clerk", run_id="r")
        async with serving(store, handler):
            await working.wait()
            await store.commit("t", run=getattr(await store.runs.get("r"), end)("because"))
            go_on.set()

    on_memory(body)
    assert f"the handler of run 'r' is stopped: run 'r' {cause}" in messages(caplog, "INFO")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("\ud800"), "ValueError: ?"),
        (ValueError(), "ValueError"),
        (Unspeakable(), "Unspeakable"),
        (ValueError("x" * 5_000), f"ValueError: {'x' * 1_987}…"),
    ],
)
def test_whatever_an_error_says_can_be_stored(error: Exception, text: str) -> None:
    assert described(error) == text
