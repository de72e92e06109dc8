"""One connection to the server, and the only exchange it knows: a packet of statements out, their results back.

Text comes back as `str`, bodies as the bytes they are. A connection that broke, timed out or was cancelled in the
middle of an exchange is `broken` and never used again. `connect` opens connections; this module uses them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.engines.mysql.connections.driver import DriverConnection, Rows, has_rows
from perdure.engines.mysql.errors import DRIVER_ERRORS, lost, unreadable
from perdure.engines.mysql.target import Target
from perdure.errors import CorruptError, PerdureError

_QUIT_SECONDS = 1


class Connection:
    """An open connection. `answered` counts the statements of the last packet that the server has answered."""

    def __init__(self, driver: DriverConnection, transport: asyncio.Transport, target: Target) -> None:
        self._driver = driver
        self._transport = transport
        self._where = target.display_url
        self.timeout = target.command_timeout
        self.version: str = driver.get_server_info()
        self.packet_bytes = 0
        self.answered = 0
        self.broken = False
        self._loop = asyncio.get_running_loop()
        self._used_at = self._loop.time()

    @property
    def idle_seconds(self) -> float:
        """How long ago the last answer came."""
        return self._loop.time() - self._used_at

    async def run(self, sql: str, *, timeout: float | None = None) -> list[Rows]:
        """Send one packet of statements and read every result; returns the rows of those that have any, in order.

        An answer may take `command_timeout`, or `timeout` if that is set.
        """
        self.answered = 0
        self.broken = True
        try:
            async with asyncio.timeout(self.timeout if timeout is None else timeout):
                results = await self._exchange(sql)
        except DRIVER_ERRORS as error:
            # An error that the server itself reports ends the packet and leaves the connection in order.
            self.broken = lost(error)
            raise
        except UnicodeDecodeError as error:
            raise CorruptError(f"a text column holds bytes that are not text: {error}", where=self._where) from error
        except (UnicodeEncodeError, PerdureError):
            raise  # nothing was sent, or a caller's pool converts values in a way of its own
        except Exception as error:
            # The driver's own words for a server that breaks the protocol, or that asks for a local file.
            raise unreadable(error) from error
        self.broken = False
        self._used_at = self._loop.time()
        return results

    async def _exchange(self, sql: str) -> list[Rows]:
        return await self._results(self._driver.cursor(), sql, sql)

    async def _results(self, cursor: Any, sql: str, packet: str | bytes) -> list[Rows]:
        statements = sql.count(";") + 1  # or fewer: text may hold semicolons too
        results: list[Rows] = []
        await cursor.execute(packet)
        while True:
            self.answered += 1
            if self.answered > statements:
                raise ValueError("there are more results than statements")
            if has_rows(cursor):
                results.append(self._rows(cursor, await cursor.fetchall()))
            if not await cursor.nextset():
                return results

    def _rows(self, cursor: Any, rows: Rows) -> Rows:
        """The rows of a result, as the engine expects them."""
        return rows

    async def roll_back(self) -> None:
        """Roll back; a connection that cannot do even that is aborted, which rolls back too."""
        if not self.broken:
            try:
                await self.run("ROLLBACK")
            except DRIVER_ERRORS:
                self.abort()

    def abort(self) -> None:
        """Terminate the connection at once; what is still buffered is not sent."""
        self.broken = True
        self._transport.abort()
        self._driver.close()

    async def close(self) -> None:
        """Close gracefully, within a second."""
        try:
            async with asyncio.timeout(_QUIT_SECONDS):
                await self._driver.ensure_closed()
        except DRIVER_ERRORS:
            self.abort()
        except BaseException:
            self.abort()  # cancelled: this is the last chance to close it
            raise

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, as the server last reported."""
        return bool(self._driver.get_transaction_status())

    @property
    def closed(self) -> bool:
        """Whether nothing may be sent any more: it broke, or the server is known to have hung up."""
        return self.broken or not self._driver.connected or self._transport.is_closing()
