"""What a commit and a load cost in Python, counted and not timed: function calls, memory, and bytes sent.

    python bench/counts.py [--engine sqlite] [--functions] [--repeat 3]

A neighbour on the machine changes no count. *Calls of ours* are starts of functions that `perdure` defines, in every
thread (`tests/support/call_counts.py` has the exact definition), and *functions* is how many different ones they are.
*All calls* adds those of the standard library and of the driver, as far as it is written in Python; *built-ins* are
calls of functions written in C. Memory is *blocks kept*, which the work left allocated, and the *peak*, the most bytes
that it held at any moment. *Bytes sent* are those of the connection, or on SQLite of the write-ahead log. Each of the
three is counted on a thread of its own, after a warm-up, without the housekeeping worker, which works when it likes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import statistics
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from report import render
from wire import Relay
from workload import Commit, Json, bare, turn, with_state

import perdure
from perdure import Message

# A benchmark is run as a file: its own folder is on the path, the repository is not.
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from tests.support.call_counts import CallCounter, call_counter
from tests.support.servers import fresh_database, server

ENGINES = ("memory", "sqlite", "postgres", "redis")
WARM_UP, COMMITS, LOADS, LOADED = 20, 40, 4, 1000
Step = Callable[[], Awaitable[Any]]


class Work(NamedTuple):
    """The arguments of one commit; `steps`: the run makes a step in it."""

    commit: Commit
    steps: bool = True
    keyed: bool = False


COMMIT_CASES: dict[str, Callable[[int], Work]] = {
    "one message, no run": lambda index: Work(Commit(bare(index).messages[:1]), steps=False),
    "one message": lambda index: Work(Commit(bare(index).messages[:1])),
    "bare": lambda index: Work(bare(index)),
    "bare, with a key": lambda index: Work(bare(index), keyed=True),
    "with state": lambda index: Work(with_state(index)),
}
LOAD_CASE = "load of 1,000, per message"


async def committing(store: Any, case: str) -> Step:
    """A step that makes one commit after the other on a thread of its own."""
    thread = await store.threads.create()
    run = await store.runs.start(thread.id, agent_id="bench")
    works = [COMMIT_CASES[case](index) for index in range(WARM_UP + COMMITS)]
    messages = [[Message.from_json(json) for json in work.commit.messages] for work in works]
    keys = [f"{thread.id}-{number:06d}" for number in range(len(works))]
    numbers = iter(range(len(works)))

    async def step() -> None:
        nonlocal run
        number = next(numbers)
        work = works[number]
        receipt = await store.commit(
            run.thread_id,
            messages=messages[number],
            run=run.step(input_tokens=1200, output_tokens=340) if work.steps else None,
            state=work.commit.state or None,
            key=keys[number] if work.keyed else None,
        )
        run = receipt.run or run

    for _ in range(WARM_UP):
        await step()
    return step


def turn_mix(count: int) -> list[Message]:
    """Messages of agent turns: a question, calls of tools, their results, an answer; assistants report their usage."""
    usage = {"input_tokens": 5234, "output_tokens": 411}
    messages: list[Json] = []
    while len(messages) < count:
        messages += [message for commit in turn(len(messages) // 5) for message in commit.messages]
    return [Message.from_json(m | {"usage": usage} if m["role"] == "assistant" else m) for m in messages[:count]]


async def loading(store: Any) -> Step:
    """A step that loads a thread of 1,000 messages."""
    thread = await store.threads.create()
    messages = turn_mix(LOADED)
    for at in range(0, LOADED, 250):
        await store.commit(thread.id, messages=messages[at : at + 250])

    async def step() -> Any:
        loaded = await store.load(thread.id)
        if len(loaded.messages) != LOADED:
            raise RuntimeError(f"{len(loaded.messages)} messages of {LOADED} were loaded")
        return loaded

    for _ in range(2):
        await step()
    return step


class Place:
    """Where an engine keeps its stores: `url()` names one, and `sent()` is how many bytes went there so far."""

    def __init__(self, engine: str, home: Path, server_url: str = "", relay: Relay | None = None) -> None:
        self.engine, self.home, self.relay = engine, home, relay
        self.server_url = server_url
        self.path = home
        self._files = iter(range(10**6))

    def url(self, *, relayed: bool = False) -> str:
        """A store; on SQLite a new one, so that its log has not been written into its file yet."""
        if self.relay is not None:
            return self.relay.url if relayed else self.server_url
        if self.engine == "memory":
            return "memory://"
        self.path = self.home / f"{next(self._files)}.db"
        return f"sqlite:///{self.path}"

    def sent(self) -> int:
        """Bytes sent, or on SQLite the length of the log of the newest store."""
        if self.relay is not None:
            return self.relay.counts.sent
        return 0 if self.engine == "memory" else Path(f"{self.path}-wal").stat().st_size


@contextlib.asynccontextmanager
async def place_of(engine: str) -> AsyncIterator[Place]:
    """A private server, or a folder that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="perdure-counts-") as home:
        if engine in ("memory", "sqlite"):
            yield Place(engine, Path(home))
            return
        url = await fresh_database(server(engine), "counts")
        async with Relay(url) as relay:
            yield Place(engine, Path(home), url, relay)


