"""The least that does the job on PostgreSQL: asyncpg, prepared, one statement and one round trip per commit.

One writable CTE stores what a commit stores: the messages, the run's step, the thread's pointers and the documents, if
any; nothing is checked and nothing but primary keys is indexed. A second shape, `MESSAGES_ONLY`, is a lone insert of
the two messages: less than a commit, shown for scale. Bodies are `bytea` in line and uncompressed, which was measured
to be the fastest to append and to load (`drivers.py`). The concurrent baseline is 16 connections, each used by one
client at a time, each commit a statement of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import asyncpg
import msgspec
from workload import RUN_RECORD, Commit, Json

DDL = """
create table messages(thread text collate "C" not null, seq bigint not null, body bytea not null,
                      primary key(thread, seq));
create table runs(id text collate "C" primary key, body bytea not null);
create table threads(id text collate "C" primary key, version bigint not null, updated_at bigint not null,
                     created_at bigint, title text, active_run text, open_run text, latest_run text, body bytea);
create table state(thread text collate "C" not null, name text collate "C" not null, body bytea not null,
                   primary key(thread, name));
"""
IN_LINE = """
alter table messages alter body set storage main;
alter table messages set (toast_tuple_target=8160);
"""
_POINTERS = """
    point as (update threads set version = $2, updated_at = $3, active_run = $1, open_run = $1, latest_run = $1
              where id = $1),
    step as (update runs set body = $4 where id = $1)"""
_MESSAGES = "insert into messages select $1, n, b from unnest($5::bigint[], $6::bytea[]) as u(n, b)"
COMMIT = f"with {_POINTERS} {_MESSAGES}"
_DOCUMENTS = """
    documents as (insert into state select $1, n, b from unnest($7::text[], $8::bytea[]) as d(n, b)
                  on conflict (thread, name) do update set body = excluded.body)"""
COMMIT_STATE = f"with {_POINTERS}, {_DOCUMENTS} {_MESSAGES}"
MESSAGES_ONLY = (
    "insert into messages(thread, seq, body) select $1, n, b from unnest($2::bigint[], $3::bytea[]) as u(n, b)"
)

_serial = iter(range(1, 2**62))


def bodies(messages: Iterable[Json]) -> list[bytes]:
    """Messages as JSON, each with an id as long as the ones agents use."""
    return [msgspec.json.encode({"id": f"msg_{next(_serial):026d}", **message}) for message in messages]


class Prepared(NamedTuple):
    """One commit as bytes: nothing is left to encode while the clock runs."""

    bodies: list[bytes]
    run: bytes
    names: list[str]
    documents: list[bytes]

    def arguments(self, thread: str, seq: int) -> tuple[Any, ...]:
        """What the commit's statement is given after `seq` messages."""
        count = len(self.bodies)
        seqs = list(range(seq + 1, seq + count + 1))
        head = (thread, seq + count, int(time.time() * 1000), self.run, seqs, self.bodies)
        return (*head, self.names, self.documents) if self.names else head


def prepare(commit: Commit) -> Prepared:
    documents = [msgspec.json.encode(value) for value in commit.state.values()]
    return Prepared(bodies(commit.messages), msgspec.json.encode(RUN_RECORD), list(commit.state), documents)


