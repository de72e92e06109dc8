"""One connection to the server, and the only exchange it knows: a packet of statements out, their results back.

Everything that matters is set when it is opened, so that nothing depends on the server's defaults: strict SQL without
surprises in quoting, UTC, READ COMMITTED, bounded lock waits. Text comes back as `str`, bodies as the bytes they are.
A connection that broke, timed out or was cancelled in the middle of an exchange is `broken` and never used again; nor
is one that was given back in the middle of a transaction.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import asyncmy
from asyncmy.constants import FIELD_TYPE

from perdure import limits
from perdure.engines.mysql.connections.login import Meter, asks_for_password, password_for, tls_context
from perdure.engines.mysql.connections.sockets import open_socket
from perdure.engines.mysql.errors import (
    DRIVER_ERRORS,
    code_of,
    lost,
    no_mysql,
    not_reached,
    translate,
    unreadable,
)
from perdure.engines.mysql.target import Target
from perdure.errors import CorruptError, PerdureError, UnsupportedError

Rows = tuple[tuple[Any, ...], ...]

_INTEGERS = (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.INT24)
_TEXTS = (FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING)
_DECODERS: dict[int, Any] = {**dict.fromkeys(_INTEGERS, int), **dict.fromkeys(_TEXTS, bytes.decode)}
LOCK_WAIT_SECONDS = 1
"""How long one attempt waits for a row lock, on a connection that is nobody else's meanwhile."""
_IDLE_SECONDS = 5
RELIED_ON = {
    "autocommit": "ON",
    "completion_type": "NO_CHAIN",
    "innodb_lock_wait_timeout": str(LOCK_WAIT_SECONDS),
    "sql_auto_is_null": "OFF",
    "sql_big_selects": "ON",
    "sql_mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
    "sql_safe_updates": "OFF",
    "sql_select_limit": "18446744073709551615",
    "time_zone": "+00:00",
    "unique_checks": "ON",
}
"""What every session sets, whatever the server's defaults and its `init_connect` say; `health` reads it back."""
_FLAVOURED = {
    "MariaDB": f"idle_transaction_timeout = {_IDLE_SECONDS}, max_statement_time = 0",
    "MySQL": f"wait_timeout = {6 * _IDLE_SECONDS}, max_execution_time = 0",
}
"""A client that is paused between its two packets holds locks; the server hangs up on it. MySQL can only hang up on
every idle session, which costs no more than opening connections again after a quiet while."""


def _begin_session(name: str, command_timeout: float) -> str:
    """The first packet: everything that a session relies on, then what to know of the server."""
    relied = [f"{variable} = {value if value.isdigit() else repr(value)}" for variable, value in RELIED_ON.items()]
    return (
        f"SET NAMES utf8mb4; SET SESSION {', '.join(relied)}, {_FLAVOURED[name]};"
        f"{set_table_lock_wait(command_timeout)};"
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;"
        "SELECT @@version, @@max_allowed_packet"
    )


def set_table_lock_wait(command_timeout: float) -> str:
    """Wait for the locks of whole tables, such as those of a schema change, for less long than for an answer: a server
    that says no is certain, an answer that does not come is not."""
    return f"SET SESSION lock_wait_timeout = {max(1, int(command_timeout) // 2)}"


