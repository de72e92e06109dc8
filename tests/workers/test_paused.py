"""A worker process that is paused (SIGSTOP) inside a shielded tool until it has lost its lease, and then continued."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workers.test_processes import wait_for

import perdure.sync
from perdure import Message


@pytest.mark.parametrize("successor", ["done", "at work"])
def test_a_paused_worker_stores_its_late_result_once_and_leaves_the_run_alone(successor: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    command = [sys.executable, "-m", "tests.workers.process", url, str(ledger)]

    def words() -> list[str]:
        return [line.split()[-1] for line in ledger.read_text().splitlines()]

    with perdure.sync.open(url) as store:
        store.runs.start("t", "clerk", run_id="paused", messages=[Message.user("Pay.")])
        workers = [subprocess.Popen(command)]
        try:
            wait_for(lambda: words() == ["ran"])
            workers[0].send_signal(signal.SIGSTOP)
            workers.append(subprocess.Popen(command))
            wait_for(lambda: words() == ["ran", "uncertain"])
            wait_for(lambda: len(store.messages.path("t")) == 3)
            if successor == "done":
                (tmp_path / "end").touch()
                wait_for(lambda: store.runs.get("paused").status == "done")
            before = store.runs.get("paused")
            (tmp_path / "go").touch()
            workers[0].send_signal(signal.SIGCONT)
            wait_for(lambda: words() == ["ran", "uncertain", "stopped"])
            assert store.runs.get("paused") == before
            (tmp_path / "end").touch()
            wait_for(lambda: store.runs.get("paused").status == "done")
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        path = [record.text or record.result_text for record in store.messages.path("t")]
        late = ["Paid.", "Done."] if successor == "at work" else ["Done.", "Paid."]
        assert path == ["Pay.", "", "It may have been paid.", *late]
        history = [record.text or record.result_text for record in store.messages.history("t")]
        assert history == ["Pay.", "", "It may have been paid.", "Done."]
        assert words() == ["ran", "uncertain", "stopped"]
