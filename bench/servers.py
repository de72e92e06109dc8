"""The servers of the benchmark: private, on free ports, syncing every commit, with room enough that no checkpoint or
eviction falls into a measurement; and an empty database for each subject, so that none pays for another's rows.

A server named by PERDURE_TEST_POSTGRES_URL (or _MYSQL_, _REDIS_) is used instead; its settings are then its owner's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import raw_mysql

# A benchmark is run as a file: its own folder is on the path, the repository is not.
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from tests.support.servers import Server, server
from tests.support.servers.local import LocalServer
from tests.support.servers.mysql import MysqlRecipe
from tests.support.servers.postgres import PostgresRecipe
from tests.support.servers.redis import RedisRecipe


class RoomyPostgres(PostgresRecipe):
    """More memory and more log than a test needs, and the two libraries that the profile asks for."""

    def command(self, folder: Path, port: int) -> list[str]:
        more = {
            "shared_buffers": "512MB",
            "max_wal_size": "8GB",
            "checkpoint_timeout": "1h",
            "shared_preload_libraries": "pg_stat_statements,auto_explain",
        }
        return [*super().command(folder, port), *(part for n, v in more.items() for part in ("-c", f"{n}={v}"))]


class RoomyMysql(MysqlRecipe):
    """The same for MariaDB and MySQL."""

    def command(self, folder: Path, port: int) -> list[str]:
        more = ["--innodb-buffer-pool-size=512M", "--innodb-log-file-size=512M", "--skip-log-bin"]
        return [*super().command(folder, port), *more]


_RECIPES = {
    "postgres": lambda: RoomyPostgres(durable=True),
    "mysql": lambda: RoomyMysql(durable=True),
    "redis": lambda: RedisRecipe(durable=True, more=("--auto-aof-rewrite-percentage", "0")),
}


def started(name: str) -> Server:
    """A server that syncs; the caller disposes of it."""
    if os.environ.get(f"PERDURE_TEST_{name.upper()}_URL"):
        return server(name, durable=True)
    return LocalServer(_RECIPES[name]())


def at_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


async def postgres_database(admin: Any, url: str, name: str) -> str:
    """A new, empty database; its URL."""
    await admin.execute(f'drop database if exists "{name}" with (force)')
    await admin.execute(f'create database "{name}"')
    return at_database(url, name)


async def mysql_database(url: str, name: str) -> str:
    """A new, empty database; its URL."""
    connection = await raw_mysql.connect(url)
    async with connection.cursor() as cursor:
        await cursor.execute("set sql_notes = 0")  # that there was none before is no news
        await cursor.execute(f"drop database if exists `{name}`")
        await cursor.execute(f"create database `{name}`")
    await connection.ensure_closed()
    return at_database(url, name)


async def postgres_settings(url: str) -> dict[str, str]:
    """What the server itself says about durability."""
    connection = await asyncpg.connect(url)
    names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
    found = {name: await connection.fetchval(f"show {name}") for name in names}
    await connection.close()
    return found
