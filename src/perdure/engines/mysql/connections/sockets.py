"""TCP sockets that notice when the other side is gone without a word.

The driver turns keepalive on, but leaves its pace to the system, which waits for two hours before the first probe. It
takes a connected socket of ours instead, which is probed within a minute; not under TLS, though: there it would encrypt
before the server's greeting, which MySQL does not expect. Connections under TLS keep the system's pace.
"""

from __future__ import annotations

import asyncio
import socket

from asyncmy import errors

from perdure.engines.mysql.connections.login import Meter, MeteredSocket
from perdure.engines.mysql.errors import NO_SUCH_HOST, NOBODY_THERE

_PACE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds until the first probe, seconds between probes, probes without an answer. Not every system has each."""


async def open_socket(host: str, port: int, meter: Meter) -> socket.socket:
    """A socket that the meter counts, connected to the first address of the host that answers; the error is the
    driver's own."""
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        refusal: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in addresses:
            try:
                made = MeteredSocket(family, kind, protocol)
                made.meter = meter
                return await _connected(made, address)
            except OSError as error:
                refusal = error
        raise refusal
    except UnicodeError as error:
        raise errors.OperationalError(NO_SUCH_HOST, f"{host!r} is not a host name ({error})") from error
    except (OSError, RuntimeError) as error:
        # A loop that goes down with its interpreter refuses to look a name up.
        raise errors.OperationalError(NOBODY_THERE, f"Can't connect to MySQL server on {host!r} ({error})") from error


async def _connected(made: socket.socket, address: tuple[object, ...]) -> socket.socket:
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PACE.items():
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made
