"""Opens connections: TCP, TLS, user and password, and the search for a master, all with a deadline.

With TLS nothing is sent before the certificate has been verified. A plain server that receives a TLS handshake waits
for the end of a command and stays silent. So after half a second without an answer the port gets a plain PING, on
another connection and without user or password, to find out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.connection import Connection
from perdure.engines.redis.connections.failures import ErrorReply, InvalidReply, Lost, SpeaksPlain
from perdure.engines.redis.connections.resp import SMALL, command
from perdure.engines.redis.connections.tls import tls_context
from perdure.engines.redis.errors import no_master, refusal, unreachable
from perdure.engines.redis.target import Address, Target
from perdure.kernel.transport import transport_problem, warn_insecure

_PROBE_AFTER = 0.5
_PROBE_TIMEOUT = 0.5
_PLAIN_REPLIES = (b"+", b"-")
_NO_CONNECTION = (ErrorReply, InvalidReply, OSError, UnicodeError, Lost)
"""Errors that mean there is no connection; `UnicodeError` for a host that is not a valid DNS name."""

T = TypeVar("T")
Begin = Callable[[Connection, Target], Awaitable[T]]


def problem_of(target: Target, host: str) -> str | None:
    """What makes a connection to this host insecure, as text; None if nothing does."""
    advice = "leave out ssl_cert_reqs and ssl_check_hostname" if target.tls else "use rediss://"
    return transport_problem(host, encrypted=target.tls, verified=target.verified, advice=advice)


async def connect(target: Target, address: Address) -> Connection:
    """A connection that is ready for commands; `UnavailableError` if it cannot be made within `connect_timeout`."""
    server = await locate(target, address)
    try:
        connection, _ = await _open_with(target, server, _log_in)
        return connection
    except ErrorReply as error:
        raise refusal(error, target.display_url) from error
    except _NO_CONNECTION as error:
        raise unreachable(error, target.display_url) from error


async def _log_in(connection: Connection, target: Target) -> None:
    """Authenticate, select the database, and check that the server speaks Redis."""
    if target.username or target.password:
        account = [text.encode() for text in (target.username, target.password or "") if text is not None]
        await _expect(connection, b"OK", b"AUTH", *account)
    elif not target.db:
        await _expect(connection, b"PONG", b"PING")
    if target.db:
        await _expect(connection, b"OK", b"SELECT", b"%d" % target.db)


async def _expect(connection: Connection, expected: bytes, *arguments: bytes) -> None:
    if await _reply(connection, *arguments) != expected:
        raise Lost(f"the reply to {arguments[0].decode()} is not {expected.decode()}")


async def _reply(connection: Connection, *arguments: bytes) -> Any:
    reply = await connection.ask(command(*arguments), SMALL)
    if isinstance(reply, (ErrorReply, Lost)):
        raise reply
    return reply


async def _open_with(target: Target, address: Address, begin: Begin[T]) -> tuple[Connection, T]:
    """Connect and run `begin` within `connect_timeout`; a connection that is not ready by then is closed."""
    # Before anything is sent: a caller who turns the warning into an error does not send the password.
    warn_insecure(problem_of(target, address[0]))
    secrets = (target.password,) if target.password else ()
    connection = Connection(target.display_url, target.connect_timeout, secrets)
    opening = asyncio.ensure_future(_open(connection, target, address, begin))
    try:
        async with asyncio.timeout(target.connect_timeout):
            if target.tls:
                await asyncio.wait({opening}, timeout=_PROBE_AFTER)
                if not opening.done() and await _speaks_plain(address):
                    raise SpeaksPlain
            result = await opening
    except BaseException:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        connection.abort()
        raise
    connection.reply_timeout = target.command_timeout
    return connection, result


async def _open(connection: Connection, target: Target, address: Address, begin: Begin[T]) -> T:
    context = tls_context(target.ssl) if target.tls else None
    await asyncio.get_running_loop().create_connection(lambda: connection, *address, ssl=context)
    return await begin(connection, target)


async def _speaks_plain(address: Address) -> bool:
    """Whether a server replies to a PING without TLS. One that requires a password replies with an error."""
    writer = None
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(command(b"PING"))
            return await reader.read(1) in _PLAIN_REPLIES
    except OSError:
        return False
    finally:
        if writer is not None:
            writer.transport.abort()


async def locate(target: Target, address: Address) -> Address:
    """The server behind an address of the target: with sentinels the master, as the first one that answers knows it."""
    if target.kind != "sentinel":
        return address
    failures: list[tuple[str, Exception | None]] = []
    for host, port in target.addresses:
        failure = None
        try:
            # With TLS if the target uses TLS, and without user and password.
            connection, master = await _open_with(target, (host, port), _ask_master)
            connection.abort()
            if master is not None:
                return master
        except _NO_CONNECTION as error:
            failure = error
        failures.append((f"{host}:{port}", failure))
    raise no_master(failures, target.display_url, target.master)


async def _ask_master(connection: Connection, target: Target) -> Address | None:
    """The address of the master, None if the sentinel does not know it."""
    reply = await _reply(connection, b"SENTINEL", b"get-master-addr-by-name", target.master.encode())
    try:
        return reply_shapes.address(reply) if reply else None
    except reply_shapes.Misfit as misfit:
        raise Lost(f"the sentinel's reply {misfit}") from None
