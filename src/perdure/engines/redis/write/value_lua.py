"""Column values in scripts: what each adds to the arguments, and the Lua that reads it there.

A value's *code* is the part that shapes a script: a literal, NULL, or one of the kernel's expressions. The rest is an
argument. So transactions that do the same to other data share one text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perdure.kernel.ops import NOW, AtMost, Inc, Max, Min, Now, Seq, Swap

LITERAL, NOTHING, TIME, LATER, ADDED, RAISED, LOWERED, SWAPPED = "=", "0", "@", "a", "+", ">", "<", "~"
LAST_SEQ, EARLIER_SEQ = "#", "-"
"""The code of a `Seq` is one of these and the name of its log."""

NULL = b"\xff"
"""NULL where an argument may hold it: no text in UTF-8 has this byte."""

NEEDS_OLD = frozenset((ADDED, RAISED, LOWERED, SWAPPED))
_ARGUMENTS = {NOTHING: 0, TIME: 0, LAST_SEQ: 0, SWAPPED: 2}


def codes_of(values: Iterable[Any], arguments: list[bytes]) -> tuple[str, ...]:
    """The codes of some values; their data is appended to the arguments."""
    codes: list[str] = []
    add, add_argument = codes.append, arguments.append
    for value in values:
        kind = type(value)
        # The values of every commit come first, and without a call.
        if kind is str:
            add_argument(value.encode())
            add(LITERAL)
        elif kind is Inc:
            add_argument(b"%d" % value.by)
            add(ADDED)
        elif value is NOW:
            add(TIME)
        elif kind is int:
            add_argument(b"%d" % value)
            add(LITERAL)
        elif value is None:
            add(NOTHING)
        else:
            add(_CODES[kind](value, arguments))
    return tuple(codes)


def _number(code: str, name: str) -> Callable[[Any, list[bytes]], str]:
    def encode(value: Any, arguments: list[bytes]) -> str:
        arguments.append(b"%d" % getattr(value, name))
        return code

    return encode


def _time(value: Now, arguments: list[bytes]) -> str:
    if not value.plus:
        return TIME
    arguments.append(b"%d" % value.plus)
    return LATER


def _seq(value: Seq, arguments: list[bytes]) -> str:
    if not value.back:
        return LAST_SEQ + value.log
    arguments.append(b"%d" % value.back)
    return EARLIER_SEQ + value.log


def _swap(value: Swap, arguments: list[bytes]) -> str:
    arguments += (plain(value.old), plain(value.new))
    return SWAPPED


_CODES: dict[type, Callable[[Any, list[bytes]], str]] = {
    Max: _number(RAISED, "value"),
    Min: _number(LOWERED, "value"),
    AtMost: _number(LOWERED, "limit"),
    Now: _time,
    Seq: _seq,
    Swap: _swap,
}


def plain(value: str | int | None) -> bytes:
    """A value that may be NULL, as one argument."""
    if value is None:
        return NULL
    return value.encode() if isinstance(value, str) else b"%d" % value


def argument_count(codes: Iterable[str]) -> int:
    """How many arguments values with these codes add."""
    return sum(_ARGUMENTS.get(code[0], 1) for code in codes)


def may_be_null(code: str) -> bool:
    """Whether a column may hold NULL after such a change."""
    return code in (NOTHING, SWAPPED)


def bounded(code: str, arguments: Sequence[str], old: str) -> str | None:
    """Lua that is true if a counter would exceed what a double holds exactly; None if it cannot."""
    if code != ADDED:
        return None
    return f"math.abs(({old} or 0) + {arguments[0]}) >= 9007199254740992"


def expression(code: str, arguments: Sequence[str], old: str) -> str:
    """Lua for the new value of a column, given its arguments: text, or false for NULL."""
    if code == LITERAL:
        return arguments[0]
    if code == NOTHING:
        return "false"
    if code == TIME:
        return "now"
    if code == LATER:
        return f"format('%.0f', clock + {arguments[0]})"
    if code == ADDED:
        return f"format('%.0f', ({old} or 0) + {arguments[0]})"
    if code == SWAPPED:
        return f"swapped({old}, {arguments[0]}, {arguments[1]})"
    if code in (RAISED, LOWERED):
        chosen = "math.max" if code == RAISED else "math.min"
        return f"({old} and format('%.0f', {chosen}({old}, {arguments[0]})) or {arguments[0]})"
    last = f"seqs[{quoted(code[1:])}]"
    return last if code[0] == LAST_SEQ else f"format('%.0f', {last} - {arguments[0]})"


def quoted(text: str) -> str:
    """A text as a Lua string."""
    return "'" + "".join(chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\{b:03d}" for b in text.encode()) + "'"
