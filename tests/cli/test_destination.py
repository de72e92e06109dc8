"""`perdure export --out`: what is no regular file is written into, never replaced; a file is whole or not there."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from tests.cli.program import SCRIPT, Program, answered
from tests.cli.steering import steering

from perdure.cli.destination import destination
from perdure.errors import InvalidError

DEADLINE = 60


def lines(data: bytes) -> list[object]:
    return [json.loads(line) for line in data.splitlines()]


def test_a_fifo_is_written_into(program: Program, tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    done = program.run("export", "kyoto", "--out", str(fifo))
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    reader.join(DEADLINE)
    assert (done.code, lines(got[0])) == (0, lines(program("export", "kyoto").encode()))
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.usefixtures("ctrl_c")
def test_a_fifo_that_nobody_reads_can_be_interrupted(program: Program, tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    command = [SCRIPT, "export", "kyoto", "--out", str(fifo)]
    with subprocess.Popen(command, env=program.environment(), stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"waiting for a reader" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(DEADLINE) == 130
        finally:
            process.kill()  # or leaving the block would wait for it
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize("through_a_link", [False, True], ids=["itself", "a link to it"])
def test_a_device_is_written_into(program: Program, tmp_path: Path, through_a_link: bool) -> None:
    ours, theirs = pty.openpty()
    device = Path(os.ttyname(theirs))
    named = device
    if through_a_link:
        named = tmp_path / "link"
        named.symlink_to(device)
    got = bytearray()
    done = threading.Event()

    def read() -> None:
        while not done.is_set() or got.count(b"\n") == 0:
            try:
                got.extend(os.read(ours, 65536))
            except OSError:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert program.run("export", "hostile [bold]", "--out", str(named)).code == 0
        assert stat.S_ISCHR(device.stat().st_mode)
        assert named.is_symlink() == through_a_link
    finally:
        done.set()
        os.close(theirs)
        reader.join(DEADLINE)
        os.close(ours)
    text = got.decode().replace("\r\n", "\n")
    assert steering(text) == []
    assert lines(text.encode()) == lines(program("export", "hostile [bold]").encode())


def test_a_null_device_stays_one(program: Program, tmp_path: Path) -> None:
    device = Path(os.devnull)
    if os.geteuid() == 0:
        # Whoever may replace the system's own gets another one, in case the program does.
        device = tmp_path / "null"
        try:
            os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
            device.write_bytes(b"")
        except OSError:
            pytest.skip("no device can be made here")
    before = device.stat()
    assert program.run("export", "--out", str(device)).code == 0
    after = device.stat()
    assert (after.st_ino, after.st_rdev, stat.S_ISCHR(after.st_mode)) == (before.st_ino, before.st_rdev, True)


ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="a program that fails this would replace the system's own")


@pytest.mark.parametrize("name", [pytest.param("/dev/stdout", marks=ROOT), "/dev/fd/1", "/proc/self/fd/1", "link"])
def test_stdout_by_its_name_is_stdout(program: Program, tmp_path: Path, name: str) -> None:
    """Also when it leads to a regular file, which then must not be replaced, nor begun anew."""
    if name == "link":
        (tmp_path / "link").symlink_to("/dev/stdout")
        name = str(tmp_path / "link")
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"{}\n")
    inode = target.stat().st_ino
    before = os.lstat("/dev/stdout")
    with target.open("ab") as out:
        command = [SCRIPT, "export", "kyoto", "--out", name]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=program.environment(), check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (os.lstat("/dev/stdout").st_ino, target.stat().st_ino) == (before.st_ino, inode)
    assert lines(target.read_bytes()) == [{}, *lines(program("export", "kyoto").encode())]


def test_a_socket_is_refused(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # The path of a socket has to be short.
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("listening")
        assert "is a socket" in program.error("export", "--out", "listening")
    assert stat.S_ISSOCK(Path("listening").stat().st_mode)


def test_a_file_is_private_and_a_link_to_one_is_replaced(program: Program, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link.jsonl"
    target.write_text("mine")
    link.symlink_to(target)
    program("export", "kyoto", "--out", str(link), "--force")
    assert (target.read_text(), link.is_symlink()) == ("mine", False)
    assert stat.S_IMODE(link.stat().st_mode) == 0o600


def test_a_name_as_long_as_names_may_be(program: Program, tmp_path: Path) -> None:
    path = tmp_path / f"{'n' * 249}.jsonl"
    program("export", "kyoto", "--out", str(path))
    assert path.stat().st_size > 0


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, asyncio.CancelledError])
def test_what_fails_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    async def write() -> None:
        async with destination(str(tmp_path / "x.jsonl")) as file:
            file.write(b"half")
            raise failure

    with pytest.raises(failure):
        asyncio.run(write())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("replace", "error"), [(True, IsADirectoryError), (False, InvalidError)])
def test_a_name_that_was_taken_by_a_folder_meanwhile_leaves_nothing(
    tmp_path: Path, replace: bool, error: type[Exception]
) -> None:
    async def write() -> None:
        async with destination(str(tmp_path / "x.jsonl"), replace=replace) as file:
            file.write(b"whole")
            (tmp_path / "x.jsonl").mkdir()

    with pytest.raises(error):
        asyncio.run(write())
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    async def write() -> None:
        async with destination(str(tmp_path / "x.jsonl")) as file:
            file.write(b"ours")
            (tmp_path / "x.jsonl").write_text("precious")

    with pytest.raises(InvalidError, match="appeared during the export"):
        asyncio.run(write())
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("through_a_link", [False, True], ids=["a file", "a link to nothing"])
def test_a_file_is_replaced_only_on_demand(program: Program, tmp_path: Path, through_a_link: bool) -> None:
    path = tmp_path / "all.jsonl"
    if through_a_link:
        path.symlink_to("nowhere")
    else:
        path.write_text("precious")
    line = program.error("export", "--out", str(path))
    assert "exists. Replace it? There is no terminal to ask on (--force answers yes)" in line
    assert path.is_symlink() if through_a_link else path.read_text() == "precious"
    assert program("export", "--out", str(path), "--force").startswith("exported 7 threads")
    assert lines(path.read_bytes()) == lines(program("export").encode())


def test_a_person_is_asked_before_a_file_is_replaced(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text("precious")
    code, text = answered(program, "no\n", "export", "--out", str(path))
    assert (code, path.read_text()) == (2, "precious")
    assert "Replace it? [y/N]" in text
    assert "nothing was changed" in text
    code, text = answered(program, "y\n", "export", "--out", str(path))
    assert (code, "exported 7 threads" in text) == (0, True)
    assert path.read_text() != "precious"
