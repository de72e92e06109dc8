"""Options in the URL of a server: how a number, a time or a yes is read, and refused in the same words everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.errors import InvalidError

OptionReader = Callable[[str, str], Any]
"""Turns the name and the text of an option into its value, or raises `InvalidError`."""


def count(name: str, value: str) -> int:
    """A number of things."""
    if not (value.isascii() and value.isdigit() and len(value) <= 4 and 1 <= int(value) <= 1_000):
        raise InvalidError(f"{name} is a number from 1 to 1000, not {value!r:.80}")
    return int(value)


def seconds(name: str, value: str) -> float:
    """A length of time."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number <= 86_400:
        raise InvalidError(f"{name} is a number of seconds above 0, not {value!r:.80}")
    return number


def yes_or_no(name: str, value: str) -> bool:
    """A switch."""
    if value not in ("yes", "no"):
        raise InvalidError(f"{name} is yes or no, not {value!r:.80}")
    return value == "yes"


SQL_SERVER_OPTIONS: dict[str, OptionReader] = {
    "connections": count,
    "connect_timeout": seconds,
    "command_timeout": seconds,
    "migrate": yes_or_no,
    "allow_cleartext": yes_or_no,
}
"""Options that the engines on SQL servers share."""
