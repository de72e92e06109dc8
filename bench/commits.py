"""Writing: one client, many clients, the sync face, and whether the 5,000th message costs what the 10th cost."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Case, FileSubject, Subject, interleave, speed
from peers import LangGraphSaver, OpenAISession
from perdure_adapter import Perdure, PerdureSync
from raw import Raw, RawThread
from report import Report, duration, times
from tracing import statement_counter
from workload import Commit, bare, history, with_state

_names = iter(range(10**9))


def fresh_name() -> str:
    """A thread name that no subject has seen."""
    return f"thread-{next(_names):012d}"


class Writer:
    """`count` commits on a thread of `length` messages: a new thread each round, made before the clock starts."""

    def __init__(self, subject: Subject, make: Callable[[int], Commit], count: int, length: int = 10) -> None:
        self.subject, self.make, self.count, self.length = subject, make, count, length
        self.thread = ""
        self.prepared: list[Any] = []

    async def setup(self) -> None:
        self.thread = fresh_name()
        await self.subject.create(self.thread, history(self.length))
        self.prepared = [self.subject.prepare(self.make(index)) for index in range(self.count)]

    async def run(self) -> int:
        commit, thread = self.subject.commit, self.thread
        for prepared in self.prepared:
            await commit(thread, prepared)
        return self.count

    async def verify(self) -> None:
        """The subject must hold what it was timed storing."""
        held, written = len(await self.subject.load(self.thread)), self.length + 2 * self.count
        if held != written:
            raise RuntimeError(f"{self.subject.name} holds {held} messages of {written}")

    def case(self, name: str = "") -> Case:
        return Case(name or self.subject.name, self.run, self.setup)


async def one_client(report: Report, home: Path, page_size: int, *, quick: bool) -> None:
    """Bare and with state, against raw inline, raw through a thread, and SQLiteSession; the sync face beside them."""
    count, rounds = 200, 6 if quick else 31
    inline, thread = Raw(home / "inline.db", page_size), RawThread(home / "thread.db", page_size)
    control = RawThread(home / "control.db", page_size)
    listed = RawThread(home / "listed.db", page_size, listing=True)
    ours, peer = await Perdure.open(home / "perdure.db"), OpenAISession(home / "openai.db")
    blocking = PerdureSync(home / "sync.db")
    plain = [Writer(s, bare, count) for s in (thread, inline, control, listed, ours, peer)]
    state = [Writer(s, with_state, count) for s in (thread, inline, ours)]
    sync = [
        blocking.case("perdure, sync face", bare, count),
        blocking.case("perdure, sync face + state", with_state, count),
    ]
    first = [w.case() for w in plain]
    first[2].name, first[3].name = "the same again (control)", "raw sqlite3, writer thread + listing index"
    second = [w.case(f"{w.subject.name} + state") for w in state]
    await interleave([*first, *second, *sync], rounds)
    for writer in (*plain, *state):
        await writer.verify()
    report.cases("Bare commit, one client", [*first, sync[0]], first[0])
    report.cases("Commit with state, one client", [*second, sync[1]], second[0])
    _promise_one_client(report, first, second, sync[0])
    for subject in (inline, thread, control, listed, ours, peer, blocking):
        await subject.close()


def _promise_one_client(report: Report, first: list[Case], second: list[Case], sync: Case) -> None:
    thread, inline, _, _, ours, peer = first
    report.promise("one client, bare, vs raw through a thread", 0.8, speed(ours, thread), at_least=True)
    report.promise("one client, with state, vs raw through a thread", 0.75, speed(second[2], second[0]), at_least=True)
    report.promise("one client, bare, vs raw inline", None, speed(ours, inline), at_least=True)
    report.promise("one client, bare, sync face (inline) vs raw inline", 0.65, speed(sync, inline), at_least=True)
    report.promise("one client, bare, vs openai SQLiteSession", 1.15, speed(ours, peer), at_least=True)
    rows = [
        [name, duration(face.median), times(speed(face, ours).median), times(speed(face, inline).median)]
        for name, face in (("async", ours), ("sync", sync))
    ]
    report.table(
        "Sync face beside the async one, bare", ["face", "median", "speed × async", "speed × raw inline"], rows
    )


class Crowd:
    """`clients` tasks, each committing on a thread of its own.

    Threads live through all rounds, so that a session's connections are open when the clock starts; a subject whose
    commits cost more on longer threads gets new ones each round.
    """

    def __init__(self, subject: Subject, clients: int, each: int, make: Callable[[int], Commit] = bare) -> None:
        self.subject, self.clients, self.each, self.make = subject, clients, each, make
        self.threads: list[str] = []
        self.prepared: list[Any] = []

    async def setup(self) -> None:
        if not self.threads or self.subject.grows:
            self.threads = [fresh_name() for _ in range(self.clients)]
            for thread in self.threads:
                await self.subject.create(thread, history(10))
        make, prepare = self.make, self.subject.prepare
        self.prepared = [[prepare(make(i + k)) for i in range(self.each)] for k in range(self.clients)]

    async def run(self) -> int:
        await asyncio.gather(*map(self._client, self.threads, self.prepared))
        return self.clients * self.each

    async def _client(self, thread: str, prepared: list[Any]) -> None:
        for one in prepared:
            await self.subject.commit(thread, one)


async def many_clients(report: Report, home: Path, page_size: int, *, quick: bool) -> None:
    """1, 16 and 64 concurrent threads against raw group commit and both peers."""
    rounds = 5 if quick else 21
    inline, group = Raw(home / "inline.db", page_size), RawThread(home / "group.db", page_size)
    ours, session = await Perdure.open(home / "perdure.db"), OpenAISession(home / "openai.db")
    graph = await LangGraphSaver.open(home / "langgraph.db")
    for clients, each in ((16, 24), (64, 8)) if quick else ((1, 200), (16, 24), (64, 8)):
        few = max(1, each // 8)
        crowds = [Crowd(s, clients, few if s.grows else each) for s in (group, inline, ours, session, graph)]
        cases = [Case(c.subject.name, c.run, c.setup) for c in crowds]
        cases[0].name = "raw sqlite3, group commit" if clients > 1 else "raw sqlite3, writer thread"
        await interleave(cases, rounds, warmup=2)
        report.cases(f"Bare commits, {clients} concurrent threads", cases, cases[0])
        if clients == 16:
            report.promise("16 threads, bare, vs raw inline", 1.8, speed(cases[2], cases[1]), at_least=True)
            report.promise("16 threads, bare, vs openai SQLiteSession", 2.5, speed(cases[2], cases[3]), at_least=True)
        if clients == 64:
            report.promise("64 threads, bare, vs raw inline", 2.2, speed(cases[2], cases[1]), at_least=True)
            report.promise("64 threads, bare, vs raw group commit", 0.7, speed(cases[2], cases[0]), at_least=True)
    for subject in (inline, group, ours, session, graph):
        await subject.close()


async def growth(report: Report, home: Path, page_size: int, *, quick: bool) -> None:
    """300 single commits around the 10th message, alternating with 300 around the 5,000th; then rows and statements."""
    total = 300
    rows, ratios = [], []
    for subject in (RawThread(home / "raw.db", page_size), await Perdure.open(home / "perdure.db")):
        short, long = await alternate(subject, total, 3 if quick else 6)
        ratio = statistics.median(long) / statistics.median(short)
        ratios.append(ratio)
        rows.append([subject.name, *(duration(statistics.median(x)) for x in (short, long)), times(ratio)])
        await subject.close()
    report.table(f"Growth: medians of {total} commits", ["case", "at the 10th", "at the 5,000th", "ratio"], rows)
    report.promise("growth, 5,000th against 10th message (time)", 1.25, ratios[-1], at_least=False)
    await _exact_counts(report, home)
    await _log_pages(report, home, page_size)


async def alternate(subject: Subject, total: int, long_threads: int) -> tuple[list[float], list[float]]:
    per_short, per_long = 5, total // long_threads
    shorts = [fresh_name() for _ in range(total // per_short)]
    longs = [fresh_name() for _ in range(long_threads)]
    for thread in shorts:
        await subject.create(thread, history(10 - per_short))
    for thread in longs:
        await subject.create(thread, history(5000 - per_long))
    prepared = [subject.prepare(bare(index)) for index in range(2 * total)]
    spent: tuple[list[float], list[float]] = ([], [])
    for index in range(total):
        for which, thread in enumerate((shorts[index % len(shorts)], longs[index % long_threads])):
            started = time.perf_counter()
            await subject.commit(thread, prepared[2 * index + which])
            spent[which].append(time.perf_counter() - started)
    return spent


async def _exact_counts(report: Report, home: Path) -> None:
    """Statements and rows changed by one commit, traced on the real connections: no noise in these."""
    with statement_counter() as counter:
        subject = await Perdure.open(home / "counted.db")
        rows, seen = [], []
        for make, label in ((bare, "bare"), (with_state, "with state")):
            for length in (10, 5000):
                thread = fresh_name()
                await subject.create(thread, history(length - 2))
                await subject.commit(thread, subject.prepare(make(0)))
                before = counter.now()
                await subject.commit(thread, subject.prepare(make(1)))
                after = counter.now()
                seen.append((after.statements - before.statements, after.rows - before.rows))
                rows.append([f"{label} at {length:,}", *(str(n) for n in seen[-1])])
        await subject.close()
    same = seen[0] == seen[1] and seen[2] == seen[3]
    report.table("Growth: what one commit executes", ["commit", "statements", "rows changed"], rows)
    report.promise("growth, rows and statements identical (1 = yes)", 1.0, float(same), at_least=True)


async def _log_pages(report: Report, home: Path, page_size: int) -> None:
    """Pages that one commit adds to the write-ahead log: what the disk is asked to sync, exactly."""
    subjects: list[FileSubject] = [
        Raw(home / "a.db", page_size),
        Raw(home / "b.db", page_size, listing=True),
        await Perdure.open(home / "c.db"),
    ]
    names = ("raw sqlite3", "raw sqlite3 + listing index", "perdure")
    rows = []
    for name, subject in zip(names, subjects, strict=True):
        log = Path(f"{subject.path}-wal")
        for make, label in ((bare, "bare"), (with_state, "with state")):
            thread, sizes = fresh_name(), []
            await subject.create(thread, history(10))
            for index in range(30):  # few enough that no checkpoint starts the log again
                await subject.commit(thread, subject.prepare(make(index)))
                sizes.append(await asyncio.to_thread(log.stat))
            pages = (sizes[-1].st_size - sizes[9].st_size) / (20 * (page_size + 24))
            rows.append([f"{name}, {label}", f"{pages:.1f}", f"{pages * page_size / 1024:.0f} KB"])
        await subject.close()
    report.table("What one commit writes to the log", ["commit", "pages", "bytes"], rows)