class RawPostgres:
    """One connection, one statement a commit."""

    name = "raw asyncpg, one statement"
    grows = False
    prepare = staticmethod(prepare)

    def __init__(self, connections: list[Any]) -> None:
        self.connections = connections
        self.idle: asyncio.LifoQueue[Any] = asyncio.LifoQueue()
        for connection in connections:
            self.idle.put_nowait(connection)
        self.heads: dict[str, int] = {}

    @classmethod
    async def open(cls, url: str, schema: str, *, size: int = 1, storage: str = IN_LINE) -> Self:
        """`size` connections to tables of its own, held open: a pool that resets them would add a round trip."""
        settings = {"search_path": schema}
        connections = [await asyncpg.connect(url, server_settings=settings) for _ in range(size)]
        await connections[0].execute(f"create schema {schema};" + DDL + storage)
        return cls(connections)

    async def create(self, thread: str, first: Commit) -> None:
        connection, messages = self.connections[0], bodies(first.messages)
        pointers = "insert into threads(id, version, updated_at) values($1, $2, 0)"
        await connection.execute(pointers, thread, len(messages))
        await connection.execute("insert into runs values($1, '')", thread)
        await connection.execute(MESSAGES_ONLY, thread, list(range(1, len(messages) + 1)), messages)
        self.heads[thread] = len(messages)

    async def commit(self, thread: str, commit: Prepared) -> None:
        seq = self.heads[thread]
        await self.connections[0].execute(COMMIT_STATE if commit.names else COMMIT, *commit.arguments(thread, seq))
        self.heads[thread] = seq + len(commit.bodies)

    async def load(self, thread: str) -> list[Any]:
        rows = await self.connections[0].fetch("select body from messages where thread = $1 order by seq", thread)
        return [_decode(body) for (body,) in rows]

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()


_decode = msgspec.json.Decoder().decode


class RawPostgresPool(RawPostgres):
    """Many clients over 16 connections; whoever finds none idle waits."""

    name = "raw asyncpg, one statement, 16 connections"

    async def commit(self, thread: str, commit: Prepared) -> None:
        seq = self.heads[thread]
        connection = await self.idle.get()
        try:
            await connection.execute(COMMIT_STATE if commit.names else COMMIT, *commit.arguments(thread, seq))
        finally:
            self.idle.put_nowait(connection)
        self.heads[thread] = seq + len(commit.bodies)


class RawMessagesOnly(RawPostgres):
    """A lone insert of the messages: no run, no pointers."""

    name = "raw asyncpg, messages only"

    async def commit(self, thread: str, commit: Prepared) -> None:
        seq = self.heads[thread]
        count = len(commit.bodies)
        seqs = list(range(seq + 1, seq + count + 1))
        await self.connections[0].execute(MESSAGES_ONLY, thread, seqs, commit.bodies)
        self.heads[thread] = seq + count


ALL_ROWS = """
alter table messages add id text collate "C";
create unique index on messages(id, thread);
create index on threads(updated_at, id);
create index on threads(created_at, id);
create table branches(thread text collate "C" not null, branch bigint not null, head text, head_seq bigint,
                      length bigint, primary key(thread, branch));
create table heads(thread text collate "C" primary key, last bigint not null);
alter table threads set (fillfactor=80);
alter table runs set (fillfactor=80);
alter table branches set (fillfactor=80);
alter table heads set (fillfactor=70);
"""
_ROWS = """
    branch as (update branches set head = ($7::text[])[cardinality($7::text[])], head_seq = $2, length = $2
               where thread = $1 and branch = 0),
    head as (update heads set last = $2 where thread = $1)"""
_WITH_IDS = "insert into messages select $1, n, b, i from unnest($5::bigint[], $6::bytea[], $7::text[]) as u(n, b, i)"
_ALL = f"with {_POINTERS}, {_ROWS} {_WITH_IDS}"


class RawAllRows(RawPostgres):
    """Every row and every index that a Perdure commit touches, still in one statement and unchecked."""

    name = "raw asyncpg, all rows and indexes of a commit"

    @classmethod
    async def open(cls, url: str, schema: str, *, size: int = 1, storage: str = IN_LINE) -> Self:
        return await super().open(url, schema, size=size, storage=storage + ALL_ROWS)

    async def create(self, thread: str, first: Commit) -> None:
        await super().create(thread, first)
        connection = self.connections[0]
        await connection.execute("insert into branches(thread, branch) values($1, 0)", thread)
        await connection.execute("insert into heads values($1, 0)", thread)

    async def commit(self, thread: str, commit: Prepared) -> None:
        seq = self.heads[thread]
        ids = [body[7:37].decode() for body in commit.bodies]
        await self.connections[0].execute(_ALL, *commit.arguments(thread, seq), ids)
        self.heads[thread] = seq + len(commit.bodies)
