"""Making a connection: TCP, TLS, user and password, all of it with a deadline.

With TLS nothing is sent before the certificate has been verified. A plain server that meets TLS waits for the end of a
command and stays silent. So a TLS handshake that is silent for half a second is looked into: the port is sent a PING in
plain, on another connection, without user or password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from perdure.engines.redis.connections import answers
from perdure.engines.redis.connections.connection import Line
from perdure.engines.redis.connections.failures import ErrorReply, InvalidReply, Lost, SpeaksPlain
from perdure.engines.redis.connections.resp import SMALL, command
from perdure.engines.redis.connections.tls import tls_context
from perdure.engines.redis.errors import no_master, refusal, unreachable
from perdure.engines.redis.target import Address, Target
from perdure.kernel.transport import transport_problem, warn_insecure

_LOOK_AFTER = 0.5
_LOOK_FOR = 0.5
_PLAIN_ANSWERS = (b"+", b"-")
_NO_CONNECTION = (ErrorReply, InvalidReply, OSError, UnicodeError, Lost)
"""What is raised when there is no connection; `UnicodeError` for a host that cannot be a name in the DNS."""


def problem_of(target: Target, host: str) -> str | None:
    """What is wrong with the way to this host, in words."""
    advice = "leave out ssl_cert_reqs and ssl_check_hostname" if target.tls else "use rediss://"
    return transport_problem(host, encrypted=target.tls, verified=target.verified, advice=advice)


async def connect(target: Target, address: Address) -> Line:
    """A connection that is ready for commands; `UnavailableError` if there is none within `connect_timeout`."""
    try:
        return await _greet(target, address, lambda line: _log_in(line, target))
    except ErrorReply as error:
        raise refusal(error, target.shown) from error
    except _NO_CONNECTION as error:
        raise unreachable(error, target.shown) from error


async def _log_in(line: Line, target: Target) -> None:
    """Say who we are, and hear that the server speaks Redis."""
    if target.username or target.password:
        account = [text.encode() for text in (target.username, target.password or "") if text is not None]
        await _expect(line, b"OK", b"AUTH", *account)
    elif not target.db:
        await _expect(line, b"PONG", b"PING")
    if target.db:
        await _expect(line, b"OK", b"SELECT", b"%d" % target.db)


async def _expect(line: Line, wanted: bytes, *arguments: bytes) -> None:
    answer = await line.ask(command(*arguments), SMALL)
    if isinstance(answer, (ErrorReply, Lost)):
        raise answer
    if answer != wanted:
        raise Lost(f"the answer to {arguments[0].decode()} is not {wanted.decode()}")


async def _greet(target: Target, address: Address, begin: Callable[[Line], Awaitable[None]]) -> Line:
    """Connect and begin within `connect_timeout`; a connection that is not ready then is closed."""
    # Before anything is sent: a caller who turns the warning into an error keeps the password.
    warn_insecure(problem_of(target, address[0]))
    secrets = (target.password,) if target.password else ()
    line = Line(target.shown, target.connect_timeout, secrets)
    greeting = asyncio.ensure_future(_open(line, target, address, begin))
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
        line.abort()
        raise
    line.patience = target.command_timeout
    return line


async def _open(line: Line, target: Target, address: Address, begin: Callable[[Line], Awaitable[None]]) -> None:
    context = tls_context(target.ssl) if target.tls else None
    await asyncio.get_running_loop().create_connection(lambda: line, *address, ssl=context)
    await begin(line)


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
    told: list[tuple[str, Exception | None]] = []
    for address in target.addresses:
        master: list[Address] = []
        try:
            # With TLS if the master is spoken to with TLS, and without user and password.
            line = await _greet(target, address, partial(_ask_master, target=target, found=master))
            line.abort()
        except _NO_CONNECTION as error:
            told.append((f"{address[0]}:{address[1]}", error))
            continue
        if master:
            return master[0]
        told.append((f"{address[0]}:{address[1]}", None))
    raise no_master(told, target.shown, target.master)


async def _ask_master(line: Line, target: Target, found: list[Address]) -> None:
    """Put the address of the master into `found`, if the sentinel knows it."""
    answer = await line.ask(command(b"SENTINEL", b"get-master-addr-by-name", target.master.encode()), SMALL)
    if isinstance(answer, (ErrorReply, Lost)):
        raise answer
    if answer:
        try:
            found.append(answers.address(answer))
        except answers.Misfit as misfit:
            raise Lost(f"the sentinel's answer {misfit}") from None
