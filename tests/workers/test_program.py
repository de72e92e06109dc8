"""The program of the page about workers: short, and its worker may be killed inside a tool."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Page
from tests.support.models import ModelServer, model_server

import perdure
from perdure import Message, Run, Store
from perdure.workers import Job, ServeOptions, serve

DIES = "import os; os._exit(9)"
DEADLINE = 100
PATH = ROOT / "docs/workers.md"
PROGRAM = next(
    block.code for block in Page(PATH, PATH.read_text(encoding="utf-8")).blocks() if block.file == "worker.py"
)


def test_the_program_is_short() -> None:
    assert len(PROGRAM.splitlines()) <= 50


async def decided(store: Store, run_id: str) -> Run:
    """Approve whatever the run asks for, until it is done."""
    async for run in store.runs.follow(run_id):
        for ticket in run.open_tickets:
            await store.runs.decide(run_id, ticket.ticket_id, {"approved": True})
    return await store.runs.get(run_id)


def started(program: Path, server: ModelServer) -> subprocess.Popen[bytes]:
    command, environment = [sys.executable, program.name], {**os.environ, **server.environment}
    return subprocess.Popen(command, cwd=program.parent, env=environment)


@pytest.mark.parametrize(
    ("line", "results"),
    [
        ('return f"A table', ["Kyoto: sunny, 24 degrees.", "The call was cut off."]),
        ('return f"{city}', ["Kyoto: sunny, 24 degrees.", "A table for 2 is booked for tonight."]),
    ],
)
def test_a_worker_dies_inside_a_tool(line: str, results: list[str], tmp_path: Path) -> None:
    """The next one repeats the tool only if the program says that it may."""
    code = PROGRAM.replace('agent_id="planner",', 'agent_id="planner", lease_ms=3_000,')
    assert code != PROGRAM
    (tmp_path / "worker.py").write_text(code, encoding="utf-8")
    (tmp_path / "dying.py").write_text(code.replace(line, f"{DIES}\n    {line}"), encoding="utf-8")

    async def drive() -> list[str]:
        async with asyncio.timeout(DEADLINE), perdure.open(f"sqlite:///{tmp_path / 'agents.db'}") as store:
            run = await store.runs.start("trip", "planner", messages=[Message.user("Is it sunny?")])
            waiting = asyncio.create_task(decided(store, run.id))
            with model_server() as server:
                dying = started(tmp_path / "dying.py", server)
                assert await asyncio.to_thread(dying.wait) == 9
                assert (await store.runs.get(run.id)).status == "running"
                worker = started(tmp_path / "worker.py", server)
                try:
                    assert (await waiting).status == "done"
                finally:
                    worker.terminate()
                    assert await asyncio.to_thread(worker.wait) == 0
            history = await store.messages.history("trip")
            return [record.result_text for record in history if record.role == "tool"]

    stored = asyncio.run(drive())
    assert [text[: len(result)] for text, result in zip(stored, results, strict=True)] == results


def test_the_reference_lists_all_of_it() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8").partition("## Workers")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `(\w+)[`(]", page, re.MULTILINE))
    members = {name for name in dir(Job) if not name.startswith("_")}
    assert listed == {"Job"} | members | set(inspect.signature(serve).parameters)


def test_run_takes_the_options_of_serve() -> None:
    assert set(ServeOptions.__annotations__) == set(inspect.signature(serve).parameters) - {"store", "handler", "stop"}
