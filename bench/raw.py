"""The least that does the job: raw `sqlite3`, prepared bytes, WAL, synchronous=FULL, one transaction per commit.

These are the baselines of every ratio, so each is short enough to check by eye. `write` is the whole commit; (a) runs
it in the calling thread, (b) and (c) hand it to one writer thread, which takes whatever is waiting as one transaction:
with one client that is a plain hop, with 64 it is group commit; (d) and (e) select and decode on one reader thread.
Other shapes (messages WITHOUT ROWID, one multi-row insert, two single ones) were measured: slower or a tie. Commits are
compared with tables that have no listing index, which is the harder baseline; one case shows what that index costs raw.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from workload import RUN_RECORD, Commit, Json

DDL = """
create table messages(thread text not null, seq integer not null, body text not null, primary key(thread, seq));
create table runs(id text primary key, body text not null) without rowid;
create table threads(id text primary key, version integer not null, updated_at integer not null, created_at integer,
                     title text, active_run text, open_run text, latest_run text, body text) without rowid;
create table state(thread text not null, name text not null, body text not null,
                   primary key(thread, name)) without rowid;
"""
LISTING_INDEX = "create index threads_by_update on threads(updated_at desc, id)"
INSERT = "insert into messages values(?,?,?)"
STEP = "update runs set body=? where id=?"
POINT = "update threads set version=?, updated_at=?, active_run=?, open_run=?, latest_run=? where id=?"
DOCUMENT = "insert into state values(?,?,?) on conflict do update set body=excluded.body"


class Prepared(NamedTuple):
    """One commit as bytes: nothing is left to encode while the clock runs."""

    bodies: list[str]
    run: str
    documents: list[tuple[str, str]]


def prepare(commit: Commit) -> Prepared:
    documents = [(name, msgspec.json.encode(value).decode()) for name, value in commit.state.items()]
    return Prepared(bodies(commit.messages), msgspec.json.encode(RUN_RECORD).decode(), documents)


_serial = iter(range(1, 2**62))


def bodies(messages: Iterable[Json]) -> list[str]:
    """Messages as JSON, each with an id as long as the ones agents use."""
    return [msgspec.json.encode({"id": f"msg_{next(_serial):026d}", **message}).decode() for message in messages]


def connect(path: Path, page_size: int, *, listing: bool = False) -> sqlite3.Connection:
    conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    conn.execute(f"pragma page_size={page_size}")
    conn.execute("pragma journal_mode=wal")
    conn.execute("pragma synchronous=full")
    conn.executescript("pragma busy_timeout=5000;" + DDL + (LISTING_INDEX if listing else ""))
    return conn


def write(conn: sqlite3.Connection, batch: list[tuple[str, int, Prepared]]) -> None:
    """One transaction, one fsync: messages, the run's step, the thread's pointers, documents if any."""
    now = int(time.time() * 1000)
    conn.execute("begin immediate")
    for thread, seq, commit in batch:
        conn.executemany(INSERT, [(thread, seq + n, body) for n, body in enumerate(commit.bodies, 1)])
        conn.execute(STEP, (commit.run, thread))
        conn.execute(POINT, (seq + len(commit.bodies), now, thread, thread, thread, thread))
        if commit.documents:
            conn.executemany(DOCUMENT, [(thread, name, body) for name, body in commit.documents])
    conn.execute("commit")


class Raw:
    """(a) in the calling thread."""

    name = "raw sqlite3, inline"
    grows = False
    prepare = staticmethod(prepare)

    def __init__(self, path: Path, page_size: int, *, listing: bool = False) -> None:
        self.path = path
        self.conn = connect(path, page_size, listing=listing)
        self.heads: dict[str, int] = {}

    async def create(self, thread: str, first: Commit) -> None:
        messages = bodies(first.messages)
        self.conn.execute("begin immediate")
        self.conn.execute("insert into threads(id, version, updated_at) values(?,?,0)", (thread, len(messages)))
        self.conn.execute("insert into runs values(?,'')", (thread,))
        self.conn.executemany(INSERT, [(thread, n, body) for n, body in enumerate(messages, 1)])
        self.conn.execute("commit")
        self.heads[thread] = len(messages)

    async def commit(self, thread: str, commit: Prepared) -> None:
        seq = self.heads[thread]
        write(self.conn, [(thread, seq, commit)])
        self.heads[thread] = seq + len(commit.bodies)

    async def load(self, thread: str) -> list[Any]:
        return self.conn.execute("select body from messages where thread=?", (thread,)).fetchall()

    async def close(self) -> None:
        self.conn.close()


class RawThread(Raw):
    """(b), (c) through one writer thread; whatever is waiting shares one transaction and one fsync."""

    name = "raw sqlite3, writer thread"

    def __init__(self, path: Path, page_size: int, *, listing: bool = False) -> None:
        super().__init__(path, page_size, listing=listing)
        self.loop = asyncio.get_running_loop()
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            batch = [self.queue.get()]
            while not self.queue.empty():
                batch.append(self.queue.get_nowait())
            if batch[-1] is None:
                return
            write(self.conn, [work for work, _ in batch])
            self.loop.call_soon_threadsafe(_resolve, [future for _, future in batch])

    async def commit(self, thread: str, commit: Prepared) -> None:
        seq = self.heads[thread]
        future: asyncio.Future[None] = self.loop.create_future()
        self.queue.put(((thread, seq, commit), future))
        await future
        self.heads[thread] = seq + len(commit.bodies)

    async def close(self) -> None:
        self.queue.put(None)
        self.thread.join()
        await super().close()


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


class RawReader:
    """(d), (e) select and decode: on one reader thread with its own connection, or inline on the same."""

    def __init__(self, path: Path) -> None:
        self.conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.decode = msgspec.json.Decoder().decode
        self.loop = asyncio.get_running_loop()
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (job := self.queue.get()) is not None:
            call, args, future = job
            self.loop.call_soon_threadsafe(future.set_result, call(*args))

    def on_thread(self, call: Callable[..., list[Any]], *args: Any) -> asyncio.Future[list[Any]]:
        future = self.loop.create_future()
        self.queue.put((call, args, future))
        return future

    def load(self, thread: str) -> list[Any]:
        rows = self.conn.execute("select body from messages where thread=? order by seq", (thread,))
        return [self.decode(body) for (body,) in rows]

    def newest(self, thread: str, count: int) -> list[Any]:
        sql = "select body from messages where thread=? order by seq desc limit ?"
        return [self.decode(body) for (body,) in self.conn.execute(sql, (thread, count))]

    def list_threads(self, count: int) -> list[Any]:
        sql = """select id, version, updated_at, created_at, title, active_run, open_run, latest_run, body from threads
                 order by updated_at desc, id limit ?"""
        return [(*row, self.decode(body)) for *row, body in self.conn.execute(sql, (count,))]

    def close(self) -> None:
        self.queue.put(None)
        self.thread.join()
        self.conn.close()
