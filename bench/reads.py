"""Reading: whole threads as decoded records, with unknown fields too, and the newest 50 messages and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from commits import fresh_name
from harness import Case, cost, interleave
from peers import OpenAISession
from perdure_adapter import Perdure
from raw import Raw, RawReader
from report import Report
from workload import history, turns

LENGTH = 5000
THREADS = 10_000
PAGE = 50
TURNS = 1000


def repeated(name: str, call: Callable[[], Awaitable[list[Any]]], count: int, expected: int) -> Case:
    """`count` calls a round; each must answer with as many records as were asked for."""

    async def run() -> int:
        for _ in range(count):
            answer = await call()
            if len(answer) != expected:
                raise RuntimeError(f"{name} answered {len(answer)} records of {expected}")
        return count

    return Case(name, run)


async def loads(report: Report, home: Path, page_size: int, *, quick: bool) -> None:
    """5,000 messages, then the newest 50 of them."""
    rounds = 7 if quick else 31
    thread = fresh_name()
    raw, ours = Raw(home / "raw.db", page_size), await Perdure.open(home / "perdure.db")
    peer = OpenAISession(home / "openai.db")
    for subject in (raw, ours, peer):
        await subject.create(thread, history(LENGTH))
    reader, second = RawReader(raw.path), RawReader(raw.path)

    async def inline(call: Callable[..., list[Any]], *args: Any) -> list[Any]:
        return call(*args)

    whole = [
        repeated("raw select + decode, reader thread", lambda: reader.on_thread(reader.load, thread), 2, LENGTH),
        repeated("the same again (control)", lambda: second.on_thread(second.load, thread), 2, LENGTH),
        repeated("raw select + decode, inline", lambda: inline(reader.load, thread), 2, LENGTH),
        repeated("perdure, store.load", lambda: ours.load(thread), 2, LENGTH),
        repeated("perdure, messages.history", lambda: ours.history(thread), 2, LENGTH),
        repeated(peer.name, lambda: peer.load(thread), 2, LENGTH),
    ]
    await interleave(whole, rounds)
    report.cases(f"Load of {LENGTH:,} messages as decoded records", whole, whole[0], slower=True)
    report.promise("load of 5,000 vs raw select + decode (time)", 1.6, cost(whole[3], whole[0]), at_least=False)
    newest = [
        repeated("raw newest 50, reader thread", lambda: reader.on_thread(reader.newest, thread, PAGE), 200, PAGE),
        repeated("the same again (control)", lambda: second.on_thread(second.newest, thread, PAGE), 200, PAGE),
        repeated("raw newest 50, inline", lambda: inline(reader.newest, thread, PAGE), 200, PAGE),
        repeated("perdure, messages.list", lambda: ours.newest(thread, PAGE), 200, PAGE),
    ]
    await interleave(newest, rounds)
    report.cases(f"Newest {PAGE} of {LENGTH:,} messages", newest, newest[0], slower=True)
    report.promise("newest 50 of 5,000 vs raw (time)", 1.4, cost(newest[3], newest[0]), at_least=False)
    reader.close()
    second.close()
    for subject in (raw, ours, peer):
        await subject.close()


async def unknown(report: Report, home: Path, page_size: int, *, quick: bool) -> None:
    """1,000 messages of agent turns, without and with a field in each that Perdure does not know."""
    raw, ours = Raw(home / "raw.db", page_size), await Perdure.open(home / "perdure.db")
    peer = OpenAISession(home / "openai.db")
    plain, foreign = fresh_name(), fresh_name()
    for subject in (raw, ours, peer):
        await subject.create(plain, turns(TURNS))
        await subject.create(foreign, turns(TURNS, unknown=True))
    reader = RawReader(raw.path)
    cases = [
        repeated("raw select + decode, reader thread", lambda: reader.on_thread(reader.load, plain), 5, TURNS),
        repeated("perdure", lambda: ours.history(plain), 5, TURNS),
        repeated(peer.name, lambda: peer.load(plain), 5, TURNS),
        repeated("raw, with an unknown field", lambda: reader.on_thread(reader.load, foreign), 5, TURNS),
        repeated("perdure, with an unknown field", lambda: ours.history(foreign), 5, TURNS),
    ]
    await interleave(cases, 7 if quick else 31)
    report.cases(f"Load of {TURNS:,} messages of agent turns", cases, cases[0], slower=True)
    report.promise("load of 1,000 turn messages vs raw (time)", 1.5, cost(cases[1], cases[0]), at_least=False)
    report.promise("the same vs openai SQLiteSession (time)", 1.0, cost(cases[1], cases[2]), at_least=False)
    report.promise("with an unknown field vs without (time)", 2.5, cost(cases[4], cases[1]), at_least=False)
    reader.close()
    for subject in (raw, ours, peer):
        await subject.close()


async def listing(report: Report, home: Path, page_size: int, *, quick: bool) -> None:
    """The newest 50 of 10,000 threads."""
    raw, ours = Raw(home / "raw.db", page_size, listing=True), await Perdure.open(home / "perdure.db")
    row = (5, "Plan a trip to Kyoto", '{"custom":{"colour":"green","stars":3}}')
    raw.conn.execute("begin")
    raw.conn.executemany(
        "insert into threads(id, version, updated_at, created_at, title, body) values(?,?,?,?,?,?)",
        [(fresh_name(), row[0], at, at, row[1], row[2]) for at in range(THREADS)],
    )
    raw.conn.execute("commit")
    for _ in range(0, THREADS, 250):
        await asyncio.gather(*(ours.new_thread(row[1], {"colour": "green", "stars": 3}) for _ in range(250)))
    reader, second = RawReader(raw.path), RawReader(raw.path)

    async def inline() -> list[Any]:
        return reader.list_threads(PAGE)

    cases = [
        repeated("raw index scan, reader thread", lambda: reader.on_thread(reader.list_threads, PAGE), 200, PAGE),
        repeated("the same again (control)", lambda: second.on_thread(second.list_threads, PAGE), 200, PAGE),
        repeated("raw index scan, inline", inline, 200, PAGE),
        repeated("perdure, threads.list", lambda: ours.list_threads(PAGE), 200, PAGE),
    ]
    await interleave(cases, 7 if quick else 31)
    report.cases(f"Newest {PAGE} of {THREADS:,} threads", cases, cases[0], slower=True)
    report.promise("list 50 of 10,000 threads vs raw (time)", 1.5, cost(cases[3], cases[0]), at_least=False)
    reader.close()
    second.close()
    for subject in (raw, ours):
        await subject.close()
