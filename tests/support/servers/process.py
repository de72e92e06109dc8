"""Starting a server's process, waiting for its answer, and ending it together with everything it started.

A server must not outlive the tests that started it, not even when they are killed: on Linux the kernel kills it with
its parent. The kernel takes the *thread* that started it for the parent, so one thread that lives as long as the
process starts them all.
"""

from __future__ import annotations

import ctypes
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypedDict

from tests.support.servers.account import unprivileged

START_DEADLINE = 60.0
STOP_DEADLINE = 20.0
_PORTS = range(20_000, 32_000)
"""Below what the system hands to outgoing connections: nobody takes the port of a server that is down for a moment."""
_PR_SET_PDEATHSIG = 1
_PAUSE = 0.01


class StartFailed(Exception):
    """A server ended or kept silent instead of answering; carries the end of its log."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class _Starter:
    """The thread that starts every server."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
        self._orders = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pid = 0

    def start(self, make: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                threading.Thread(target=self._serve, name="perdure-test-servers", daemon=True).start()
        made: Future[subprocess.Popen[bytes]] = Future()
        self._orders.put((make, made))
        return made.result()

    def _serve(self) -> None:
        while True:
            make, made = self._orders.get()
            try:
                made.set_result(make())
            except BaseException as error:  # noqa: BLE001 - it is raised where the server was asked for
                made.set_exception(error)


_STARTER = _Starter()
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def launch(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a server in its folder, as an account without privileges; what it says goes to `server.log` there."""

    def make() -> subprocess.Popen[bytes]:
        with (folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                list(command),
                cwd=folder,
                env=clean_environment(folder, environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, on a library loaded beforehand
                **_identity(),
            )

    return _STARTER.start(make)


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[str | int]


def _identity() -> _Identity:
    account = unprivileged()
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


def clean_environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """No setting of the caller's shell reaches a server."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8", "TZ": "UTC", **more}


def prepare(command: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: bytes = b"") -> None:
    """Run a program to its end, as the account that the server runs as."""
    done = subprocess.run(
        list(command),
        check=False,
        cwd=folder,
        env=clean_environment(folder, environment),
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **_identity(),
    )
    if done.returncode != 0:
        raise StartFailed(f"{command[0]} failed: {done.stdout.decode(errors='replace')[-1500:]}")


def wait_for_answer(process: subprocess.Popen[bytes], answers: Callable[[], bool], log: Path) -> None:
    """Return when the server answers; raise with the end of its log when it ends or keeps silent."""
    deadline = time.monotonic() + START_DEADLINE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StartFailed(f"ended with status {process.returncode}: {_tail(log)}")
        try:
            if answers():
                return
        except OSError:
            pass
        time.sleep(_PAUSE)
    raise StartFailed(f"no answer within {START_DEADLINE:.0f} s: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-1500:].strip() or "it said nothing"


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """ReadOp the server to end; one that does not is killed."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the server and to all its children, as a lost machine; returns when none of them is left."""
    if process.poll() is not None:
        return
    # A stopped parent cannot fork another one behind our back; it stops a moment after it was told to.
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + STOP_DEADLINE
    while _goes_on(process.pid) and time.monotonic() < deadline:
        time.sleep(_PAUSE / 10)
    family = [process.pid, *_descendants(process.pid)]
    for pid in family:
        _signal(pid, signal.SIGKILL)
    process.wait()
    while any(map(_alive, family[1:])) and time.monotonic() < deadline:
        time.sleep(_PAUSE)


def _signal(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _status(int(entry.name))
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    descendants = list(parents.get(pid, ()))
    for child in descendants:
        descendants += parents.get(child, ())
    return descendants


def _status(pid: int) -> list[str]:
    """State, parent and the rest of what the kernel says of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return []


def _alive(pid: int) -> bool:
    fields = _status(pid)
    return bool(fields) and fields[0] not in "ZX"


def _goes_on(pid: int) -> bool:
    fields = _status(pid)
    return bool(fields) and fields[0] not in "TtZX"
