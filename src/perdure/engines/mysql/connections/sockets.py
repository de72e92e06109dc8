"""TCP sockets that notice within a minute when the server is gone without notice.

The driver turns keepalive on, but leaves its pace to the system, which waits for two hours before the first probe. So
the driver gets a connected socket of ours, except under TLS: on a socket of ours it would encrypt before the server's
greeting, which MySQL does not expect. Connections under TLS keep the system's pace.
"""

from __future__ import annotations

import asyncio
import socket

from asyncmy import errors

from perdure.engines.mysql.connections.login import Meter, MeteredSocket
from perdure.engines.mysql.errors import NO_SUCH_HOST, NOT_LISTENING

_PACE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds until the first probe, seconds between probes, probes without an answer. Not every system has each."""


async def open_socket(host: str, port: int, meter: Meter) -> socket.socket:
    """A metered socket, connected to the first address of the host that answers; raises the driver's own errors."""
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        last_error: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in addresses:
            try:
                metered = MeteredSocket(family, kind, protocol)
                metered.meter = meter
                return await _connect(metered, address)
            except OSError as error:
                last_error = error
        raise last_error
    except UnicodeError as error:
        raise errors.OperationalError(NO_SUCH_HOST, f"{host!r} is not a host name ({error})") from error
    except (OSError, RuntimeError) as error:
        # An event loop that shuts down with its interpreter refuses to resolve names.
        raise errors.OperationalError(NOT_LISTENING, f"Can't connect to MySQL server on {host!r} ({error})") from error


async def _connect(tcp: socket.socket, address: tuple[object, ...]) -> socket.socket:
    try:
        tcp.setblocking(False)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PACE.items():
            if hasattr(socket, name):
                tcp.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        await asyncio.get_running_loop().sock_connect(tcp, address)
    except BaseException:
        tcp.close()
        raise
    return tcp
