"""Which schema a file holds, and how it becomes the one this build declares.

`perdure_meta` records version, declaration and digest. A newer version, a foreign database and a file that is not
SQLite are refused before anything is written to them. An older version is brought up to date by adding, in one
transaction: killed half way, it is as old as it was. Two processes that open an old file at once are serialised by
the write lock, and the second finds the work done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from perdure import failpoints
from perdure.engines.sql.record import META, Recorded, facts, missing, recorded_from, refuse_unless_usable
from perdure.engines.sqlite.connect import PAGE_SIZE, retry_busy, use_wal
from perdure.engines.sqlite.layout import create_additions, create_all
from perdure.engines.sqlite.translate import translate
from perdure.errors import PerdureError, UnsupportedError
from perdure.kernel.schema import Schema

__all__ = ["prepare", "read_recorded", "refuse_unless_usable"]

_CREATE_META = f'CREATE TABLE {META} ("name" TEXT PRIMARY KEY NOT NULL, "value" TEXT NOT NULL) WITHOUT ROWID'


def prepare(connection: sqlite3.Connection, path: str, schema: Schema) -> None:
    """Make the file hold this schema, or refuse it untouched."""
    try:
        recorded = retry_busy(lambda: read_recorded(connection, path), path)
        if recorded is not None:
            refuse_unless_usable(recorded, schema, path)
        else:
            connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
        use_wal(connection, path)
        if recorded is None or recorded.version < schema.version:
            _bring_up_to_date(connection, path, schema)
    except (sqlite3.Error, OSError) as error:
        raise translate(error, path) from error


def read_recorded(connection: sqlite3.Connection, path: str) -> Recorded | None:
    """What the file records; None for an empty file."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if not names:
        return None
    if META not in names:
        raise UnsupportedError(
            f"{path} is a SQLite database of another program (its tables: {', '.join(sorted(names)[:5])})",
            hint="choose another file name; this one was not changed",
        )
    return recorded_from(dict(connection.execute(f'SELECT "name", "value" FROM {META}').fetchall()), path)


def _bring_up_to_date(connection: sqlite3.Connection, path: str, schema: Schema) -> None:
    retry_busy(lambda: connection.execute("BEGIN IMMEDIATE"), path)
    try:
        # Another process may have been quicker: only what is recorded under the write lock counts.
        recorded = read_recorded(connection, path)
        if recorded is None:
            _write(connection, [_CREATE_META, *create_all(schema)], schema)
        else:
            refuse_unless_usable(recorded, schema, path)
            _write(connection, create_additions(missing(recorded, schema, path)), schema)
        connection.execute("COMMIT")
    except (sqlite3.Error, OSError, PerdureError):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write(connection: sqlite3.Connection, statements: Iterable[str], schema: Schema) -> None:
    for statement in statements:
        connection.execute(statement)
        failpoints.hit("sqlite.in_migration")
    connection.executemany(f"INSERT OR REPLACE INTO {META} VALUES (?, ?)", facts(schema).items())
