"""Several servers that belong together: killed, stopped and restarted as a whole; members can be had one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tests.support.servers.local import LocalServer, Server
from tests.support.servers.process import START_DEADLINE, StartFailed

_PAUSE = 0.02


class ServerSet(Server):
    """Servers that serve one URL together."""

    def __init__(self, name: str, url: str, members: list[LocalServer], serves: Callable[[], bool]) -> None:
        self.name = name
        self.url = url
        self.version = members[0].version
        self.members = members
        self._serves = serves

    @property
    def pid(self) -> int | None:
        """The first member's."""
        return self.members[0].pid

    def kill(self) -> None:
        """Kill every member."""
        for member in self.members:
            member.kill()

    def stop(self) -> None:
        """Stop every member."""
        for member in self.members:
            member.stop()

    def restart(self) -> None:
        """Restart every member; returns when they serve together again."""
        for member in self.members:
            member.restart()
        wait_until(self._serves, f"{self.name} did not come back")

    def dispose(self) -> None:
        """End every member and remove its data."""
        dispose_all(self.members)


def dispose_all(members: Sequence[LocalServer]) -> None:
    """End some servers and remove their data."""
    for member in members:
        member.dispose()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds; raise `StartFailed` with `what` when it never does."""
    deadline = time.monotonic() + START_DEADLINE
    while not _holds(condition):
        if time.monotonic() > deadline:
            raise StartFailed(what)
        time.sleep(_PAUSE)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except OSError:
        return False  # a server that does not answer yet
