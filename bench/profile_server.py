"""Where a commit on a server spends its time: the client's Python, the server's processor, the wire, the statement.

    python bench/profile_server.py postgres [--state] [--top 25]

Raw and Perdure in turn, one client and 64: wall clock, processor time of this process and of the server's processes a
commit. Then the wall clock of a commit by stages (`timeline.py`), cProfile of the client, which taxes small functions
(read shares), and what the server itself says about the statements of a commit: PostgreSQL its plan with times and
buffers (auto_explain) and its statistics, Redis the time its commands took, MySQL the time until each was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import redis.asyncio
from commits import fresh_name
from harness import Subject
from perdure_adapter import Perdure
from raw_mysql import RawMysql
from raw_postgres import RawAllRows, RawPostgres, RawPostgresPool
from raw_redis import RawRedis
from report import render
from servers import at_database, mysql_database, postgres_database, started
from timeline import STAGES, timeline
from wire import Relay
from workload import bare, history, with_state

Opener = Callable[[], Awaitable[Subject]]
COMMITS = 1024
_TICK = os.sysconf("SC_CLK_TCK")
_DRIVERS = ("asyncpg", "asyncmy", "redis", "msgspec")


def server_cpu(pid: int | None) -> float:
    """Processor seconds of a server and its children so far; those of children that ended are in their parent's."""
    if pid is None:
        return float("nan")
    used = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(stat.parent.name) == pid:
            used += sum(map(int, fields[11:15])) / _TICK
        elif int(fields[1]) == pid:
            used += sum(map(int, fields[11:13])) / _TICK
    return used


class Crew:
    """`clients` tasks that share out the commits, each on a thread of its own."""

    def __init__(self, subject: Subject, clients: int, make: Any) -> None:
        self.subject, self.clients, self.make = subject, clients, make
        self.work: list[tuple[str, list[Any]]] = []

    async def prepare(self) -> None:
        if not self.work:
            self.work = [(fresh_name(), []) for _ in range(self.clients)]
            for thread, _ in self.work:
                await self.subject.create(thread, history(10))
        each = COMMITS // self.clients
        self.work = [(t, [self.subject.prepare(self.make(n)) for n in range(each)]) for t, _ in self.work]

    async def run(self) -> None:
        await asyncio.gather(*(self._client(*one) for one in self.work))

    async def _client(self, thread: str, prepared: list[Any]) -> None:
        for one in prepared:
            await self.subject.commit(thread, one)


async def costs(crew: Crew, pid: int | None, rounds: int = 4) -> list[float]:
    """Microseconds of wall clock, of this process and of the server a commit; the best of some rounds each."""
    seen = []
    for _ in range(rounds + 1):
        await crew.prepare()
        before = (time.perf_counter(), time.process_time(), server_cpu(pid))
        await crew.run()
        after = (time.perf_counter(), time.process_time(), server_cpu(pid))
        seen.append([(b - a) / COMMITS * 1e6 for a, b in zip(before, after, strict=True)])
    return [min(column) for column in zip(*seen[1:], strict=True)]


def room(function: tuple[str, int, str]) -> str:
    """The part of the program a profiled function belongs to."""
    file, _, name = function
    for part in ("engines", "stores", "kernel", "model", "rules"):
        if f"/perdure/{part}" in file:
            return f"perdure.{part}"
    for driver in _DRIVERS:
        if driver in file or driver in name:
            return driver
    if "select" in name and ("epoll" in name or "poll" in name):
        return "waiting for the server"
    return "asyncio" if "asyncio" in file or "send" in name or "recv" in name else "other Python and built-ins"


async def profiled(crew: Crew) -> pstats.Stats:
    await crew.prepare()
    profile = cProfile.Profile()
    profile.enable()
    await crew.run()
    profile.disable()
    return pstats.Stats(profile)