class Counts(NamedTuple):
    """One row of the table: figures per commit, or per loaded message."""

    ours: float
    functions: int
    calls: float
    builtins: float
    kept: float
    peak: float
    sent: float

    def per(self, many: int) -> Counts:
        """The same for each of many; the functions remain the same."""
        return Counts(self.ours / many, self.functions, *(figure / many for figure in self[2:]))


async def counted(place: Place, case: str, counter: CallCounter) -> Counts:
    """One row: calls, memory and bytes, each on a thread and a connection of its own."""
    opened = perdure.open(place.url(), housekeeping=False)
    async with opened as store:
        times = LOADS if case == LOAD_CASE else COMMITS
        ready = await _ready(store, case)
        with counter.counting():
            for _ in range(times):
                await ready()
        ours = counter.ours
        kept, peak = await _memory(await _ready(store, case), times)
    async with perdure.open(place.url(relayed=True), housekeeping=False) as store:
        ready = await _ready(store, case)
        before = place.sent()
        for _ in range(times):
            await ready()
        sent = (place.sent() - before) / times
    figures = (counter.calls.total() / times, counter.builtins / times, kept, peak, sent)
    counts = Counts(sum(ours.values()) / times, len(ours), *figures)
    return counts.per(LOADED) if case == LOAD_CASE else counts


def _ready(store: Any, case: str) -> Awaitable[Step]:
    return loading(store) if case == LOAD_CASE else committing(store, case)


async def _memory(step: Step, times: int) -> tuple[float, float]:
    """Blocks kept and the peak of bytes per step, as medians: every so often, a dictionary doubles."""
    kept, peaks = [], []
    gc.collect()
    gc.disable()
    for _ in range(times // 2):
        before = sys.getallocatedblocks()
        result = await step()
        kept.append(sys.getallocatedblocks() - before)
        del result
    tracemalloc.start()
    for _ in range(times // 2):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        await step()
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    gc.enable()
    return statistics.median(kept), statistics.median(peaks)


async def measured(engine: str) -> dict[str, Counts]:
    """Every case on one engine."""
    with call_counter() as counter:
        async with place_of(engine) as place:
            return {case: await counted(place, case, counter) for case in (*COMMIT_CASES, LOAD_CASE)}


async def functions(engine: str) -> list[list[str]]:
    """Each function of ours that a bare commit calls, and how often."""
    with call_counter() as counter:
        async with place_of(engine) as place, perdure.open(place.url(), housekeeping=False) as store:
            step = await committing(store, "bare")
            with counter.counting():
                for _ in range(COMMITS):
                    await step()
    return [[f"{count / COMMITS:.2f}", function] for function, count in sorted(counter.ours.items())]


COLUMNS = ["engine", "work", "calls of ours", "functions", "all calls", "built-ins", "blocks kept", "peak", "sent"]


def cells(engine: str, case: str, row: Counts) -> list[str]:
    """A row of figures as text."""
    form = "{:.2f}" if case == LOAD_CASE else "{:.0f}"
    ours, calls, builtins, kept = (form.format(n) for n in (row.ours, row.calls, row.builtins, row.kept))
    sent = "–" if engine == "memory" else f"{row.sent:,.0f} B"
    return [engine, case, ours, str(row.functions), calls, builtins, kept, f"{row.peak / 1024:.1f} KB", sent]


def spreads(engine: str, runs: list[dict[str, Counts]]) -> list[list[str]]:
    """The least and the greatest of each figure over the runs."""
    rows = []
    for case in runs[0]:
        columns = zip(*(run[case] for run in runs), strict=True)
        rows.append([engine, case, *(f"{min(column):.2f}–{max(column):.2f}" for column in columns)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Function calls, memory and bytes per commit and per loaded message.")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="only this engine; may be repeated")
    parser.add_argument("--functions", action="store_true", help="also list the functions that a bare commit calls")
    parser.add_argument("--repeat", type=int, default=1, help="run this many times and print the spread of each figure")
    options = parser.parse_args()
    rows, spread = [], []
    for engine in options.engine or ENGINES:
        runs = [asyncio.run(measured(engine)) for _ in range(options.repeat)]
        rows += [cells(engine, case, row) for case, row in runs[0].items()]
        spread += spreads(engine, runs)
        if options.functions:
            print(f"A bare commit on {engine}", render(["calls", "function"], asyncio.run(functions(engine))), sep="\n")
    print(render(COLUMNS, rows))
    if options.repeat > 1:
        print("\nSpread", render(COLUMNS, spread), sep="\n")


if __name__ == "__main__":
    main()
