"""PgBouncer for tests, in transaction mode before a PostgreSQL server: what many users have between them and theirs.

Found on this machine or fetched from the system's packages.
"""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
from tests.support.servers.asking import postgres_serves
from tests.support.servers.find import Programs, Source, find

from perdure.kernel.url import Host, parse_url

SOURCE = Source("pgbouncer", programs=("pgbouncer",), package="pgbouncer")
_CONFIGURATION = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""


class PgbouncerRecipe:
    """How PgBouncer is put before a server."""

    name = "pgbouncer"
    stop_signal = signal.SIGINT

    def __init__(self, server_url: str) -> None:
        self.programs: Programs = find(SOURCE)
        self._server = parse_url(server_url)

    def make(self, folder: Path) -> None:
        """Its settings and the account it lets in."""
        server = self._server.hosts[0]
        configuration = _CONFIGURATION.format(host=server.name, port=server.port or 5432, folder=folder)
        (folder / "users.txt").write_text(f'"{self._user}" "{self._server.password}"\n', encoding="utf-8")
        (folder / "pgbouncer.ini").write_text(configuration, encoding="utf-8")
        for file in ("users.txt", "pgbouncer.ini"):
            (folder / file).chmod(0o644)

    def command(self, folder: Path, port: int) -> list[str]:
        """What starts it; the port has no option, so it stands in the file."""
        settings = folder / "pgbouncer.ini"
        lines = [
            line for line in settings.read_text(encoding="utf-8").splitlines() if not line.startswith("listen_port")
        ]
        settings.write_text("\n".join([*lines, f"listen_port = {port}", ""]), encoding="utf-8")
        return [self.programs.main, str(settings)]

    def answers(self, port: int) -> bool:
        """Does it let the user through?"""
        return postgres_serves(port, self._user, self._server.path)

    def url(self, port: int) -> str:
        """The server's URL, by way of the pooler."""
        return msgspec.structs.replace(self._server, hosts=(Host("127.0.0.1", port),)).build()

    @property
    def _user(self) -> str:
        return self._server.user or "postgres"
