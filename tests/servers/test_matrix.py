"""An engine whose server cannot be had has a column all the same, and the column says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ABSENT = """
from perdure.testkit.providers import MemoryProvider
from perdure.testkit.kit import ServerMissing


class Mine(MemoryProvider):
    name = "mine"

    async def start(self, clock):
        raise ServerMissing("mine", ["nothing on the PATH", "no wheel"])
"""


@pytest.mark.parametrize("required", ["0", "1"])
def test_an_absent_server_is_reported_in_its_column(tmp_path: Path, required: str) -> None:
    (tmp_path / "mine.py").write_text(ABSENT)
    environment = {"PYTHONPATH": str(tmp_path), "PERDURE_REQUIRE_SERVERS": required, "COLUMNS": "200"}
    command = [sys.executable, "-m", "perdure.testkit.matrix", "mine:Mine"]
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == int(required), done.stdout + done.stderr
    assert "no mine server: nothing on the PATH; no wheel" in done.stdout
    assert "passed" not in done.stdout
