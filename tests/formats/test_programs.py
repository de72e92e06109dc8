"""The programs of the pages survive a crash: killed inside a tool, the next start knows what is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Page
from tests.support.models import ModelServer, model_server

import perdure.sync

PROGRAMS = ("openai", "anthropic")
DIES = "import os; os._exit(9)"
SECONDS = 120


def program(name: str) -> str:
    path = ROOT / "docs" / f"{name}.md"
    blocks = Page(path, path.read_text(encoding="utf-8")).blocks()
    return next(block.code for block in blocks if block.file == "agent.py")


def run(code: str, folder: Path, server: ModelServer) -> subprocess.CompletedProcess[str]:
    (folder / "agent.py").write_text(code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "agent.py"],
        cwd=folder,
        env={**os.environ, **server.environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_short(name: str) -> None:
    assert len(program(name).splitlines()) <= 55


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tool_that_must_not_run_twice_is_not_repeated(name: str, tmp_path: Path) -> None:
    code = program(name)
    dying = code.replace('return f"A table', f'{DIES}\n    return f"A table')
    with model_server() as server:
        assert run(dying, tmp_path, server).returncode == 9
        assert len(server.requests) == 2
        ended = run(code, tmp_path, server)
    assert ended.returncode == 0, ended.stderr
    assert "Did you get a confirmation?" in ended.stdout
    with perdure.sync.open(f"sqlite:///{tmp_path / 'agents.db'}") as store:
        runs = store.runs.list(thread_id="trip").items
        assert {item.status for item in runs} == {"done"}
        results = [record.result_text for record in store.messages.history("trip") if record.role == "tool"]
        assert [text[:9] for text in results[:2]] == ["Kyoto: su", "The call "]
        assert store.messages.unfinished_calls("trip") == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tool_that_may_run_twice_is_repeated(name: str, tmp_path: Path) -> None:
    code = program(name)
    with model_server() as server:
        assert run(code.replace('return f"{city}', f'{DIES}\n    return f"{{city}}'), tmp_path, server).returncode == 9
        ended = run(code.rpartition("asyncio.run")[0] + RESUME, tmp_path, server)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "Sunny! A table for two is booked.\n[4 steps, 300 tokens in, 30 out]\n"


RESUME = """
async def resume():
    from_here = [name for name in ("AsyncOpenAI", "AsyncAnthropic") if name in globals()]
    async with perdure.open("sqlite:///agents.db") as store, globals()[from_here[0]]() as client:
        [run] = [run async for run in store.runs.iter(status="running")]
        await work(store, client, run, resumed=True)

asyncio.run(resume())
"""
