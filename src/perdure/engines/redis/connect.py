"""Making a connection: TCP, TLS, user and password, all of it with a deadline.

The driver shakes hands, and its own limit ends with the TCP connection: a server may accept and never greet. A plain
server that meets TLS does just that, because it waits for the end of a command. So a TLS handshake that is silent for
half a second is looked into: the port is sent a PING in plain, on another connection, without user or password.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from perdure.engines.redis.resp import command
from perdure.engines.redis.translate import ANSWERS, SpeaksPlain, no_master, refusal, unreachable
from perdure.engines.redis.url import Address, Target

_LOOK_AFTER = 0.5
_LOOK_FOR = 0.5
_PLAIN_ANSWERS = (b"+", b"-")

_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer that is gone without a word is noticed after a minute; systems name these options differently."""


def _new_connection(target: Target, address: Address, **options: Any) -> Connection:
    """A connection that is not connected yet. It never sends anything twice."""
    usual: dict[str, Any] = {
        "host": address[0],
        "port": address[1],
        "socket_connect_timeout": target.connect_timeout,
        "socket_keepalive": True,
        "socket_keepalive_options": {
            getattr(socket, name): seconds for name, seconds in _KEEPALIVE.items() if hasattr(socket, name)
        },
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if target.tls:
        return SSLConnection(**usual, **options, **target.ssl)
    return Connection(**usual, **options)


async def connect(target: Target, address: Address) -> Connection:
    """A connection that is ready for commands; `UnavailableError` if there is none within `connect_timeout`."""
    account = {"db": target.db, "username": target.username, "password": target.password}
    connection = _new_connection(target, address, socket_timeout=None, **account)
    try:
        await _greet(connection, target, address)
    except ANSWERS as error:
        raise refusal(error, target.shown) from error
    except (RedisError, OSError) as error:
        raise unreachable(error, target.shown) from error
    return connection


async def _greet(connection: Connection, target: Target, address: Address) -> None:
    """Connect within `connect_timeout`; a connection that is not ready then is closed."""
    greeting = asyncio.ensure_future(connection.connect())  # type: ignore[no-untyped-call]
    try:
        async with asyncio.timeout(target.connect_timeout):
            if target.tls:
                await asyncio.wait({greeting}, timeout=_LOOK_AFTER)
                if not greeting.done() and await _speaks_plain(address):
                    raise SpeaksPlain
            await greeting
    except BaseException:
        greeting.cancel()
        await asyncio.gather(greeting, return_exceptions=True)
        await connection.disconnect(nowait=True)
        raise


async def _speaks_plain(address: Address) -> bool:
    """Whether a server answers a PING without TLS. One that wants a password refuses it, which is an answer too."""
    writer = None
    try:
        async with asyncio.timeout(_LOOK_FOR):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(command(b"PING"))
            return await reader.read(1) in _PLAIN_ANSWERS
    except OSError:
        return False
    finally:
        if writer is not None:
            writer.transport.abort()


async def ask_sentinels(target: Target) -> Address:
    """The address of the master as the first sentinel that answers knows it."""
    answers: list[tuple[str, Exception | None]] = []
    for address in target.addresses:
        # With TLS if the master is spoken to with TLS, and without user and password.
        connection = _new_connection(target, address, socket_timeout=target.connect_timeout)
        try:
            await _greet(connection, target, address)
            await connection.send_packed_command(
                command(b"SENTINEL", b"get-master-addr-by-name", target.master.encode())
            )
            found: Sequence[bytes] | None = await connection.read_response(disable_decoding=True)
        except (RedisError, OSError) as error:
            answers.append((f"{address[0]}:{address[1]}", error))
        else:
            if found:
                return found[0].decode(), int(found[1])
            answers.append((f"{address[0]}:{address[1]}", None))
        finally:
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
    raise no_master(answers, target.shown, target.master)
