"""MySQL or MariaDB: Perdure beside a raw asyncmy transaction, with the log synced at every commit."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import raw_mysql
import servers_cases as cases
from commits import fresh_name
from harness import Subject, cost, speed
from perdure_adapter import Perdure
from raw_mysql import RawMysql
from report import Report
from servers import mysql_database
from wire import Relay
from workload import bare, history, with_state

TITLE = "mysql"


class Setting:
    """One server: databases are made in it as they are needed."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def subjects(self, name: str) -> list[Subject]:
        """Raw, then Perdure, each in a database of its own."""
        raw = await RawMysql.open(await mysql_database(self.url, f"{name}_raw"))
        return [raw, await Perdure.connect(await mysql_database(self.url, name))]


@contextlib.asynccontextmanager
async def opened(report: Report, url: str) -> AsyncIterator[Setting]:
    """The server, after it said that it syncs."""
    connection = await raw_mysql.connect(url)
    found: dict[str, str] = {}
    async with connection.cursor() as cursor:
        for name in ("version", "innodb_flush_log_at_trx_commit", "log_bin", "innodb_doublewrite"):
            await cursor.execute(f"select @@global.{name}")
            found[name] = str((await cursor.fetchone())[0])
    await connection.ensure_closed()
    if found["innodb_flush_log_at_trx_commit"] != "1":
        raise RuntimeError(f"the server does not sync every commit: {found}")
    report.table(f"{TITLE}: what the server says", list(found), [list(found.values())])
    yield Setting(url)


async def one_client(report: Report, setting: Setting, *, quick: bool) -> None:
    """Bare and with state beside a raw transaction."""
    subjects = await setting.subjects("one_client")
    control = await RawMysql.open(await mysql_database(setting.url, "control_raw"))
    control.name = "the same again (control)"
    first, second = await cases.one_client(report, TITLE, [*subjects, control], rounds=7 if quick else 25)
    report.promise("mysql, one client, bare, vs raw transaction", 0.6, speed(first[1], first[0]), at_least=True)
    report.promise("mysql, one client, with state, vs raw", None, speed(second[1], second[0]), at_least=True)
    for subject in (*subjects, control):
        await subject.close()


async def growth(report: Report, setting: Setting, *, quick: bool) -> None:
    """The 5,000th commit against the 10th."""
    subjects = await setting.subjects("growth")
    ratio = await cases.growth(report, TITLE, subjects, total=300, long_threads=2 if quick else 4)
    report.promise("mysql, growth, 5,000th against 10th (time)", 1.25, ratio, at_least=False)
    for subject in subjects:
        await subject.close()


async def loads(report: Report, setting: Setting, *, quick: bool) -> None:
    """5,000 messages."""
    subjects = await setting.subjects("loads")
    found = await cases.loads(report, TITLE, subjects, length=5000, rounds=5 if quick else 11)
    report.promise("mysql, load of 5,000 vs raw (time)", None, cost(found[1], found[0]), at_least=False)
    for subject in subjects:
        await subject.close()


async def exact(report: Report, setting: Setting, *, quick: bool) -> None:
    """Commands and round trips on the wire: counts, no noise."""
    count, rows, trips = 50 if quick else 200, [], 0.0
    raw_url, url = await mysql_database(setting.url, "exact_raw"), await mysql_database(setting.url, "exact")
    async with Relay(raw_url) as theirs, Relay(url) as ours:
        subjects: list[tuple[Subject, Relay]] = [
            (await RawMysql.open(theirs.url), theirs),
            (await Perdure.connect(ours.url), ours),
        ]
        for subject, relay in subjects:
            for make, what in ((bare, "bare"), (with_state, "with state")):
                spent = await _spend(subject, relay, [subject.prepare(make(n)) for n in range(count)])
                rows.append([f"{subject.name}, {what}", *(f"{value:,.2f}" for value in spent)])
                trips = max(trips, spent[0]) if relay is ours else trips
            await subject.close()
    report.table(f"{TITLE}: what one commit asks, mean of {count}", ["commit", "round trips", "bytes sent"], rows)
    report.promise("mysql, round trips a commit", 3.0, round(trips, 2), at_least=False)


async def _spend(subject: Subject, relay: Relay, prepared: list[Any]) -> list[float]:
    thread, counts = fresh_name(), relay.counts
    await subject.create(thread, history(10))
    await subject.commit(thread, subject.prepare(bare(0)))
    before = (counts.trips, counts.sent)
    for one in prepared:
        await subject.commit(thread, one)
    return [(b - a) / len(prepared) for a, b in zip(before, (counts.trips, counts.sent), strict=True)]


CASES = {"one-client": one_client, "growth": growth, "loads": loads, "exact": exact}
