"""MariaDB or MySQL for tests: the one on this machine, or MariaDB from the system's packages.

Both kinds write every commit to the operating system before they acknowledge it, so a killed server loses nothing;
only the durable one also makes the disk sync.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.servers.asking import mysql_serves
from tests.support.servers.find import Programs, Source, find
from tests.support.servers.process import StartFailed, prepare

SOURCE = Source("mysql", programs=("mariadbd", "mysqld"), package="mariadb-server-core")
DATABASE = "perdure"
_SETTINGS = (
    "--bind-address=127.0.0.1",
    "--max-connections=200",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=64M",
    "--performance-schema=OFF",
)
_QUICK = ("--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-doublewrite=0")
_DURABLE = ("--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1")
_SYSTEM_TABLES = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")
_ACCOUNT = f"""
CREATE DATABASE {DATABASE};
FLUSH PRIVILEGES;
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
"""


class MysqlRecipe:
    """How MariaDB and MySQL are made and started."""

    name = "mysql"
    stop_signal = signal.SIGTERM

    def __init__(self, *, durable: bool) -> None:
        self.programs: Programs = find(SOURCE)
        self._is_mariadb = "MariaDB" in self.programs.version()
        self._settings = (*_SETTINGS, *(_DURABLE if durable else _QUICK))

    def make(self, folder: Path) -> None:
        """The system tables, a superuser without a password, and an empty database."""
        data = folder / "data"
        if self._is_mariadb:
            tables = "\n".join(script.read_text(encoding="utf-8") for script in system_tables(self._prefix))
            statements = f"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n{tables}\n{_ACCOUNT}"
            prepare(["mkdir", str(data)], folder, {})
            prepare(
                [*self._base(folder), "--bootstrap", "--skip-grant-tables"],
                folder,
                self.programs.environment,
                statements.encode(),
            )
        else:
            script = folder / "account.sql"
            script.write_text(_ACCOUNT)
            script.chmod(0o644)
            initialise = ["--initialize-insecure", f"--init-file={script}"]
            prepare([*self._base(folder), *initialise], folder, self.programs.environment)

    def command(self, folder: Path, port: int) -> list[str]:
        """What starts it."""
        where = [f"--port={port}", f"--socket={folder / 's'}", f"--pid-file={folder / 'pid'}"]
        return [*self._base(folder), *where, *self._settings]

    def answers(self, port: int) -> bool:
        """Does it greet?"""
        return mysql_serves(port)

    def url(self, port: int) -> str:
        """Where clients find it."""
        return f"mysql://root@127.0.0.1:{port}/{DATABASE}"

    def _base(self, folder: Path) -> list[str]:
        command = [self.programs.main, "--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder}"]
        if self.programs.root is not None:
            usr = self.programs.root / "usr"
            share = system_tables(self._prefix)[0].parent
            command += [f"--basedir={usr}", f"--lc-messages-dir={share}", f"--plugin-dir={usr / 'lib/mysql/plugin'}"]
        return command

    @property
    def _prefix(self) -> Path:
        return self.programs.folder.parent


def system_tables(prefix: Path, system: Path = Path("/usr")) -> tuple[Path, ...]:
    """The scripts that define MariaDB's system tables, below the server's prefix or else the system's.

    Up to 10.11 they are called `mysql_….sql` and lie in `share/mysql` (Debian 12); since 11 `mariadb_….sql`, in
    `share/mariadb` (Debian 13).
    """
    for root in (prefix, system):
        for folder in (root / "share/mysql", root / "share/mariadb"):
            for maker in ("mariadb", "mysql"):
                scripts = tuple(folder / f"{maker}_{name}" for name in _SYSTEM_TABLES)
                if all(script.exists() for script in scripts):
                    return scripts
    raise StartFailed(f"the scripts of MariaDB's system tables are neither below {prefix} nor below {system}")
