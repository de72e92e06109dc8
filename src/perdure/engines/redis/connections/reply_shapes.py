"""Shapes of replies: each function checks a reply and returns it with its type, or raises `Misfit`.

A server that was taken over, or another program at its address, can send anything. Every reply passes one of these
functions before it is used. `Network` reports a `Misfit` with the command and the server.
"""

from __future__ import annotations

import re
from typing import Any

from perdure.engines.redis.target import Address

MOST_NODES = 1_000
"""The most masters a cluster may have; Redis itself recommends no more."""
_SLOTS = 16_384
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})|[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?")


class Misfit(Exception):
    """What is wrong with a reply, as the end of a sentence."""


def describe(reply: Any) -> str:
    """A reply in a few words, none of them the server's."""
    if reply is None:
        return "nothing"
    if isinstance(reply, list):
        return f"a list of {len(reply)}"
    if isinstance(reply, bytes):
        return f"a text of {len(reply)} bytes"
    return f"the number {reply}" if isinstance(reply, int) else "an error"


def _misfit(expected: str, reply: Any) -> Misfit:
    return Misfit(f"is {describe(reply)}, not {expected}")


def number(reply: Any) -> int:
    """A number."""
    if type(reply) is not int:
        raise _misfit("a number", reply)
    return reply


def data(reply: Any) -> bytes:
    """Bytes."""
    if type(reply) is not bytes or not reply:
        raise _misfit("a text", reply)
    return reply


def data_or_none(reply: Any) -> bytes | None:
    """Bytes, or None."""
    if reply is not None and type(reply) is not bytes:
        raise _misfit("a text", reply)
    return reply


def names(reply: Any) -> list[bytes]:
    """A list of texts."""
    if type(reply) is not list or not all(type(name) is bytes for name in reply):
        raise _misfit("a list of texts", reply)
    return reply


def pairs(reply: Any) -> dict[bytes, bytes]:
    """Names and values, alternating."""
    texts = names(reply)
    if len(texts) % 2:
        raise _misfit("a list of names and values", reply)
    return dict(zip(texts[::2], texts[1::2], strict=True))


def pieces(reply: Any) -> bytes | int:
    """The reply of a view: one text, a list of its pieces, or 0 if the indexes of the scope are not filled."""
    if type(reply) is list:
        return b"".join(names(reply))
    if reply == 0 and type(reply) is int:
        return 0
    return data(reply)


def page(reply: Any) -> tuple[bytes, list[bytes]]:
    """A page of SCAN: the next cursor, and names."""
    if type(reply) is not list or len(reply) != 2 or type(reply[0]) is not bytes or not reply[0].isdigit():
        raise _misfit("a cursor and a list", reply)
    return reply[0], names(reply[1])


def address(reply: Any, default_host: str = "") -> Address:
    """A host and a port; a node of a cluster that does not know its own host leaves it empty."""
    if type(reply) is not list or len(reply) < 2:
        raise _misfit("a host and a port", reply)
    host, port = reply[0] or b"", reply[1]
    if type(host) is not bytes or type(port) not in (bytes, int):
        raise _misfit("a host and a port", reply)
    return named_address(host.decode(errors="replace") or default_host, port)


def named_address(host: str, port: Any) -> Address:
    """A host and a port that a server names; only a valid host name or IP address and a valid port pass."""
    digits = port.decode(errors="replace") if isinstance(port, bytes) else str(port)
    if len(host) > 253 or _HOST.fullmatch(host) is None:
        raise Misfit("names a host that cannot be one")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 1 <= int(digits) <= 65_535):
        raise Misfit("names a port that cannot be one")
    return host, int(digits)


def slots(reply: Any, source: Address) -> dict[int, Address]:
    """The owner of each slot, from CLUSTER SLOTS: [[first, last, [host, port, …], replicas…], …]."""
    if type(reply) is not list:
        raise _misfit("a list of slots", reply)
    owners: dict[int, Address] = {}
    for part in reply:
        if type(part) is not list or len(part) < 3 or type(part[0]) is not int or type(part[1]) is not int:
            raise _misfit("a list of slots", part)
        first, last = part[0], part[1]
        if not 0 <= first <= last < _SLOTS or len(owners) + last - first >= _SLOTS:
            raise Misfit(f"names the slots {first} to {last}, which overlap others or do not exist")
        owners.update(dict.fromkeys(range(first, last + 1), address(part[2], source[0])))
    if len(set(owners.values())) > MOST_NODES:
        raise Misfit(f"names more than {MOST_NODES} nodes")
    return owners


def push(reply: Any) -> tuple[bytes, bytes, Any]:
    """A message on a connection that listens: its kind, the channel, and the payload."""
    if type(reply) is not list or len(reply) < 2 or type(reply[0]) is not bytes:
        raise _misfit("a message of a channel", reply)
    if type(reply[1]) not in (bytes, type(None)):
        raise _misfit("a message of a channel", reply)
    return reply[0], reply[1] or b"", reply[2] if len(reply) > 2 else None
