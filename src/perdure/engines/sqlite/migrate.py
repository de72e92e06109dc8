"""Migrations of a file: which schema it holds, and how it becomes the one this build declares.

`perdure_meta` records version, declaration and digest. A newer version, the database of another program, a file that
is not SQLite and one whose tables are not as declared are refused before anything is written to them. An older version
is brought up to date by adding, in one transaction: a process killed in the middle leaves it as it was. Two processes
that open an old file at once are serialised by the write lock, and the second finds the work done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from perdure import failpoints
from perdure.engines.shared.events import EngineLog
from perdure.engines.shared.migrations import parse_declaration
from perdure.engines.shared.schema_record import META, Recorded, facts, missing, recorded_from, refuse_unless_usable
from perdure.engines.sql.embedded.schema import DDL
from perdure.engines.sqlite.connections import connect
from perdure.engines.sqlite.errors import DRIVER_ERRORS, translate
from perdure.engines.sqlite.schema import (
    CREATE_META,
    Object,
    active,
    differences,
    read_objects,
    refuse,
    refuse_foreign_meta,
)
from perdure.engines.sqlite.target import usable_path
from perdure.errors import CorruptError, PerdureError, UnsupportedError, short_repr
from perdure.kernel.engine import Migration
from perdure.kernel.schema import Schema

_OBJECTS_LISTED = 5


def prepare(connection: sqlite3.Connection, path: str, schema: Schema) -> None:
    """Bring the file to this schema, or refuse it unchanged."""
    try:
        recorded = connect.retry_busy(lambda: inspect(connection, path, schema), path)
        connect.lift_bound(connection)
        if recorded is None:
            connection.execute(f"PRAGMA page_size={connect.PAGE_SIZE}")
        connect.use_wal(connection, path)
        if recorded is None or recorded.version < schema.version:
            _bring_up_to_date(connection, path, schema)
    except DRIVER_ERRORS as error:
        raise translate(error, path) from error


def inspect(connection: sqlite3.Connection, path: str, schema: Schema) -> Recorded | None:
    """What the file records, None if it is empty; raises unless this build can use it, as it is or after adding to it.

    An older file is compared with the declaration it records, all of which must be part of this schema.
    """
    with _snapshot(connection):
        objects = read_objects(connection)
        recorded = _read_recorded(connection, path, objects)
        if recorded is None:
            return None
        refuse_unless_usable(recorded, schema, path)
        older = recorded.version < schema.version
        refuse(differences(objects, parse_declaration(recorded.declaration, path) if older else schema), path)
    return recorded


def plan(path: str, schema: Schema) -> Migration:
    """What opening would do to bring the file to this schema; changes nothing on disk."""
    path = usable_path(path)
    recorded = None
    if connect.file_size(path):
        connection = connect.still_connection(path)
        try:
            recorded = connect.retry_busy(lambda: inspect(connection, path, schema), path)
        except DRIVER_ERRORS as error:
            raise translate(error, path) from error
        finally:
            connection.close()
    version = None if recorded is None else recorded.version
    return Migration("sqlite", version, schema.version, tuple(_statements(recorded, schema, path)))


def _statements(recorded: Recorded | None, schema: Schema, path: str) -> Iterator[str]:
    """The statements that bring what is recorded to this schema."""
    if recorded is None:
        return DDL.create_all(schema)
    return DDL.create_additions(missing(recorded, schema, path))


class Inspector:
    """Checks the tables of a file for each new connection of an open store: they may have changed since the last."""

    def __init__(self, path: str, schema: Schema) -> None:
        self._path = path
        self._schema = schema
        self._accepted: list[Object] | None = None

    def inspect(self, connection: sqlite3.Connection) -> None:
        """Raise unless the tables are those of this schema; fast if they have not changed since the last check."""
        path, schema = self._path, self._schema
        with _snapshot(connection):
            objects = read_objects(connection)
            if objects == self._accepted:
                return
            recorded = _read_recorded(connection, path, objects)
            if recorded is None:
                raise UnsupportedError(
                    f"{path} is empty",
                    hint="run perdure migrate, or open it without read_only: that creates the tables",
                )
            if self._accepted is not None and recorded.version > schema.version:
                # A newer build has migrated the file since this store was opened. It only adds tables, columns and
                # indexes, which do not affect this build.
                refuse(active(objects), path)
                return
            refuse_unless_usable(recorded, schema, path)
            if recorded.version < schema.version:
                raise UnsupportedError(
                    f"{path} holds schema version {recorded.version}, this build reads {schema.version}",
                    hint="run perdure migrate, or open it once without read_only: that brings it up to date",
                )
            refuse(differences(objects, schema), path)
            self._accepted = objects


def read_recorded(connection: sqlite3.Connection, path: str) -> Recorded | None:
    """What the file records about its schema; None for an empty file."""
    with _snapshot(connection):
        return _read_recorded(connection, path, read_objects(connection))


def _read_recorded(connection: sqlite3.Connection, path: str, objects: Sequence[Object]) -> Recorded | None:
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    if encoding != "UTF-8":
        raise CorruptError(f"its text is {encoding}; a Perdure store is UTF-8", where=path, hint="restore a backup")
    if not objects:
        return None
    if not any(item.name == META for item in objects):
        listed = ", ".join(sorted(str(item) for item in objects)[:_OBJECTS_LISTED])
        raise UnsupportedError(
            f"{path} is a SQLite database of another program (it holds: {listed})",
            hint="choose another file name; this one was not changed",
        )
    refuse_foreign_meta(objects, path)
    rows = connection.execute(f'SELECT "name", "value" FROM {META} LIMIT 100').fetchall()
    other = [value for row in rows for value in row if not isinstance(value, str)]
    if other:
        raise CorruptError(f"{META} holds {short_repr(other[0])}, not text", where=path, hint="restore a backup")
    return recorded_from(dict(rows), path)


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """One snapshot for several reads: another process may be migrating the file."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _bring_up_to_date(connection: sqlite3.Connection, path: str, schema: Schema) -> None:
    connect.retry_busy(lambda: connection.execute("BEGIN IMMEDIATE"), path)
    try:
        # Another process may have been faster: only what is recorded under the write lock counts.
        recorded = inspect(connection, path, schema)
        if recorded is None:
            connection.execute(CREATE_META)
        for statement in _statements(recorded, schema, path):
            connection.execute(statement)
            failpoints.hit("sqlite.in_migration")
        connection.executemany(f"INSERT OR REPLACE INTO {META} VALUES (?, ?)", facts(schema).items())
        connection.execute("COMMIT")
        if recorded is None or recorded.version < schema.version:
            EngineLog("sqlite", path).migrated(None if recorded is None else recorded.version, schema.version)
    except (*DRIVER_ERRORS, PerdureError):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
