"""What opening a file would do to its schema, told without doing it."""

from __future__ import annotations

from perdure.engines.shared.migrations import additions, parse_declaration
from perdure.engines.sql.embedded.schema import create_additions, create_all
from perdure.engines.sqlite.connections.connect import file_size, retry_busy, still_connection
from perdure.engines.sqlite.errors import DRIVER_ERRORS, translate
from perdure.engines.sqlite.migrate import inspect
from perdure.engines.sqlite.target import usable_path
from perdure.kernel.engine import Migration
from perdure.kernel.schema import Schema


def plan(path: str, schema: Schema) -> Migration:
    """The statements that stand between the file and this schema; nothing on disk is touched."""
    path = usable_path(path)
    new = Migration("sqlite", None, schema.version, tuple(create_all(schema)))
    if not file_size(path):
        return new
    connection = still_connection(path)
    try:
        recorded = retry_busy(lambda: inspect(connection, path, schema), path)
        if recorded is None:
            return new
        added = additions(parse_declaration(recorded.declaration, path), schema)
    except DRIVER_ERRORS as error:
        raise translate(error, path) from error
    finally:
        connection.close()
    return Migration("sqlite", recorded.version, schema.version, tuple(create_additions(added)))
