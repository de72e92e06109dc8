"""asyncmy as this engine uses it: its public API, and the two spots where that API says less than we need.

- A cursor fetches the warnings of the last statement in an extra round trip. `DriverConnection` answers without one.
- No documented call leads to the transport, and `close()` first sends what is still buffered: perhaps a COMMIT that
  was reported as failed. `connect()` on an open connection returns the protocol and the transport.

`tests/engines/test_mysql_driver.py` fails if a new release of asyncmy changes either of them.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from asyncmy.connection import Connection
from asyncmy.cursors import Cursor

Rows = tuple[tuple[Any, ...], ...]


class DriverConnection(Connection):
    """A connection whose cursors never ask for warnings."""

    async def show_warnings(self) -> None:
        """No warnings: an extra round trip for text that nothing reads."""


async def transport_of(connection: Connection) -> asyncio.Transport:
    """The transport of an open connection; `TypeError` if the driver returns anything else."""
    opened: Any = await connection.connect()
    transport: Any = opened[1] if isinstance(opened, tuple) and len(opened) == 2 else None
    # Not isinstance: transports of other event loops do not inherit from asyncio's.
    if not (hasattr(transport, "abort") and hasattr(transport, "is_closing")):
        raise TypeError("this release of asyncmy does not return its transport from connect()")
    return cast("asyncio.Transport", transport)


def has_rows(cursor: Cursor) -> bool:
    """True if the result that a cursor is at has rows, however few; False after a statement that returns none."""
    description: Any = cursor.description  # the driver's stub does not know None
    return description is not None
