"""A server as tests hold it: where it is, how to kill it, how to bring it back on the same data.

A `Recipe` knows one kind of server: how to make its data, how to start it, when it answers. `LocalServer` does the
rest alike for all of them. A server that somebody else runs (`ForeignServer`) has an address and nothing more.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from tests.support.servers.account import temporary_folder
from tests.support.servers.find import Programs
from tests.support.servers.process import START_DEADLINE, StartFailed, end, free_port, kill, launch, wait_for_answer

_ATTEMPTS = 3


class Server(ABC):
    """A database server for tests."""

    name: str
    url: str
    """What our engine opens: an empty database, and an account that may do everything in it."""
    version: str
    """What the server says it is."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The server's process; None while it is down."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL to the server and its children. Its data stay."""

    @abstractmethod
    def stop(self) -> None:
        """End it in good order. Its data stay."""

    @abstractmethod
    def restart(self) -> None:
        """Bring it (back) up on the same port and data; returns when it answers."""

    @abstractmethod
    def dispose(self) -> None:
        """End it and remove its data, if it is ours."""


class Recipe(Protocol):
    """How one kind of server is made, started and asked."""

    name: str
    programs: Programs
    stop_signal: signal.Signals

    def make(self, folder: Path) -> None:
        """Make the data of a new server."""
        ...

    def command(self, folder: Path, port: int) -> list[str]:
        """What starts it."""
        ...

    def answers(self, port: int) -> bool:
        """Does it serve clients now? May raise OSError."""
        ...

    def url(self, port: int) -> str:
        """Where clients find it."""
        ...


class LocalServer(Server):
    """A private server of this process on a free port, with data of its own in a temporary folder."""

    def __init__(self, recipe: Recipe) -> None:
        self.name = recipe.name
        self.version = recipe.programs.version()
        self.folder = temporary_folder(recipe.name)
        self._recipe = recipe
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            recipe.make(self.folder)
            self.port = self._first_start()
        except BaseException:
            self.dispose()
            raise
        self.url = recipe.url(self.port)

    @property
    def pid(self) -> int | None:
        """The server's process; None while it is down."""
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """SIGKILL to the server and its children. Its data stay."""
        if self._process is not None:
            kill(self._process)
            self._process = None

    def stop(self) -> None:
        """End it in good order. Its data stay."""
        if self._process is not None:
            end(self._process, self._recipe.stop_signal)
            self._process = None

    def restart(self) -> None:
        """Bring it (back) up on the same port and data; returns when it answers."""
        self.stop()
        deadline = time.monotonic() + START_DEADLINE
        while True:
            try:
                self._start(self.port)
                return
            except StartFailed as failed:
                # A busy system may not have let go of the port yet.
                if "in use" not in str(failed) or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def dispose(self) -> None:
        """End it and remove its data; in a forked child nothing happens, for the server is its parent's."""
        if self._owner == os.getpid():
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _first_start(self) -> int:
        """Start on a free port, which somebody may take between the look and the start."""
        for attempt in range(_ATTEMPTS):
            port = free_port()
            try:
                self._start(port)
            except StartFailed:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return port
        raise StartFailed("never tried")

    def _start(self, port: int) -> None:
        recipe = self._recipe
        self._process = launch(recipe.command(self.folder, port), self.folder, recipe.programs.environment)
        try:
            wait_for_answer(self._process, lambda: recipe.answers(port), self.folder / "server.log")
        except BaseException:
            self.kill()
            raise


class ForeignServer(Server):
    """A server that an environment variable names. It is somebody's: tests use it, and never end it."""

    def __init__(self, name: str, url: str, variable: str) -> None:
        self.name = name
        self.url = url
        self.version = f"the one in {variable}"
        self._variable = variable

    @property
    def pid(self) -> int | None:
        """Unknown."""
        return None

    def kill(self) -> None:
        """Refused."""
        raise self._refusal("killed")

    def stop(self) -> None:
        """Refused."""
        raise self._refusal("stopped")

    def restart(self) -> None:
        """Refused."""
        raise self._refusal("restarted")

    def dispose(self) -> None:
        """Nothing of it is ours."""

    def _refusal(self, what: str) -> PermissionError:
        return PermissionError(
            f"the {self.name} server in {self._variable} is not ours and cannot be {what}: "
            "unset the variable and the tests start one of their own"
        )
