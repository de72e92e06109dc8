"""Redis or Valkey: Perdure beside a raw script of the same keys and RedisSession, with the log synced every second
(Redis's own default) and at every write."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import redis.asyncio
import servers_cases as cases
from commits import fresh_name
from harness import Subject, cost, speed
from peers_servers import OpenAIRedis
from perdure_adapter import Perdure
from raw_redis import RawRedis
from report import Report
from servers import at_database
from wire import Relay
from workload import bare, history, with_state

TITLE = "redis"


class Setting:
    """One server; every subject has a numbered database of its own."""

    def __init__(self, url: str, admin: Any) -> None:
        self.url, self.admin = url, admin

    def database(self, number: int) -> str:
        return at_database(self.url, str(number))

    async def sync(self, mode: str) -> None:
        """Empty, and from now on synced like this."""
        await self.admin.flushall()
        await self.admin.config_set("appendfsync", mode)


@contextlib.asynccontextmanager
async def opened(report: Report, url: str) -> AsyncIterator[Setting]:
    """The server, after it said that it keeps a log."""
    admin: Any = redis.asyncio.from_url(url, decode_responses=True)
    found = await admin.config_get("append*")
    if found["appendonly"] != "yes":
        raise RuntimeError(f"the server keeps no log: {found}")
    about = await admin.info("server")
    what = {name: str(about[name]) for name in ("redis_version", "valkey_version") if name in about}
    what |= {
        "appendonly": found["appendonly"],
        "maxmemory-policy": (await admin.config_get("maxmemory-policy")).popitem()[1],
    }
    report.table(f"{TITLE}: what the server says", list(what), [list(what.values())])
    yield Setting(url, admin)
    await admin.aclose()


async def everysec(report: Report, setting: Setting, *, quick: bool) -> None:
    """One client, the log synced every second."""
    await _one_client(report, setting, "everysec", quick=quick)


async def always(report: Report, setting: Setting, *, quick: bool) -> None:
    """One client, every write synced."""
    await _one_client(report, setting, "always", quick=quick)


async def _one_client(report: Report, setting: Setting, mode: str, *, quick: bool) -> None:
    await setting.sync(mode)
    raw, control = await RawRedis.open(setting.database(0)), await RawRedis.open(setting.database(3))
    control.name = "the same again (control)"
    ours, peer = await Perdure.connect(setting.database(1)), OpenAIRedis(setting.database(2))
    subjects: list[Subject] = [raw, ours, control, peer]
    title = f"{TITLE}, appendfsync {mode}"
    first, second = await cases.one_client(report, title, subjects, rounds=7 if quick else 25, count=150)
    report.promise(f"{title}, one client, bare, vs raw script", 0.7, speed(first[1], first[0]), at_least=True)
    report.promise(f"{title}, one client, with state, vs raw script", None, speed(second[1], second[0]), at_least=True)
    report.promise(f"{title}, one client, bare, vs RedisSession", 2, speed(first[1], first[3]), at_least=True)
    for subject in subjects:
        await subject.close()


async def crowd(report: Report, setting: Setting, *, quick: bool) -> None:
    """16 threads, bare and with state, the log synced every second and at every write."""
    for mode in ("everysec", "always"):
        await setting.sync(mode)
        raw, ours = await RawRedis.open(setting.database(0)), await Perdure.connect(setting.database(1))
        pair: list[Subject] = [raw, ours]
        title, rounds = f"{TITLE}, appendfsync {mode}", 7 if quick else 21
        for make, what in ((bare, "bare"), (with_state, "with state")):
            subjects = [*pair, OpenAIRedis(setting.database(2))] if make is bare else pair
            found = await cases.crowd(report, title, subjects, make, clients=16, rounds=rounds)
            report.promise(f"{title}, 16 threads, {what}, vs raw pool", 0.8, speed(found[1], found[0]), at_least=True)
            for peer in subjects[2:]:
                await peer.close()
        for subject in pair:
            await subject.close()


async def growth(report: Report, setting: Setting, *, quick: bool) -> None:
    """The 5,000th commit against the 10th."""
    await setting.sync("everysec")
    subjects: list[Subject] = [await RawRedis.open(setting.database(0)), await Perdure.connect(setting.database(1))]
    ratio = await cases.growth(report, TITLE, subjects, total=300, long_threads=2 if quick else 4)
    report.promise("redis, growth, 5,000th against 10th (time)", 1.25, ratio, at_least=False)
    for subject in subjects:
        await subject.close()


async def loads(report: Report, setting: Setting, *, quick: bool) -> None:
    """5,000 messages."""
    await setting.sync("everysec")
    subjects: list[Subject] = [
        await RawRedis.open(setting.database(0)),
        await Perdure.connect(setting.database(1)),
        OpenAIRedis(setting.database(2)),
    ]
    found = await cases.loads(report, TITLE, subjects, length=5000, rounds=5 if quick else 15)
    report.promise("redis, load of 5,000 vs raw (time)", None, cost(found[1], found[0]), at_least=False)
    for subject in subjects:
        await subject.close()


async def exact(report: Report, setting: Setting, *, quick: bool) -> None:
    """Commands and round trips on the wire, and bytes of log: counts, no noise."""
    await setting.sync("always")
    count, rows, trips = 50 if quick else 200, [], 0.0
    async with Relay(setting.database(0)) as theirs, Relay(setting.database(1)) as ours:
        subjects: list[tuple[Subject, Relay]] = [
            (await RawRedis.open(theirs.url), theirs),
            (await Perdure.connect(ours.url), ours),
        ]
        for subject, relay in subjects:
            for make, what in ((bare, "bare"), (with_state, "with state")):
                spent = await _spend(setting.admin, subject, relay, [subject.prepare(make(n)) for n in range(count)])
                rows.append([f"{subject.name}, {what}", *(f"{value:,.2f}" for value in spent)])
                trips = max(trips, spent[1]) if relay is ours else trips
            await subject.close()
    head = ["commit", "commands", "round trips", "bytes sent", "bytes of log"]
    report.table(f"{TITLE}: what one commit asks and writes, mean of {count}", head, rows)
    report.promise("redis, round trips a commit", 1.0, round(trips, 2), at_least=False)


async def _spend(admin: Any, subject: Subject, relay: Relay, prepared: list[Any]) -> list[float]:
    thread = fresh_name()
    await subject.create(thread, history(10))
    await subject.commit(thread, subject.prepare(bare(0)))

    async def now() -> tuple[int, int, int, int]:
        size = (await admin.info("persistence"))["aof_current_size"]
        return relay.counts.requests, relay.counts.trips, relay.counts.sent, size

    before = await now()
    for one in prepared:
        await subject.commit(thread, one)
    after = await now()
    return [(b - a) / len(prepared) for a, b in zip(before, after, strict=True)]


CASES = {
    "everysec": everysec,
    "always": always,
    "crowd": crowd,
    "growth": growth,
    "loads": loads,
    "exact": exact,
}
