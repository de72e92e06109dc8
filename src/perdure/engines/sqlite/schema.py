"""The tables and indexes of a file, compared with the declared ones before any of them is used.

A hostile file can hold a trigger, a view or a constraint, and SQLite would run it with our statements: a commit in one
scope could change another, a read could run forever. So every connection first reads `sqlite_master`, which a file
cannot replace by a view, and refuses objects that are not declared. The text of each object must match word by word;
only the order of columns is free, because `ALTER TABLE … ADD COLUMN` adds a new one at the end.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from perdure.engines.shared.schema_record import META
from perdure.engines.sql.embedded.schema import DDL
from perdure.errors import CorruptError, short_repr
from perdure.kernel.schema import Schema

CREATE_META = f'CREATE TABLE {META} ("name" TEXT PRIMARY KEY NOT NULL, "value" TEXT NOT NULL) WITHOUT ROWID'
# The tables of ANALYZE and AUTOINCREMENT, and those of the backup tool Litestream. All are plain tables that no
# statement of ours names; statistics influence plans, never answers.
_HARMLESS = (
    "CREATE TABLE sqlite_sequence(name,seq)",
    "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "CREATE TABLE sqlite_stat2(tbl,idx,sampleno,sample)",
    "CREATE TABLE sqlite_stat3(tbl,idx,neq,nlt,ndlt,sample)",
    "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
    "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
    "CREATE TABLE _litestream_lock (id INTEGER)",
)
_NAME = r'"(?:[^"]|"")*"|\w+'
_HEAD = re.compile(rf"CREATE (?:UNIQUE )?(TABLE|INDEX) ({_NAME})(?: ON ({_NAME}))?")
_WORD = re.compile(rf"{_NAME}|\S")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LISTED = 3
_RESTORE = "restore a backup, or move the rows to a new file with the sqlite3 program"


class Object(NamedTuple):
    """A row of `sqlite_master`. In a hostile file each value may be of any type."""

    kind: Any
    name: Any
    table: Any
    sql: Any

    def __str__(self) -> str:
        kind = self.kind if self.kind in ("table", "index", "view", "trigger") else "object"
        return f"{kind} {self.name if _is_plain(self.name) else short_repr(self.name)}"


class Difference(NamedTuple):
    """What is wrong with an object, and what to do about it."""

    problem: str
    hint: str


def read_objects(connection: sqlite3.Connection) -> list[Object]:
    """Everything that the file declares, in order of creation."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    return [Object(*row) for row in rows]


def differences(objects: Sequence[Object], schema: Schema) -> Iterator[Difference]:
    """Every difference between the file and the declarations: foreign, changed and missing objects."""
    declared = {item.name: item for item in _declared(schema)}
    for item in objects:
        expected = declared.pop(item.name, None) if isinstance(item.name, str) else None
        if expected is None and not is_harmless(item):
            yield _foreign(item)
        elif expected is not None and not _is_same(item, expected):
            yield _changed(item, expected)
    for expected in declared.values():
        yield Difference(f"{expected} is missing", _how_to_make(expected))


@lru_cache(maxsize=8)
def _declared(schema: Schema) -> tuple[Object, ...]:
    return tuple(map(_described, (CREATE_META, *DDL.create_all(schema))))


def active(objects: Sequence[Object]) -> Iterator[Difference]:
    """Objects that run code: everything but tables and indexes."""
    for item in objects:
        if item.kind not in ("table", "index") or not isinstance(item.sql, str) or _HEAD.match(item.sql) is None:
            yield _foreign(item)


def refuse(differing: Iterator[Difference], path: str) -> None:
    """Raise if there is a difference; names the first few."""
    listed = list(differing)
    if not listed:
        return
    problems = "; ".join(difference.problem for difference in listed[:_LISTED])
    more = f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    raise CorruptError(f"{problems}{more}", where=path, hint=f"{listed[0].hint}; the file was not changed")


def refuse_foreign_meta(objects: Sequence[Object], path: str) -> None:
    """Raise unless the table that records the schema is as declared: it is read before the rest is checked."""
    expected = _described(CREATE_META)
    refuse((_changed(item, expected) for item in objects if item.name == META and not _is_same(item, expected)), path)


def is_harmless(item: Object) -> bool:
    """Whether the object belongs to SQLite or a known tool."""
    return item.sql in _HARMLESS and item == _described(item.sql)


def _described(sql: str) -> Object:
    """The row of `sqlite_master` that a statement of ours creates."""
    kind, name, table = _HEAD.findall(sql)[0]
    return Object(kind.lower(), _unquoted(name), _unquoted(table or name), sql)


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _is_same(item: Object, expected: Object) -> bool:
    if item == expected:
        return True
    if item[:3] != expected[:3] or not isinstance(item.sql, str) or len(item.sql) > 2 * len(expected.sql):
        return False
    return _parts(item.sql) == _parts(expected.sql)


def _parts(sql: str) -> tuple[list[str], list[list[str]]]:
    """A statement in comparable form: its separators, and its parts with the columns of a table sorted.

    `CREATE TABLE t (b INT, a INT)` becomes `["(", ",", ")"]` and `[[CREATE, TABLE, t], [a, INT], [b, INT], []]`.
    """
    separators: list[str] = []
    parts: list[list[str]] = [[]]
    depth = 0
    for word in _WORD.findall(sql):
        depth -= word == ")"
        if (depth == 0 and word in ("(", ")")) or (depth == 1 and word == ","):
            separators.append(word)
            parts.append([])
        else:
            parts[-1].append(word)
        depth += word == "("
    # The columns of an index keep their order. That of a table's columns does not matter: every statement names them.
    ordered = parts if "INDEX" in parts[0] else [parts[0], *sorted(parts[1:-1]), parts[-1]]
    return separators, ordered


def _foreign(item: Object) -> Difference:
    kind = item.kind.upper() if item.kind in ("table", "index", "view", "trigger") else None
    drop = f" (DROP {kind} {item.name})" if kind is not None and _is_plain(item.name) else ""
    keep = "copy it to a file of its own, then " if item.kind == "table" else ""
    return Difference(
        f"{item} is not part of a Perdure store",
        f"if you added it, {keep}remove it{drop}; otherwise restore a backup",
    )


def _changed(item: Object, expected: Object) -> Difference:
    if item.kind == expected.kind == "index":
        return Difference(f"{item} is not as declared", f"DROP INDEX {item.name}; {_how_to_make(expected)}")
    return Difference(f"{item} is not as declared: it must be a {expected.kind} of Perdure's own making", _RESTORE)


def _how_to_make(expected: Object) -> str:
    return f"run {expected.sql}, or restore a backup" if expected.kind == "index" else _RESTORE


def _is_plain(name: Any) -> bool:
    return isinstance(name, str) and _PLAIN_NAME.fullmatch(name) is not None
