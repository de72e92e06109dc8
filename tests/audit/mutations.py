"""Every way to damage one row of a file: each column in turn, the body, the row as a whole.

A mutation is an SQL statement with its arguments. What the file itself refuses (NULL in a key, a name that is taken)
cannot happen, and is left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure import limits
from perdure.kernel.schema import Log, Table
from perdure.stores.schema import SCHEMA

SCOPE = "default"
NOT_UTF8 = b"\xff"
DEEP = "[" * 50_000 + "]" * 50_000
INTEGERS: dict[str, Any] = {"null": None, "negative": -1, "huge": limits.INTEGER_MAX + 1, "type": "abc"}
TEXTS: dict[str, Any] = {"null": None, "empty": "", "control": "a\x1bb", "type": b"\x01"}
BODIES: dict[str, Any] = {"null": None, "object": "{}", "torn": '{"a', "list": "[1]", "text": '"x"', "deep": DEEP}
ONCE = {"encoding", "negative", "huge", "type", "empty", "control", "torn", "text", "deep"}
"""Damage that no other row can excuse: done to the first row that it changes, the rest of it to every row."""

DYING = "dying"
"""A thread that is being erased. Its rows are never read again, so only its tombstone is damaged."""


@dataclass(frozen=True)
class Damage:
    """To which row of which table, to which column (`*`: the whole row), and of what kind."""

    table: str
    column: str
    kind: str
    row: str

    @property
    def cell(self) -> tuple[str, str, str]:
        """What the list of exceptions speaks of."""
        return self.table, self.column, self.kind


@dataclass(frozen=True)
class Mutation(Damage):
    """Damage that an SQL statement does."""

    sql: str
    arguments: tuple[Any, ...]


class File:
    """The damaged file, and the sound copy that it is restored from."""

    def __init__(self, path: Path) -> None:
        pristine = path.with_suffix(".pristine")
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous=OFF")
        with sqlite3.connect(pristine) as copy:
            self._connection.backup(copy)
        copy.close()
        self._connection.execute("ATTACH ? AS pristine", (str(pristine),))
        self._tables = [shape.name for shape in (*SCHEMA.tables, *SCHEMA.logs)]

    def rows(self, table: str, key: tuple[str, ...]) -> list[dict[str, Any]]:
        """The rows of the tests' own scope, in key order."""
        order = ", ".join(f'"{name}"' for name in key)
        found = self._connection.execute(f'SELECT * FROM pristine."{table}" WHERE scope = ? ORDER BY {order}', (SCOPE,))
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def damage(self, mutation: Mutation) -> bool:
        """Do it; False if the file does not allow it, or nothing changes."""
        try:
            return self._connection.execute(mutation.sql, mutation.arguments).rowcount > 0
        except sqlite3.IntegrityError:
            return False

    def restore(self) -> None:
        """Make it whole again."""
        self._connection.execute("BEGIN IMMEDIATE")
        for table in self._tables:
            self._connection.execute(f'DELETE FROM main."{table}"')
            self._connection.execute(f'INSERT INTO main."{table}" SELECT * FROM pristine."{table}"')
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def mutations(file: File, shape: Table | Log) -> Iterator[Mutation]:
    """Every mutation of every row of a table or log."""
    key = (shape.partition, "seq") if isinstance(shape, Log) else shape.key_names
    rows = [row for row in file.rows(shape.name, key) if row.get("thread") != DYING or shape.name == "threads"]
    done: set[tuple[str, str, str]] = set()
    # First what the probes look at most: the rows of `t`, and of its runs the running one.
    for row in sorted(rows, key=lambda row: (row.get("thread", row.get("owner")) != "t", row.get("run") != "running")):
        for mutation in (*_columns(shape, key, row, rows), *_whole(shape, key, row)):
            once = mutation.kind in ONCE or mutation.column == "rev"
            if not once or mutation.cell not in done:
                done.add(mutation.cell)
                yield mutation


def _columns(
    shape: Table | Log, key: tuple[str, ...], row: dict[str, Any], rows: list[dict[str, Any]]
) -> Iterator[Mutation]:
    kinds = {"scope": "text", **shape.types, "rev": "int"}
    if isinstance(shape, Log):
        kinds |= {shape.partition: "text", "seq": "int"}
    for column, kind in kinds.items():
        values = dict(INTEGERS if kind == "int" else TEXTS)
        values["other"] = other(row[column], kind)
        if column == "rev":
            values["huge"] = 2**53
        swapped = next((r[column] for r in rows if r[column] != row[column]), None)
        if swapped is not None:
            values["swapped"] = swapped
        for name, value in values.items():
            if value != row[column]:
                yield update(shape.name, key, row, (column, name), value)
        if kind == "text":
            yield update(shape.name, key, row, (column, "encoding"), NOT_UTF8)
    for name, body in BODIES.items():
        if body != row["body"]:
            yield update(shape.name, key, row, ("body", name), body)


def other(value: Any, kind: str) -> Any:
    if kind == "int":
        return 1 if value is None else value + 1
    return "x" if value is None else value + "x"


def update(table: str, key: tuple[str, ...], row: dict[str, Any], damage: tuple[str, str], value: Any) -> Mutation:
    where = " AND ".join(f'"{name}" = ?' for name in ("scope", *key))
    mark = "CAST(? AS TEXT)" if value is NOT_UTF8 else "?"
    sql = f'UPDATE main."{table}" SET "{damage[0]}" = {mark} WHERE {where}'
    return Mutation(table, *damage, _name(key, row), sql, (value, SCOPE, *[row[name] for name in key]))


def _whole(shape: Table | Log, key: tuple[str, ...], row: dict[str, Any]) -> Iterator[Mutation]:
    where = " AND ".join(f'"{name}" = ?' for name in ("scope", *key))
    place = (SCOPE, *[row[name] for name in key])
    yield Mutation(shape.name, "*", "deleted", _name(key, row), f'DELETE FROM main."{shape.name}" WHERE {where}', place)
    last = key[-1]
    twin = {**row, last: row[last] + (100 if isinstance(row[last], int) else "x")}
    if isinstance(shape, Log):
        twin["id"] = f"{row['id']}x"
    for kind, copy in (("twin", twin), ("orphan", {**twin, "thread": "nobody"})):
        if kind == "orphan" and (key == ("thread",) or "thread" not in row):
            continue  # the twin is one already, or it belongs to no thread
        marks = ", ".join("?" * len(copy))
        names = ", ".join(f'"{name}"' for name in copy)
        sql = f'INSERT INTO main."{shape.name}" ({names}) VALUES ({marks})'
        yield Mutation(shape.name, "*", kind, _name(key, row), sql, tuple(copy.values()))


def _name(key: tuple[str, ...], row: dict[str, Any]) -> str:
    return "/".join(str(row[name]) for name in key)
