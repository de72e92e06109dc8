"""Options in the URL of a server: how a number, a time or a yes is read, and refused in the same words everywhere."""

from __future__ import annotations

from perdure.errors import InvalidError


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
