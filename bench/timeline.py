"""The wall clock of one commit, split where it leaves one hand for another: stores, engine, socket, server, and back.

Marks are set from outside, on the event loop's own socket transport and round the engine's `transact`, so the split
means the same for every driver. Between the last byte written and the first byte read the client only waits: that is
the server, its disk and the two wires. With several round trips, their waits are added up; what the client does
between them is its own stage.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from asyncio import selector_events
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from commits import fresh_name
from harness import Subject
from workload import Commit, history

STAGES = (
    "stores, before",
    "engine and driver, before",
    "send",
    "server and wire",
    "between",
    "engine and driver, after",
    "stores, after",
)
Marks = list[tuple[str, float]]


@contextlib.contextmanager
def marked() -> Iterator[Marks]:
    """While it lasts, every write to a socket and every read is noted, of connections that are opened in it."""
    marks: Marks = []
    transport: Any = selector_events._SelectorSocketTransport  # noqa: SLF001 - every driver's bytes pass here
    write, read = transport.write, transport._read_ready  # noqa: SLF001

    def noted_write(self: Any, data: Any) -> None:
        marks.append(("writes", time.perf_counter()))
        write(self, data)
        marks.append(("wrote", time.perf_counter()))

    def noted_read(self: Any) -> None:
        marks.append(("reads", time.perf_counter()))
        read(self)

    transport.write, transport._read_ready = noted_write, noted_read  # noqa: SLF001
    try:
        yield marks
    finally:
        transport.write, transport._read_ready = write, read  # noqa: SLF001


def watch_engine(subject: Any, marks: Marks) -> None:
    """Note when Perdure's stores hand their operations to the engine; a raw subject has no such moment."""
    engine = subject.store.engine

    def noted(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def transact(*arguments: Any, **options: Any) -> Any:
            marks.append(("transacts", time.perf_counter()))
            applied = await inner(*arguments, **options)
            marks.append(("transacted", time.perf_counter()))
            return applied

        return transact

    engine.transact = noted(engine.transact)
    kernel = subject.store._context.kernel  # noqa: SLF001 - which has taken the method for commits of known kinds
    if kernel.fill is not None:
        kernel.fill = noted(kernel.fill)


def split(marks: Marks, began: float, ended: float) -> list[float]:
    """Seconds of each stage of one commit."""
    spent = dict.fromkeys(STAGES, 0.0)
    last, stage = began, "engine and driver, before"
    for kind, at in marks:
        if kind == "transacts":
            stage = "stores, before"
        elif kind == "transacted":
            stage = "engine and driver, after"
        elif kind == "reads":
            stage = "server and wire"  # also when the answer comes in pieces
        elif kind == "writes" and spent["send"]:
            stage = "between"
        spent[stage] += at - last
        stage = _NEXT[kind]
        last = at
    spent["engine and driver, after" if stage == "between" else "stores, after"] += ended - last
    return list(spent.values())


_NEXT = {
    "transacts": "engine and driver, before",
    "writes": "send",
    "wrote": "server and wire",
    "reads": "between",
    "transacted": "stores, after",
}


async def timeline(open_subject: Callable[[], Awaitable[Subject]], make: Callable[[int], Commit]) -> list[float]:
    """Medians over many commits of one client."""
    with marked() as marks:
        subject = await open_subject()
        if hasattr(subject, "store"):
            watch_engine(subject, marks)
        thread, seen = fresh_name(), []
        await subject.create(thread, history(10))
        prepared = [subject.prepare(make(index)) for index in range(1000)]
        for one in prepared:
            marks.clear()
            began = time.perf_counter()
            await subject.commit(thread, one)
            seen.append(split(marks, began, time.perf_counter()))
        await subject.close()
    return [statistics.median(column) for column in zip(*seen[200:], strict=True)]
