"""Two worker processes on one SQLite file, and one of them is killed inside a tool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import perdure.sync
from perdure import Message
from perdure.workers import LEASES

RUNS = ("a", "b", "hangs", "c", "d", "e")
DEADLINE = 60.0


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up, "the workers did not get there"
        time.sleep(0.02)


def test_the_run_of_a_killed_worker_goes_on_and_no_tool_runs_twice(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    url = f"sqlite:///{tmp_path / 'agents.db'}"

    def lines() -> list[list[str]]:
        return [line.split() for line in ledger.read_text().splitlines()]

    with perdure.sync.open(url) as store:

        def is_done(run_id: str) -> bool:
            return store.runs.get(run_id).status == "done"

        for run_id in RUNS:
            store.runs.start(run_id, "clerk", run_id=run_id, messages=[Message.user("Pay.")])
        command = [sys.executable, "-m", "tests.workers.process", url, str(ledger)]
        workers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
        try:
            wait_for(lambda: len(lines()) == len(RUNS) and sum(map(is_done, RUNS)) == len(RUNS) - 1)
            (victim,) = [int(pid) for pid, run_id, _ in lines() if run_id == "hangs"]
            assert [lease.key for lease in store.profiles.list(LEASES)].count("hangs") == 1
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: is_done("hangs"))
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
        assert Counter((run_id, word) for _, run_id, word in lines()) == Counter(
            [*((run_id, "ran") for run_id in RUNS), ("hangs", "uncertain")]
        )
        (survivor,) = [int(pid) for pid, _, word in lines() if word == "uncertain"]
        assert survivor != victim
        results = [record.result_text for record in store.messages.history("hangs") if record.role == "tool"]
        assert results == ["It may have been paid."]
