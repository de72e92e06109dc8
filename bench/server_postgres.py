"""PostgreSQL: Perdure beside raw asyncpg, SQLAlchemySession and AsyncPostgresSaver on one server that syncs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import servers_cases as cases
from commits import Crowd, fresh_name
from harness import Subject, cost, speed
from peers_servers import LangGraphPostgres, OpenAIPostgres
from perdure_adapter import Perdure
from raw_postgres import IN_LINE, RawAllRows, RawMessagesOnly, RawPostgres, RawPostgresPool
from report import Report
from servers import postgres_database, postgres_settings
from wire import Relay
from workload import bare, history, with_state

TITLE = "postgres"
WARM = 100


class Setting:
    """One server: databases are made in it as they are needed."""

    def __init__(self, url: str, admin: Any) -> None:
        self.url, self.admin = url, admin
        self._raw = iter(range(10**6))
        self.raw_url = ""

    async def perdure(self, name: str) -> Perdure:
        return await Perdure.connect(await postgres_database(self.admin, self.url, name))

    async def raw(self, kind: type[RawPostgres] = RawPostgres, **options: Any) -> RawPostgres:
        if not self.raw_url:
            self.raw_url = await postgres_database(self.admin, self.url, "raw")
        return await kind.open(self.raw_url, f"raw_{next(self._raw)}", **options)


@contextlib.asynccontextmanager
async def opened(report: Report, url: str) -> AsyncIterator[Setting]:
    """The server, after it said that it syncs."""
    found = await postgres_settings(url)
    if (found["fsync"], found["synchronous_commit"]) != ("on", "on"):
        raise RuntimeError(f"the server does not sync every commit: {found}")
    report.facts |= {f"postgres {name}": value for name, value in found.items()}
    report.table(f"{TITLE}: what the server says", list(found), [list(found.values())])
    admin = await asyncpg.connect(url)
    yield Setting(url, admin)
    await admin.close()


async def one_client(report: Report, setting: Setting, *, quick: bool) -> None:
    """Bare and with state beside the one-statement baseline."""
    subjects: list[Subject] = [
        await setting.raw(),
        await setting.perdure("one_client"),
        await setting.raw(),
        await setting.raw(RawMessagesOnly),
        await setting.raw(RawAllRows),
    ]
    subjects[2].name = "the same again (control)"
    first, second = await cases.one_client(report, TITLE, subjects, rounds=7 if quick else 25)
    report.promise("postgres, one client, bare, vs raw", 0.75, speed(first[1], first[0]), at_least=True)
    report.promise("postgres, one client, with state, vs raw", 0.65, speed(second[1], second[0]), at_least=True)
    report.promise(
        "postgres, one client, bare, vs raw of the same rows", None, speed(first[1], first[4]), at_least=True
    )
    for subject in subjects:
        await subject.close()


async def crowd(report: Report, setting: Setting, *, quick: bool) -> None:
    """16 and 64 threads: commits combined against a statement each on 16 connections."""
    subjects: list[Subject] = [
        await setting.raw(RawPostgresPool, size=16),
        await setting.perdure("crowd"),
        await setting.raw(RawPostgresPool, size=16),
    ]
    subjects[2].name = "the same again (control)"
    peer = OpenAIPostgres(await postgres_database(setting.admin, setting.url, "crowd_peer"))
    rounds = 7 if quick else 21
    plain = await cases.crowd(report, TITLE, [*subjects, peer], bare, clients=64, rounds=rounds)
    report.promise("postgres, 64 threads, bare, vs raw", 1.5, speed(plain[1], plain[0]), at_least=True)
    for clients, target in ((64, 1.5), (16, 1.3)):
        full = await cases.crowd(report, TITLE, subjects, with_state, clients=clients, rounds=rounds)
        figure = f"postgres, {clients} threads, with state, vs raw"
        report.promise(figure, target, speed(full[1], full[0]), at_least=True)
    report.promise("postgres, 64 threads, bare, vs SQLAlchemySession", None, speed(plain[1], plain[3]), at_least=True)
    for subject in (*subjects, peer):
        await subject.close()


async def peers(report: Report, setting: Setting, *, quick: bool) -> None:
    """Threads of 1,000 messages."""
    subjects: list[Subject] = [
        await setting.raw(),
        await setting.perdure("peers"),
        OpenAIPostgres(await postgres_database(setting.admin, setting.url, "openai")),
        await LangGraphPostgres.connect(await postgres_database(setting.admin, setting.url, "langgraph")),
    ]
    found = await cases.long_threads(report, TITLE, subjects, length=1000, rounds=5 if quick else 11)
    versus = "postgres, 1,000 messages, vs"
    report.promise(f"{versus} SQLAlchemySession", 5, speed(found[1], found[2]), at_least=True)
    report.promise(f"{versus} AsyncPostgresSaver", 100, speed(found[1], found[3]), at_least=True)
    for subject in subjects:
        await subject.close()


async def growth(report: Report, setting: Setting, *, quick: bool) -> None:
    """The 5,000th commit against the 10th."""
    subjects: list[Subject] = [await setting.raw(), await setting.perdure("growth")]
    ratio = await cases.growth(report, TITLE, subjects, total=300, long_threads=2 if quick else 4)
    report.promise("postgres, growth, 5,000th against 10th (time)", 1.25, ratio, at_least=False)
    for subject in subjects:
        await subject.close()


async def loads(report: Report, setting: Setting, *, quick: bool) -> None:
    """5,000 messages."""
    subjects: list[Subject] = [
        await setting.raw(),
        await setting.perdure("loads"),
        await setting.raw(),
        OpenAIPostgres(await postgres_database(setting.admin, setting.url, "loads_peer")),
    ]
    subjects[2].name = "the same again (control)"
    found = await cases.loads(report, TITLE, subjects, length=5000, rounds=5 if quick else 15)
    report.promise("postgres, load of 5,000 vs raw (time)", 1.4, cost(found[1], found[0]), at_least=False)
    for subject in subjects:
        await subject.close()


class Meter:
    """What the server spent: write transactions and bytes of log, of everybody together."""

    WHERE = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_insert_lsn() - '0/0'"

    def __init__(self, admin: Any) -> None:
        self.admin = admin

    async def read(self) -> tuple[int, int]:
        row = await self.admin.fetchrow(self.WHERE)
        return int(row[0]), int(row[1])


async def exact(report: Report, setting: Setting, *, quick: bool) -> None:
    """Requests on the wire, write transactions and WAL bytes in the server: counts, no noise.

    A hint to other processes is a request of its own that no commit waits for; many commits share one. It is counted
    beside the commits, and taken off before they are held against their target.

    A checkpoint goes first and some commits after it are not counted: by then the pages that change over and over have
    had the full image that follows a checkpoint, and what is left is what a commit writes.
    """
    admin, count = setting.admin, 200 if quick else 600
    await admin.execute("alter system set autovacuum = off")
    await admin.execute("select pg_reload_conf()")
    url = await postgres_database(admin, setting.url, "exact")
    setting.raw_url = setting.raw_url or await postgres_database(admin, setting.url, "raw")
    rows, wal, most = [], {}, [0.0, 0.0, 0.0]
    async with Relay(url) as ours, Relay(setting.raw_url) as theirs:
        subject = await Perdure.connect(ours.url)
        stored = await storage_of(url)
        schema = f"raw_exact_{count}"
        subjects: list[tuple[Subject, Relay]] = [
            (await RawPostgres.open(theirs.url, schema, storage=stored), theirs),
            (await RawPostgres.open(theirs.url, f"{schema}_in_line", storage=IN_LINE), theirs),
            (subject, ours),
        ]
        names = ("raw, stored as the engine stores", "raw, in line", "perdure")
        for name, (one, relay) in zip(names, subjects, strict=True):
            for make, what, length in ((bare, "bare", 10), (with_state, "with state", 10), (bare, "bare", 5000)):
                work = [one.prepare(make(index)) for index in range(WARM + count)]
                spent = await _spend(admin, one, relay, length, work)
                rows.append([f"{name}, {what} at {length:,}", *(f"{value:,.2f}" for value in spent)])
                wal[name, what, length] = spent[3]
                if one is subject:
                    own = (spent[0] - spent[1], spent[1], spent[2] - spent[1])
                    most = [max(a, b) for a, b in zip(most, own, strict=True)]
        spent = await _spend_together(admin, subject, ours, quick=quick)
        rows.append(["perdure, bare, 64 threads together", *(f"{value:,.2f}" for value in spent)])
        for one, _ in subjects:
            await one.close()
    head = ["commit", "requests", "of them hints", "write transactions", "WAL bytes"]
    report.table(
        f"{TITLE}: what one commit asks and writes, mean of {count} ({stored or 'default storage'})", head, rows
    )
    _promise_exact(report, most, wal)
    await admin.execute("alter system reset autovacuum")
    await admin.execute("select pg_reload_conf()")


def _promise_exact(report: Report, most: list[float], wal: dict[tuple[str, str, int], float]) -> None:
    for name, value in zip(("requests", "hints", "write transactions"), most, strict=True):
        report.promise(f"postgres, {name} a commit", None if name == "hints" else 1.0, round(value, 2), at_least=False)
    for what in ("bare", "with state"):
        ratio = wal["perdure", what, 10] / wal["raw, stored as the engine stores", what, 10]
        report.promise(f"postgres, WAL bytes, {what}, vs raw", 1.5, ratio, at_least=False)
    grown = wal["perdure", "bare", 5000] / wal["perdure", "bare", 10]
    report.promise("postgres, WAL bytes at 5,000 against 10", None, grown, at_least=False)


async def _spend(admin: Any, subject: Subject, relay: Relay, length: int, prepared: list[Any]) -> list[float]:
    """Requests, hints, write transactions and WAL bytes a commit."""
    thread, meter = fresh_name(), Meter(admin)
    await subject.create(thread, history(length))
    await admin.execute("checkpoint")
    for one in prepared[:WARM]:
        await subject.commit(thread, one)
    counts = relay.counts
    before = (counts.requests, counts.hints, *await meter.read())
    for one in prepared[WARM:]:
        await subject.commit(thread, one)
    after = (counts.requests, counts.hints, *await meter.read())
    return [(b - a) / (len(prepared) - WARM) for a, b in zip(before, after, strict=True)]


async def _spend_together(admin: Any, subject: Subject, relay: Relay, *, quick: bool) -> list[float]:
    """The same for commits of 64 threads at once: combined, many share a statement and a transaction."""
    crew, meter, counts = Crowd(subject, 64, 4 if quick else 16), Meter(admin), relay.counts
    for _ in range(2):
        await crew.setup()
        before = (counts.requests, counts.hints, *await meter.read())
        done = await crew.run()
    after = (counts.requests, counts.hints, *await meter.read())
    return [(b - a) / done for a, b in zip(before, after, strict=True)]


async def storage_of(url: str) -> str:
    """How the engine stores the bodies of messages, as a change to the raw table."""
    connection = await asyncpg.connect(url)
    row = await connection.fetchrow(
        """select a.attstorage::text as kind, array_to_string(c.reloptions, ', ') as options
           from pg_attribute a join pg_class c on c.oid = a.attrelid
           where c.relname = 'messages' and c.relkind = 'r' and a.attname = 'body'"""
    )
    await connection.close()
    kind = {"m": "main", "e": "external", "p": "plain"}.get(row["kind"])
    change = f"alter table messages alter body set storage {kind};" if kind else ""
    return change + (f" alter table messages set ({row['options']});" if row["options"] else "")


CASES = {
    "one-client": one_client,
    "crowd": crowd,
    "growth": growth,
    "peers": peers,
    "loads": loads,
    "exact": exact,
}
