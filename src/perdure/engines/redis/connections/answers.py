"""The shape that each answer of a server must have.

A server that was taken over, or something else that answers in its place, sends what it likes. Every answer passes one
of these functions before anything is done with it; what does not fit raises `Misfit`, which `Network` reports with the
command and the server.
"""

from __future__ import annotations

import re
from typing import Any

from perdure.engines.redis.target import Address

MOST_NODES = 1_000
"""How many masters a cluster may have; Redis itself recommends no more."""
_SLOTS = 16_384
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})|[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?")


class Misfit(Exception):
    """What is wrong with an answer, as the end of a sentence."""


def describe(answer: Any) -> str:
    """An answer in a few words, none of them the server's."""
    if answer is None:
        return "nothing"
    if isinstance(answer, list):
        return f"a list of {len(answer)}"
    if isinstance(answer, bytes):
        return f"a text of {len(answer)} bytes"
    return f"the number {answer}" if isinstance(answer, int) else "an error"


def _misfit(wanted: str, answer: Any) -> Misfit:
    return Misfit(f"is {describe(answer)}, not {wanted}")


def number(answer: Any) -> int:
    """A number."""
    if type(answer) is not int:
        raise _misfit("a number", answer)
    return answer


def data(answer: Any) -> bytes:
    """Bytes."""
    if type(answer) is not bytes or not answer:
        raise _misfit("a text", answer)
    return answer


def data_or_nothing(answer: Any) -> bytes | None:
    """Bytes, or nothing."""
    if answer is not None and type(answer) is not bytes:
        raise _misfit("a text", answer)
    return answer


def names(answer: Any) -> list[bytes]:
    """A list of texts."""
    if type(answer) is not list or not all(type(name) is bytes for name in answer):
        raise _misfit("a list of texts", answer)
    return answer


def pairs(answer: Any) -> dict[bytes, bytes]:
    """Names and values, by turns."""
    told = names(answer)
    if len(told) % 2:
        raise _misfit("a list of names and values", answer)
    return dict(zip(told[::2], told[1::2], strict=True))


def pieces(answer: Any) -> bytes | int:
    """The answer of a view: one text, a list of its pieces, or 0 when the indexes of the scope are not filled."""
    if type(answer) is list:
        return b"".join(names(answer))
    if answer == 0 and type(answer) is int:
        return 0
    return data(answer)


def page(answer: Any) -> tuple[bytes, list[bytes]]:
    """A page of SCAN: the next cursor, and names."""
    if type(answer) is not list or len(answer) != 2 or type(answer[0]) is not bytes or not answer[0].isdigit():
        raise _misfit("a cursor and a list", answer)
    return answer[0], names(answer[1])


def address(answer: Any, otherwise: str = "") -> Address:
    """A host and a port; a node of a cluster that does not know its own host leaves it empty."""
    if type(answer) is not list or len(answer) < 2:
        raise _misfit("a host and a port", answer)
    host, port = answer[0] or b"", answer[1]
    if type(host) is not bytes or type(port) not in (bytes, int):
        raise _misfit("a host and a port", answer)
    return named_address(host.decode(errors="replace") or otherwise, port)


def named_address(host: str, port: Any) -> Address:
    """A host and a port that a server names; only what can be a host name, an address and a port passes."""
    digits = port.decode(errors="replace") if isinstance(port, bytes) else str(port)
    if len(host) > 253 or _HOST.fullmatch(host) is None:
        raise Misfit("names a host that cannot be one")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 1 <= int(digits) <= 65_535):
        raise Misfit("names a port that cannot be one")
    return host, int(digits)


def slots(answer: Any, asked: Address) -> dict[int, Address]:
    """The owner of each slot, from CLUSTER SLOTS: [[first, last, [host, port, …], replicas…], …]."""
    if type(answer) is not list:
        raise _misfit("a list of slots", answer)
    found: dict[int, Address] = {}
    for part in answer:
        if type(part) is not list or len(part) < 3 or type(part[0]) is not int or type(part[1]) is not int:
            raise _misfit("a list of slots", part)
        first, last = part[0], part[1]
        if not 0 <= first <= last < _SLOTS or len(found) + last - first >= _SLOTS:
            raise Misfit(f"names the slots {first} to {last}, which overlap others or do not exist")
        found.update(dict.fromkeys(range(first, last + 1), address(part[2], asked[0])))
    if len(set(found.values())) > MOST_NODES:
        raise Misfit(f"names more than {MOST_NODES} nodes")
    return found


def push(answer: Any) -> tuple[bytes, bytes, Any]:
    """What a connection that listens hears: its kind, the channel, and what was said there."""
    if type(answer) is not list or len(answer) < 2 or type(answer[0]) is not bytes:
        raise _misfit("a message of a channel", answer)
    if type(answer[1]) not in (bytes, type(None)):
        raise _misfit("a message of a channel", answer)
    return answer[0], answer[1] or b"", answer[2] if len(answer) > 2 else None
