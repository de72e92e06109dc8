"""Asking a server whether it serves, in the few bytes of its own protocol that this takes.

No driver is needed for it, so a server can be started where only the server is installed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from pathlib import Path
from typing import BinaryIO

from tests.support.servers.certificates import HOST

_TIMEOUT = 5.0
_POSTGRES_TLS = 80_877_103
"""What a client sends in place of a protocol version when it wants TLS."""


def postgres_serves(port: int, user: str, database: str, certificate: Path | None = None) -> bool:
    """Does PostgreSQL, or a pooler before it, let this user in? Over TLS if there is a certificate to trust."""
    fields = b"\0".join([b"user", user.encode(), b"database", database.encode(), b"", b""])
    with contextlib.ExitStack() as stack:
        link: socket.socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), _TIMEOUT))
        if certificate is not None:
            link.sendall(struct.pack("!ii", 8, _POSTGRES_TLS))
            if link.recv(1) != b"S":
                return False
            link = stack.enter_context(_secured(link, certificate))
        link.sendall(struct.pack("!ii", len(fields) + 8, 3 << 16) + fields)
        # The first message is `R` (authentication) or `E`: still starting, still recovering.
        return link.recv(1) == b"R"


def mysql_serves(port: int) -> bool:
    """Does MySQL or MariaDB greet? It listens only when it has recovered."""
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as link:
        head = link.recv(5)
        return len(head) == 5 and head[4] == 10


def redis_serves(port: int) -> bool:
    """Does Redis or Valkey answer? While it loads its data it says so instead."""
    return redis_answer(port, "PING").startswith(b"+PONG")


def redis_answer(port: int, *words: str, certificate: Path | None = None) -> bytes:
    """What a Redis server answers to one short command, unparsed; over TLS if there is a certificate to trust."""
    arguments = b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)
    with contextlib.ExitStack() as stack:
        link: socket.socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), _TIMEOUT))
        if certificate is not None:
            link = stack.enter_context(_secured(link, certificate))
        link.sendall(b"*%d\r\n%s" % (len(words), arguments))
        return _redis_reply(stack.enter_context(link.makefile("rb")))


def _secured(link: socket.socket, certificate: Path) -> ssl.SSLSocket:
    trust = ssl.create_default_context(cafile=str(certificate))
    return trust.wrap_socket(link, server_hostname=HOST)


def _redis_reply(stream: BinaryIO) -> bytes:
    """One whole reply: a line, a line and the bytes it announces, or a line and the replies it announces."""
    head = stream.readline()
    kind, size = head[:1], head[1:].strip()
    if kind == b"$" and size != b"-1":
        return head + stream.read(int(size) + 2)
    if kind == b"*" and size != b"-1":
        return head + b"".join(_redis_reply(stream) for _ in range(int(size)))
    return head
