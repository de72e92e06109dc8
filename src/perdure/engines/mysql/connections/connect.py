"""Opening a connection: socket, login, and the settings of its session.

Everything that matters is set here, so that nothing depends on the server's defaults: strict SQL without surprises in
quoting, UTC, READ COMMITTED, bounded lock waits. While a server restarts, connecting is retried until
`connect_timeout` is over; a refusal that lasts (login, TLS, unknown host) is raised at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, NamedTuple

from asyncmy.constants import FIELD_TYPE

from perdure import limits
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.driver import DriverConnection, transport_of
from perdure.engines.mysql.connections.login import Meter, asks_for_password, password_for, tls_context
from perdure.engines.mysql.connections.sockets import open_socket
from perdure.engines.mysql.errors import DRIVER_ERRORS, code_of, not_mysql, not_reached, translate
from perdure.engines.mysql.target import Target
from perdure.errors import PerdureError, UnsupportedError

INTEGERS = (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.INT24)
TEXTS = (FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING)
"""How columns of numbers and of short text are told apart from others."""
_DECODERS: dict[int, Any] = {**dict.fromkeys(INTEGERS, int), **dict.fromkeys(TEXTS, bytes.decode)}
LOCK_WAIT_SECONDS = 1
"""How long one attempt waits for a row lock; it occupies its connection for that long."""
_IDLE_SECONDS = 5
SESSION_SETTINGS = {
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
"""Set in every session, whatever the server's defaults and its `init_connect` are; `health` reads them back."""
_IDLE_LIMITS = {
    "MariaDB": f"idle_transaction_timeout = {_IDLE_SECONDS}, max_statement_time = 0",
    "MySQL": f"wait_timeout = {6 * _IDLE_SECONDS}, max_execution_time = 0",
}
"""A client that is paused between its two packets holds locks, so the server hangs up on it. MySQL can only hang up on
every idle session, which costs no more than opening connections again after a quiet time."""
_TRANSACTION = ("transaction_isolation", "transaction_read_only")
_STARTING = frozenset({1040, 1053, 1203, 2003, 2006, 2013})
_NEEDS_KEY = "'cryptography' package"
"""The driver's words when a server without TLS wants the password encrypted with a key that it sends."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
LONG_WORK = 24 * 3600.0
"""Seconds for work that grows with the data: changing tables, checking all of them."""
PACKET_NEEDED = 2 * limits.MESSAGE_BYTES + 1024 * 1024
"""A message is the largest thing that cannot be split over packets; quoting can double it."""


class Flavour(NamedTuple):
    """What kind of server this is: `MariaDB` or `MySQL`, and its version as numbers."""

    name: str
    version: tuple[int, ...]


def flavour(version: str) -> Flavour:
    """The flavour of a server that reports this version."""
    numbers = version.partition("-")[0].split(".")
    name = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    return Flavour(name, tuple(int(number) for number in numbers if number.isdigit()))


def session_variables(name: str) -> tuple[str, ...]:
    """Every variable that `begin_session` sets in a session of this flavour, except those of `SET NAMES`."""
    limits_of_idling = [setting.partition(" = ")[0] for setting in _IDLE_LIMITS[name].split(", ")]
    transaction = ("tx_isolation", "tx_read_only") if name == "MariaDB" else _TRANSACTION
    return (*SESSION_SETTINGS, *limits_of_idling, "lock_wait_timeout", *transaction)


def begin_session(name: str, command_timeout: float, more: str = "") -> str:
    """The first packet: every setting that a session relies on, then a question about the server, and `more`."""
    settings = [
        f"{variable} = {value if value.isdigit() else repr(value)}" for variable, value in SESSION_SETTINGS.items()
    ]
    return (
        f"SET NAMES utf8mb4; SET SESSION {', '.join(settings)}, {_IDLE_LIMITS[name]};"
        f"{set_table_lock_wait(command_timeout)};"
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;"
        f"SELECT @@version, @@max_allowed_packet{more}"
    )


def set_table_lock_wait(command_timeout: float) -> str:
    """Wait less long for locks on whole tables, such as those of a schema change, than for an answer: a refusal by the
    server is certain, a missing answer is not."""
    return f"SET SESSION lock_wait_timeout = {max(1, int(command_timeout) // 2)}"


async def open_connection(target: Target) -> Connection:
    """Connect, retrying for up to `connect_timeout` while a server restarts."""
    deadline = time.monotonic() + target.connect_timeout
    pause = _FIRST_PAUSE
    while True:
        try:
            return await _open_once(target, max(0.05, deadline - time.monotonic()))
        except DRIVER_ERRORS as error:
            if code_of(error) not in _STARTING:
                raise translate(error, target.display_url) from error
            if time.monotonic() + pause >= deadline:
                raise not_reached(error, target.display_url, target.connect_timeout) from error
        except PerdureError:
            raise
        except Exception as error:
            if _NEEDS_KEY in str(error):
                raise _needs_key(target) from error
            raise not_mysql(error, target.display_url) from error
        await asyncio.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _needs_key(target: Target) -> PerdureError:
    if not target.allow_cleartext:
        return asks_for_password(target.display_url)
    return UnsupportedError(
        f"{target.display_url} asks for the password encrypted with its key, but the package cryptography is missing",
        hint="pip install cryptography, or use TLS",
    )


async def _open_once(target: Target, seconds: float) -> Connection:
    meter = Meter()
    try:
        async with asyncio.timeout(seconds):
            driver = await _log_in(target, seconds, meter)
            try:
                return await _start_session(driver, target)
            except BaseException:
                driver.close()
                raise
    except DRIVER_ERRORS as error:
        if meter.offence is not None:
            # A server that is about to restart never does that, so a retry would not help.
            raise not_mysql(OSError(meter.offence), target.display_url) from error
        raise


async def _start_session(driver: DriverConnection, target: Target) -> Connection:
    connection = Connection(driver, await transport_of(driver), target)
    name = flavour(connection.version).name
    ((version, packet_bytes),) = (await connection.run(begin_session(name, target.command_timeout)))[0]
    connection.version, connection.packet_bytes = str(version), int(packet_bytes)
    return connection


async def _log_in(target: Target, seconds: float, meter: Meter) -> DriverConnection:
    """A connection of the driver's, past the login."""
    own_socket = None
    if target.unix_socket is None and not target.encrypts:
        own_socket = await open_socket(target.host, target.port, meter)
    task = asyncio.current_task()
    cancellations = task.cancelling() if task is not None else 0
    make: Any = DriverConnection  # its stub is narrower than what it takes: bytes for a password, None for autocommit
    driver: DriverConnection = make(
        sock=own_socket,
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
        connect_timeout=seconds,
        ssl=tls_context(target, meter),
    )
    try:
        await driver.connect()
    except BaseException:
        del driver  # the traceback would keep its buffer, however much a rogue server sent
        raise
    meter.logged_in()
    if task is not None and task.cancelling() > cancellations:
        # The driver's `wait_for` loses a cancellation that comes as its work ends (Python 3.11).
        driver.close()
        raise asyncio.CancelledError
    return driver


def refuse_unless_able(connection: Connection, where: str) -> None:
    """Raise unless the server is recent enough and accepts packets as large as a commit may need."""
    name, version = flavour(connection.version)
    if version < ((10, 6) if name == "MariaDB" else (8, 0)):
        raise UnsupportedError(
            f"{where} runs {name} {connection.version}, which cannot skip locked rows",
            hint="use MariaDB 10.6, MySQL 8.0 or later",
        )
    if connection.packet_bytes < PACKET_NEEDED:
        raise UnsupportedError(
            f"{where} accepts packets of at most {connection.packet_bytes} bytes;"
            f" a message needs up to {PACKET_NEEDED}",
            hint="set max_allowed_packet=16M (or more) on the server",
        )
