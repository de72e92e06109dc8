"""An import from a stream that can be read only once, and warnings that Python turns into errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.program import SCRIPT, Program

WRITE = "import sys; open(sys.argv[2], 'wb').write(open(sys.argv[1], 'rb').read())"


@pytest.mark.skipif(os.name != "posix", reason="a FIFO has a name on POSIX only")
def test_an_import_from_a_fifo(program: Program, tmp_path: Path) -> None:
    """As a shell's `<(zcat agents.jsonl.gz)` is one."""
    export, fifo = tmp_path / "all.jsonl", tmp_path / "fifo"
    program("export", "--out", str(export))
    os.mkfifo(fifo)
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(export), str(fifo)])
    try:
        other = Program(tmp_path / "other.db")
        command = [SCRIPT, "import", str(fifo), "--json"]
        done = subprocess.run(command, capture_output=True, env=other.environment(), timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout)["threads"] > 0
        assert other("export") == export.read_text(encoding="utf-8")
        assert writer.wait(60) == 0
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_who_makes_warnings_errors_is_told_in_one_line(program: Program, options: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # The server by a name that is not known to stay on this machine.
        url = f"redis://:secret@127.1:{server.getsockname()[1]}"
        done = program.real("threads", "--store", url, *options, PYTHONWARNINGS="error")
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert "127.1 is not encrypted" in line
    assert "secret" not in line
    if options:
        assert json.loads(line)["error"]["code"] == "insecure_transport"
    else:
        assert line.startswith("error: ")