def show_profile(title: str, stats: pstats.Stats, top: int) -> None:
    rooms: dict[str, float] = defaultdict(float)
    for function, (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        rooms[room(function)] += own
    rows = [[n, f"{own / COMMITS * 1e6:.0f} µs"] for n, own in sorted(rooms.items(), key=lambda item: -item[1])]
    print(f"\n{title}, under cProfile", render(["room", "a commit, profiled"], rows), sep="\n")
    if top:
        stats.sort_stats("tottime").print_stats(top)


async def postgres_openers(url: str) -> list[Opener]:
    admin = await asyncpg.connect(url)
    raw, ours = [await postgres_database(admin, url, name) for name in ("timeline_raw", "timeline")]
    await admin.close()
    return [
        lambda: RawPostgres.open(raw, "one"),
        lambda: Perdure.connect(ours),
        lambda: RawAllRows.open(raw, "every"),
    ]


async def redis_openers(url: str) -> list[Opener]:
    return [lambda: RawRedis.open(at_database(url, "0")), lambda: Perdure.connect(at_database(url, "1"))]


async def mysql_openers(url: str) -> list[Opener]:
    raw, ours = [await mysql_database(url, name) for name in ("timeline_raw", "timeline")]
    return [lambda: RawMysql.open(raw), lambda: Perdure.connect(ours)]


async def show_timeline(openers: list[Opener], make: Any) -> None:
    columns = [await timeline(opener, make) for opener in openers]
    rows = [[stage, *(f"{value * 1e6:.0f} µs" for value in row)] for stage, *row in zip(STAGES, *columns, strict=True)]
    rows.append(["sum of medians", *(f"{sum(column) * 1e6:.0f} µs" for column in columns)])
    head = ["stage", "raw", "perdure", "raw, all rows"][: len(columns) + 1]
    print("\nThe wall clock of one commit, one client", render(head, rows), sep="\n")


async def postgres_subjects(url: str) -> tuple[list[Subject], list[Subject]]:
    admin = await asyncpg.connect(url)
    raw_url = await postgres_database(admin, url, "profile_raw")
    ours = await Perdure.connect(await postgres_database(admin, url, "profile"))
    await admin.close()
    one = await RawPostgres.open(raw_url, "one")
    return [one, ours], [await RawPostgresPool.open(raw_url, "pool", size=16), ours]


async def postgres_says(url: str, make: Any) -> None:
    """The plan of a commit as it ran, and the statistics of every statement of many commits."""
    admin = await asyncpg.connect(url)
    own = await postgres_database(admin, url, "profile_plan")
    settings = {
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_buffers": "on",
        "auto_explain.log_wal": "on",
        "auto_explain.log_nested_statements": "on",
        "client_min_messages": "log",
    }
    async with Relay(own) as relay:
        subject = await Perdure.connect(relay.url)
        thread = fresh_name()
        await subject.create(thread, history(10))
        for name, value in settings.items():
            await admin.execute(f"alter database profile_plan set {name} = '{value}'")
        await subject.close()
        subject_again = await Perdure.connect(relay.url)
        subject_again.adopt(subject)
        for number in range(8):  # by now the server plans as it does for good
            relay.counts.notices.clear()
            await subject_again.commit(thread, subject_again.prepare(make(number)))
        print("\nThe plans of one commit, as they ran", *(n for n in relay.counts.notices if "duration" in n), sep="\n")
        await subject_again.close()
    await _statistics(admin, url, make)
    await admin.close()


async def _statistics(admin: Any, url: str, make: Any) -> None:
    await admin.execute("create extension if not exists pg_stat_statements")
    raw_url = await postgres_database(admin, url, "profile_times_raw")
    ours = await Perdure.connect(await postgres_database(admin, url, "profile_times"))
    crews = [Crew(one, 1, make) for one in (await RawPostgres.open(raw_url, "one"), ours)]
    if make is bare:
        crews.append(Crew(await RawAllRows.open(raw_url, "every"), 1, make))
    for crew in crews:
        await crew.prepare()
    await admin.execute("select pg_stat_statements_reset()")
    for crew in crews:
        await crew.run()
    rows = await admin.fetch(
        """select calls, mean_exec_time * 1000 as mean, shared_blks_hit::float / calls as hit,
                  wal_records::float / calls as records, wal_bytes::float / calls as bytes, query
           from pg_stat_statements where calls > 9 order by total_exec_time desc limit 6"""
    )
    cells = [[" ".join(r["query"].split())[:100], str(r["calls"]), *(f"{v:,.0f}" for v in list(r)[1:5])] for r in rows]
    head = ["statement", "calls", "µs", "buffers", "WAL records", "WAL bytes"]
    print("\npg_stat_statements, raw and ours", render(head, cells), sep="\n")
    for crew in crews:
        await crew.subject.close()


async def redis_subjects(url: str) -> tuple[list[Subject], list[Subject]]:
    both: list[Subject] = [await RawRedis.open(at_database(url, "0")), await Perdure.connect(at_database(url, "1"))]
    return both, both


async def redis_says(url: str, make: Any) -> None:
    """How long the server's commands took, those inside the script too."""
    admin: Any = redis.asyncio.from_url(url, decode_responses=True)
    for subject in (await redis_subjects(url))[0]:
        crew = Crew(subject, 1, make)
        await crew.prepare()
        await admin.config_resetstat()
        await crew.run()
        found = await admin.info("commandstats")
        rows = [
            [n.removeprefix("cmdstat_"), f"{s['calls'] / COMMITS:.2f}", f"{s['usec'] / COMMITS:.1f} µs"]
            for n, s in sorted(found.items(), key=lambda item: -item[1]["usec"])
        ]
        print(f"\n{subject.name}: commands a commit", render(["command", "calls", "time"], rows[:14]), sep="\n")
        await subject.close()
    await admin.aclose()


async def mysql_subjects(url: str) -> tuple[list[Subject], list[Subject]]:
    both: list[Subject] = [
        await RawMysql.open(await mysql_database(url, "profile_raw")),
        await Perdure.connect(await mysql_database(url, "profile")),
    ]
    return both, both[1:]


async def mysql_says(url: str, make: Any) -> None:
    """How long each statement of a commit took to answer."""
    async with Relay(await mysql_database(url, "profile_plan")) as relay:
        subject = await Perdure.connect(relay.url)
        crew = Crew(subject, 1, make)
        await crew.prepare()
        await crew.run()
        relay.counts.answered.clear()
        await crew.prepare()
        await crew.run()
        spent: dict[str, list[float]] = defaultdict(list)
        for text, seconds in relay.counts.answered:
            spent[re.sub(r"\d+", "n", text)[:60]].append(seconds)
        rows = [
            [" ".join(text.split()), f"{len(all_) / COMMITS:.2f}", f"{sum(all_) / len(all_) * 1e6:.0f} µs"]
            for text, all_ in sorted(spent.items(), key=lambda item: -sum(item[1]))[:12]
        ]
        print("\nUntil the answer, through the relay", render(["statement", "a commit", "mean"], rows), sep="\n")
        await subject.close()


_ENGINES = {
    "postgres": (postgres_subjects, postgres_openers, postgres_says),
    "redis": (redis_subjects, redis_openers, redis_says),
    "mysql": (mysql_subjects, mysql_openers, mysql_says),
}


async def main(options: argparse.Namespace) -> None:
    server = started(options.engine)
    make = with_state if options.state else bare
    subjects_of, openers_of, says = _ENGINES[options.engine]
    try:
        singles, crowds = await subjects_of(server.url)
        rows = []
        crews = [Crew(s, 1, make) for s in singles] + [Crew(s, 64, make) for s in crowds]
        for crew in crews:
            spent = await costs(crew, server.pid)
            rows.append([f"{crew.subject.name}, {crew.clients} clients", *(f"{value:.0f} µs" for value in spent)])
        print(server.version)
        print("A commit", render(["subject", "wall clock", "CPU client", "CPU server"], rows), sep="\n")
        await show_timeline((await openers_of(server.url))[: 3 if make is bare else 2], make)
        for crew in crews:
            if isinstance(crew.subject, Perdure):
                show_profile(f"{crew.clients} clients", await profiled(crew), options.top)
        await says(server.url, make)
    finally:
        server.dispose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Where a commit on a server spends its time.")
    parser.add_argument("engine", choices=sorted(_ENGINES))
    parser.add_argument("--state", action="store_true", help="commits with two state documents")
    parser.add_argument("--top", type=int, default=0, help="also list this many functions by their own time")
    asyncio.run(main(parser.parse_args()))
