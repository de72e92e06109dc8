"""How subjects fare as threads grow (append and load at 10 to 5,000 messages), and how many bytes a message takes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from commits import Writer, fresh_name
from harness import Case, FileSubject, Subject, interleave, speed
from peers import LangGraphSaver, OpenAISession
from perdure_adapter import Perdure
from raw import RawReader, RawThread
from report import Report, times
from workload import TURN_MESSAGES, Commit, bare, history, turn


class LongWriter(Writer):
    """Keeps one thread over the rounds: filling 1,000 messages anew each round would take longer than measuring."""

    async def setup(self) -> None:
        if not self.thread:
            await super().setup()
        self.prepared = [self.subject.prepare(self.make(index)) for index in range(self.count)]


async def lengths(report: Report, home: Path, page_size: int, *, quick: bool) -> None:
    """Append and load at each length, every subject beside the others."""
    rounds = 5 if quick else 15
    raw, ours = RawThread(home / "raw.db", page_size), await Perdure.open(home / "perdure.db")
    session, graph = OpenAISession(home / "openai.db"), await LangGraphSaver.open(home / "langgraph.db")
    reader = RawReader(raw.path)
    for length in (10, 1000) if quick else (10, 100, 1000, 5000):
        kind = Writer if length < 1000 else LongWriter
        few = 10 if length < 1000 else 4 if length < 5000 else 2
        writers = [kind(s, bare, few if s.grows else 100, length) for s in (raw, ours, session, graph)]
        appends = [w.case() for w in writers]
        await interleave(appends, rounds)
        report.cases(f"Append to a thread of {length:,} messages", appends, appends[0])
        if length == 1000:
            ratio = speed(appends[1], appends[3])
            report.promise("1,000 messages, bare, vs LangGraph AsyncSqliteSaver", 15, ratio, at_least=True)
        thread = fresh_name()
        reads = [await _load_case(s, thread, length, reader) for s in (raw, ours, session, graph)]
        await interleave(reads, rounds)
        report.cases(f"Load a thread of {length:,} messages", reads, reads[0])
    reader.close()
    for subject in (raw, ours, session, graph):
        await subject.close()


async def _load_case(subject: Subject, thread: str, length: int, reader: RawReader) -> Case:
    await subject.create(thread, history(length))
    count = max(1, 1000 // length)
    raw = isinstance(subject, RawThread)

    async def run() -> int:
        for _ in range(count):
            answer = await (reader.on_thread(reader.load, thread) if raw else subject.load(thread))
            if len(answer) != length:
                raise RuntimeError(f"{subject.name} loaded {len(answer)} messages of {length}")
        return count

    return Case("raw select + decode, reader thread" if raw else subject.name, run)


async def sizes(report: Report, home: Path, page_size: int, *, quick: bool) -> None:
    """File bytes per message on the turn mix: 50 threads of 100 messages, written by 10 clients."""
    threads, turns = (20, 20) if quick else (50, 20)
    subjects: list[tuple[FileSubject, int]] = [
        (RawThread(home / "raw.db", page_size), threads),
        (RawThread(home / "listed.db", page_size, listing=True), threads),
        (await Perdure.open(home / "perdure.db"), threads),
        (OpenAISession(home / "openai.db"), threads),
        (await LangGraphSaver.open(home / "langgraph.db"), 2),
    ]
    names = ["raw tables", "raw tables + listing index", *(subject.name for subject, _ in subjects[2:])]
    measured = []
    for subject, count in subjects:
        await _write_turns(subject, count, turns)
        await subject.close()
        measured.append(file_bytes(subject.path) / (count * turns * TURN_MESSAGES))
    rows = [[n, f"{b:,.0f} B", times(b / measured[0])] for n, b in zip(names, measured, strict=True)]
    title = f"File bytes per message, turn mix, {turns * TURN_MESSAGES} messages a thread, {page_size} B pages"
    report.table(title, ["case", "per message", "× raw tables"], rows)
    report.promise("file size vs raw tables (bytes)", 1.15, measured[2] / measured[0], at_least=False)


async def _write_turns(subject: Subject, threads: int, turns: int) -> None:
    names = [fresh_name() for _ in range(threads)]
    for name in names:
        await subject.create(name, Commit(()))
    todo = iter(enumerate(names))

    async def client() -> None:
        for number, thread in todo:
            for index in range(turns):
                for commit in turn(number + index):
                    prepared: Any = subject.prepare(commit)
                    await subject.commit(thread, prepared)

    await asyncio.gather(*(client() for _ in range(10)))


def file_bytes(path: Path) -> int:
    """The database's size with everything in the write-ahead log moved home."""
    conn = sqlite3.connect(path)
    try:
        conn.execute("pragma wal_checkpoint(truncate)")
        pages, size = (conn.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages) * int(size)
    finally:
        conn.close()