_connect: Any = asyncmy.connect  # its stub is narrower than what it takes: bytes for a password, None for autocommit
_STARTING = frozenset({1040, 1053, 1203, 2003, 2006, 2013})
_NEEDS_KEY = "'cryptography' package"
"""The driver's words when a server without TLS wants the password encrypted with a key that it sends."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
LONG_WORK = 24 * 3600.0
"""Seconds for what takes as long as the data is large: changing tables, checking all of them."""
PACKET_NEEDED = 2 * limits.MESSAGE_BYTES + 1024 * 1024
"""A message is the largest thing that cannot be split over packets; quoting can double it."""


class Wire:
    """An open connection. `answered` counts the statements of the last packet that the server has answered."""

    def __init__(self, connection: Any, target: Target, version: str, packet_bytes: int) -> None:
        self._connection = connection
        self._where = target.shown
        self.timeout = target.command_timeout
        self.version = version
        self.packet_bytes = packet_bytes
        self.answered = 0
        self.broken = False
        self._loop = asyncio.get_running_loop()
        self._used_at = self._loop.time()

    @property
    def idle_seconds(self) -> float:
        """How long ago the last answer came."""
        return self._loop.time() - self._used_at

    async def run(self, sql: str, *, timeout: float | None = None) -> list[Rows]:
        """Send one packet of statements and read every result; the rows of those that have any, in order.

        An answer may take `command_timeout`, unless another `timeout` is given.
        """
        connection = self._connection
        found: list[Rows] = []
        statements = sql.count(";") + 1  # or fewer: text may hold semicolons too
        self.answered = 0
        self.broken = True
        try:
            async with asyncio.timeout(self.timeout if timeout is None else timeout):
                await connection.query(sql)
                while True:
                    self.answered += 1
                    result = connection._result  # noqa: SLF001 - a cursor would only wrap it
                    if result.rows is not None:
                        found.append(result.rows)
                    if not result.has_next:
                        break
                    if self.answered == statements:
                        raise ValueError("there are more results than statements")
                    await connection.next_result()
        except DRIVER_ERRORS as error:
            # An error that the server itself reports ends the packet and leaves the connection in order.
            self.broken = lost(error)
            raise
        except UnicodeDecodeError as error:
            raise CorruptError(f"a text column holds bytes that are not text: {error}", where=self._where) from error
        except UnicodeEncodeError:
            raise  # nothing was sent
        except Exception as error:
            # The driver's own words for a server that breaks the protocol, or that asks for a local file.
            raise unreadable(error) from error
        self.broken = False
        self._used_at = self._loop.time()
        return found

    async def undo(self) -> None:
        """Roll back; a connection that cannot even do that is cut off, which rolls back too."""
        if not self.broken:
            try:
                await self.run("ROLLBACK")
            except DRIVER_ERRORS:
                self.abort()

    def abort(self) -> None:
        """Cut the connection off where it stands."""
        self.broken = True
        transport = self._connection._transport  # noqa: SLF001 - its own close would first send what is still buffered
        if transport is not None:
            transport.abort()
        self._connection.close()

    async def goodbye(self) -> None:
        """Close politely, with bounded patience."""
        try:
            async with asyncio.timeout(1):
                await self._connection.ensure_closed()
        except DRIVER_ERRORS:
            self.abort()
        except BaseException:
            self.abort()  # cancelled: nobody will close it any more
            raise

    @property
    def in_transaction(self) -> bool:
        """What the server said last: whether a transaction is open."""
        return bool(self._connection.get_transaction_status())

    @property
    def closed(self) -> bool:
        """True when nothing may be sent any more: it broke, or the other side is known to have hung up."""
        return self.broken or not self._connection.connected or self._connection._stream_broken  # noqa: SLF001


async def open_wire(target: Target) -> Wire:
    """Connect, trying again while a server restarts, for as long as `connect_timeout`."""
    deadline = time.monotonic() + target.connect_timeout
    pause = _FIRST_PAUSE
    while True:
        try:
            return await _open_once(target, max(0.05, deadline - time.monotonic()))
        except DRIVER_ERRORS as error:
            if code_of(error) not in _STARTING:
                raise translate(error, target.shown) from error
            if time.monotonic() + pause >= deadline:
                raise not_reached(error, target.shown, target.connect_timeout) from error
        except PerdureError:
            raise
        except Exception as error:
            if _NEEDS_KEY in str(error):
                raise _wants_key(target) from error
            raise no_mysql(error, target.shown) from error
        await asyncio.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _wants_key(target: Target) -> PerdureError:
    if not target.allow_cleartext:
        return asks_for_password(target.shown)
    return UnsupportedError(
        f"{target.shown} wants the password encrypted with its key, and the package cryptography is not installed",
        hint="pip install cryptography, or use TLS",
    )


async def _open_once(target: Target, patience: float) -> Wire:
    meter = Meter()
    try:
        async with asyncio.timeout(patience):
            connection = await _log_in(target, patience, meter)
            try:
                wire = Wire(connection, target, "", 0)
                name, _ = flavour(connection.get_server_info())
                ((version, packet_bytes),) = (await wire.run(_begin_session(name, target.command_timeout)))[0]
                wire.version, wire.packet_bytes = str(version), int(packet_bytes)
            except BaseException:
                connection.close()
                raise
    except DRIVER_ERRORS as error:
        if meter.offence is not None:
            # No server that is about to restart does that.
            raise no_mysql(OSError(meter.offence), target.shown) from error
        raise
    return wire


async def _log_in(target: Target, patience: float, meter: Meter) -> Any:
    """A connection of the driver's, past the login."""
    own = None
    if target.unix_socket is None and not target.encrypts:
        own = await open_socket(target.host, target.port, meter)
    task = asyncio.current_task()
    cancelled = task.cancelling() if task is not None else 0
    connection = await _connect(
        sock=own,
        host=target.host,
        port=target.port,
        user=target.user,
        password=password_for(target),
        database=target.database,
        unix_socket=target.unix_socket,
        charset="utf8mb4",
        use_unicode=False,
        conv=_DECODERS,
        autocommit=None,
        connect_timeout=patience,
        ssl=tls_context(target, meter),
    )
    meter.logged_in()
    if task is not None and task.cancelling() > cancelled:
        # The driver's `wait_for` loses a cancellation that comes as its work ends (Python 3.11).
        connection.close()
        raise asyncio.CancelledError
    return connection


def flavour(version: str) -> tuple[str, tuple[int, ...]]:
    """`MariaDB` or `MySQL`, and the version as numbers."""
    numbers = version.partition("-")[0].split(".")
    return ("MariaDB" if "mariadb" in version.lower() else "MySQL"), tuple(int(n) for n in numbers if n.isdigit())


def refuse_unless_able(wire: Wire, where: str) -> None:
    """Raise unless the server is recent enough and takes packets as large as a commit may need."""
    name, version = flavour(wire.version)
    if version < ((10, 6) if name == "MariaDB" else (8, 0)):
        raise UnsupportedError(
            f"{where} runs {name} {wire.version}, which cannot skip locked rows",
            hint="MariaDB 10.6, MySQL 8.0 or later",
        )
    if wire.packet_bytes < PACKET_NEEDED:
        raise UnsupportedError(
            f"{where} takes packets of at most {wire.packet_bytes} bytes; a message needs up to {PACKET_NEEDED}",
            hint="set max_allowed_packet=16M (or more) on the server",
        )
