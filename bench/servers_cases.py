"""What is measured on every server: commits of one client, of a crowd, of a thread that grows; and whole loads.

Each function is given its subjects with the raw baseline first and Perdure second, runs them interleaved, prints the
comparison and returns the cases, so that the engine's own module holds them against its targets.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from commits import Crowd, Writer, alternate, fresh_name
from harness import Case, Subject, interleave
from lengths import LongWriter
from peers_servers import OpenAIOnServer
from reads import repeated
from report import Report, duration, times
from workload import Commit, bare, history, with_state


async def one_client(
    report: Report, title: str, subjects: list[Subject], *, rounds: int, state: int = 2, count: int = 100
) -> tuple[list[Case], list[Case]]:
    """Bare commits of every subject, and commits with state of the first `state` of them."""
    plain = [Writer(subject, bare, count) for subject in subjects]
    full = [Writer(subject, with_state, count) for subject in subjects[:state]]
    first = [writer.case() for writer in plain]
    second = [writer.case(f"{writer.subject.name} + state") for writer in full]
    await interleave([*first, *second], rounds)
    for writer in (*plain, *full):
        await writer.verify()
    report.cases(f"{title}: bare commit, one client", first, first[0])
    report.cases(f"{title}: commit with state, one client", second, second[0])
    return first, second


async def crowd(
    report: Report, title: str, subjects: list[Subject], make: Callable[[int], Commit], *, clients: int, rounds: int
) -> list[Case]:
    """`clients` tasks on threads of their own."""
    each = max(4, 512 // clients)
    slow = max(1, each // 4)
    crowds = [Crowd(s, clients, slow if isinstance(s, OpenAIOnServer) else each, make) for s in subjects]
    cases = [Case(one.subject.name, one.run, one.setup) for one in crowds]
    await interleave(cases, rounds, warmup=2)
    what = "bare commits" if make is bare else "commits with state"
    report.cases(f"{title}: {what}, {clients} concurrent threads", cases, cases[0])
    return cases


async def growth(report: Report, title: str, subjects: list[Subject], *, total: int, long_threads: int) -> float:
    """Single commits around the 10th message alternating with some around the 5,000th; answers the last ratio."""
    rows, ratio = [], float("nan")
    for subject in subjects:
        short, long = await alternate(subject, total, long_threads)
        ratio = statistics.median(long) / statistics.median(short)
        rows.append([subject.name, *(duration(statistics.median(x)) for x in (short, long)), times(ratio)])
    head = ["case", "at the 10th", "at the 5,000th", "ratio"]
    report.table(f"{title}: growth, medians of {total} commits", head, rows)
    return ratio


async def long_threads(report: Report, title: str, subjects: list[Subject], *, length: int, rounds: int) -> list[Case]:
    """Bare commits on threads of `length` messages."""
    writers = [LongWriter(subject, bare, 3 if subject.grows else 50, length) for subject in subjects]
    cases = [writer.case() for writer in writers]
    await interleave(cases, rounds)
    report.cases(f"{title}: append to a thread of {length:,} messages", cases, cases[0])
    return cases


async def loads(report: Report, title: str, subjects: list[Subject], *, length: int, rounds: int) -> list[Case]:
    """Every message of a long thread, decoded."""
    thread = fresh_name()
    for subject in subjects:
        await subject.create(thread, history(length))
    names = [f"{subjects[0].name}, fetch + decode", *(subject.name for subject in subjects[1:])]
    cases = [
        repeated(name, lambda subject=subject: subject.load(thread), 2, length)
        for name, subject in zip(names, subjects, strict=True)
    ]
    await interleave(cases, rounds)
    report.cases(f"{title}: load of {length:,} messages as decoded records", cases, cases[0], slower=True)
    return cases
