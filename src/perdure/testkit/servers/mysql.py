"""MariaDB or MySQL for tests: the one on this machine, or MariaDB from the system's packages.

Both kinds write every commit to the operating system before they acknowledge it, so a killed server loses nothing;
only the durable one also makes the disk sync.
"""

from __future__ import annotations

import signal
from pathlib import Path

from perdure.testkit.servers.asking import mysql_serves
from perdure.testkit.servers.find import Programs, Wanted, find
from perdure.testkit.servers.process import StartFailed, prepare

WANTED = Wanted("mysql", programs=("mariadbd", "mysqld"), package="mariadb-server-core")
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
_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
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
        self.programs: Programs = find(WANTED)
        self._is_mariadb = "MariaDB" in self.programs.version()
        self._settings = (*_SETTINGS, *(_DURABLE if durable else _QUICK))

    def make(self, folder: Path) -> None:
        """The system tables, a superuser without a password, and an empty database."""
        data = folder / "data"
        if self._is_mariadb:
            tables = "\n".join((self._share / name).read_text() for name in _SYSTEM_TABLES)
            told = f"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n{tables}\n{_ACCOUNT}"
            prepare(["mkdir", str(data)], folder, {})
            prepare(
                [*self._base(folder), "--bootstrap", "--skip-grant-tables"],
                folder,
                self.programs.environment,
                told.encode(),
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
        told = [self.programs.main, "--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder}"]
        if self.programs.root is not None:
            usr = self.programs.root / "usr"
            told += [f"--basedir={usr}", f"--lc-messages-dir={self._share}", f"--plugin-dir={usr / 'lib/mysql/plugin'}"]
        return told

    @property
    def _share(self) -> Path:
        """The folder with the system tables' definitions."""
        prefix = self.programs.folder.parent
        for folder in (
            prefix / "share/mysql",
            prefix / "share/mariadb",
            Path("/usr/share/mysql"),
            Path("/usr/share/mariadb"),
        ):
            if (folder / _SYSTEM_TABLES[0]).exists():
                return folder
        raise StartFailed(f"{_SYSTEM_TABLES[0]} is neither below {prefix} nor below /usr/share")
