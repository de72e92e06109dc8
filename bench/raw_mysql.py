"""The least that does the job on MySQL and MariaDB: asyncmy, one transaction a commit, rows of several in one insert.

BEGIN, the messages, the run's step, the thread's pointers, the documents if any, COMMIT: each a command of its own, as
a program with this driver writes it; nothing is checked and nothing but primary keys is indexed.
"""

from __future__ import annotations

import time
from typing import Any, Self
from urllib.parse import urlsplit

import asyncmy
import msgspec
from raw_postgres import Prepared, bodies, prepare
from workload import Commit

_KEY = "varchar(128) character set ascii collate ascii_bin not null"
DDL = (
    f"create table messages(thread {_KEY}, seq bigint not null, body longblob not null, primary key(thread, seq))",
    f"create table runs(id {_KEY}, body longblob not null, primary key(id))",
    f"""create table threads(id {_KEY}, version bigint not null, updated_at bigint not null, created_at bigint,
        title text, active_run varchar(128), open_run varchar(128), latest_run varchar(128), body longblob,
        primary key(id))""",
    f"create table state(thread {_KEY}, name {_KEY}, body longblob not null, primary key(thread, name))",
)
INSERT = "insert into messages values "
STEP = "update runs set body=%s where id=%s"
POINT = "update threads set version=%s, updated_at=%s, active_run=%s, open_run=%s, latest_run=%s where id=%s"
DOCUMENT = "insert into state values {} on duplicate key update body=values(body)"
_decode = msgspec.json.Decoder().decode


class RawMysql:
    """One connection, one transaction a commit."""

    name = "raw asyncmy, one transaction"
    grows = False
    prepare = staticmethod(prepare)

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.heads: dict[str, int] = {}

    @classmethod
    async def open(cls, url: str) -> Self:
        connection = await connect(url)
        async with connection.cursor() as cursor:
            for statement in DDL:
                await cursor.execute(statement)
        return cls(connection)

    async def create(self, thread: str, first: Commit) -> None:
        messages = bodies(first.messages)
        async with self.connection.cursor() as cursor:
            await cursor.execute("begin")
            await cursor.execute(
                "insert into threads(id, version, updated_at) values(%s, %s, 0)", (thread, len(messages))
            )
            await cursor.execute("insert into runs values(%s, '')", (thread,))
            for at in range(0, len(messages), 500):
                await _insert(cursor, thread, at, messages[at : at + 500])
            await cursor.execute("commit")
        self.heads[thread] = len(messages)

    async def commit(self, thread: str, commit: Prepared) -> None:
        seq = self.heads[thread]
        head = seq + len(commit.bodies)
        async with self.connection.cursor() as cursor:
            await cursor.execute("begin")
            await _insert(cursor, thread, seq, commit.bodies)
            await cursor.execute(STEP, (commit.run, thread))
            await cursor.execute(POINT, (head, int(time.time() * 1000), thread, thread, thread, thread))
            if commit.names:
                pairs = zip(commit.names, commit.documents, strict=True)
                values = [value for name, body in pairs for value in (thread, name, body)]
                await cursor.execute(DOCUMENT.format(_rows(len(commit.names))), values)
            await cursor.execute("commit")
        self.heads[thread] = head

    async def load(self, thread: str) -> list[Any]:
        async with self.connection.cursor() as cursor:
            await cursor.execute("select body from messages where thread=%s order by seq", (thread,))
            return [_decode(body) for (body,) in await cursor.fetchall()]

    async def close(self) -> None:
        await self.connection.ensure_closed()


def _rows(count: int) -> str:
    return ",".join(["(%s,%s,%s)"] * count)


async def _insert(cursor: Any, thread: str, seq: int, messages: list[bytes]) -> None:
    values = [value for n, body in enumerate(messages, seq + 1) for value in (thread, n, body)]
    await cursor.execute(INSERT + _rows(len(messages)), values)


async def connect(url: str) -> Any:
    """A connection that commits each statement by itself until told otherwise."""
    parts = urlsplit(url)
    return await asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username or "",
        password=parts.password or "",
        db=parts.path.strip("/"),
        autocommit=True,
    )
