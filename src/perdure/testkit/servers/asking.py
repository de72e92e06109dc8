"""Asking a server whether it serves, in the few bytes of its own protocol that this takes.

No driver is needed for it, so a server can be started where only the server is installed.
"""

from __future__ import annotations

import socket
import struct

_TIMEOUT = 5.0


def postgres_serves(port: int, user: str, database: str) -> bool:
    """Does PostgreSQL, or a pooler before it, let this user in?"""
    fields = b"\0".join([b"user", user.encode(), b"database", database.encode(), b"", b""])
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as link:
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
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as link:
        link.sendall(b"PING\r\n")
        return link.recv(5) == b"+PONG"
