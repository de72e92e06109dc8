"""Looking at a subject's real SQLite connections without touching its code: their settings, and what they execute."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


@contextlib.contextmanager
def recorded_connections(on_open: Callable[[sqlite3.Connection], None] | None = None) -> Iterator[list[Any]]:
    """Collect every connection that is opened inside the block, whoever opens it."""
    opened: list[Any] = []
    real = sqlite3.connect

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = real(*args, **options)
        opened.append(connection)
        if on_open is not None:
            on_open(connection)
        return connection

    sqlite3.connect = connect  # type: ignore[assignment]
    try:
        yield opened
    finally:
        sqlite3.connect = real


class Executed(NamedTuple):
    """Statements run and rows changed so far, over all connections."""

    statements: int
    rows: int


class Counter:
    """What the recorded connections did; statements that a trigger ran inside another are not counted again."""

    def __init__(self) -> None:
        self.connections: list[Any] = []
        self.statements = 0

    def trace(self, statement: str) -> None:
        self.statements += not statement.startswith("--")

    def now(self) -> Executed:
        return Executed(self.statements, sum(connection.total_changes for connection in self.connections))


@contextlib.contextmanager
def statement_counter() -> Iterator[Counter]:
    """Count statements and changed rows of every connection opened inside the block, for as long as it lasts."""
    counter = Counter()
    with recorded_connections(lambda connection: connection.set_trace_callback(counter.trace)) as opened:
        counter.connections = opened
        yield counter


def settings(connection: sqlite3.Connection) -> tuple[str, int, int]:
    """Journal mode, synchronous level (2 is FULL) and page size, as the connection itself reports them."""
    asked = ("journal_mode", "synchronous", "page_size")
    mode, level, page = (connection.execute(f"pragma {name}").fetchone()[0] for name in asked)
    return mode, level, page
