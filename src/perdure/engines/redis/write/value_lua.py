"""Column values in scripts: what each adds to the arguments, and the Lua that reads it there.

A value's *code* is the part that shapes a script: a literal, NULL, or one of the kernel's expressions. The rest is an
argument. So transactions that do the same to other data share one text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perdure.kernel.ops import NOW, AtMost, Inc, Max, Min, Now, Seq, Swap

LITERAL, NOTHING, TIME, LATER, ADDED, RAISED, LOWERED, SWAPPED = "=", "0", "@", "a", "+", ">", "<", "~"
RAISED_TO_TIME, LOWERED_TO_TIME = "g", "l"
"""As `RAISED` and `LOWERED`, with the clock plus an argument as the bound."""
LAST_SEQ, EARLIER_SEQ = "#", "-"
"""The code of a `Seq` is one of these and the name of its log."""

NULL = b"\xff"
"""NULL where an argument may hold it: no text in UTF-8 has this byte."""

NEEDS_OLD = frozenset((ADDED, RAISED, LOWERED, SWAPPED, RAISED_TO_TIME, LOWERED_TO_TIME))
_ARGUMENTS = {NOTHING: 0, TIME: 0, LAST_SEQ: 0, SWAPPED: 2}
_EXPRESSIONS = {
    LITERAL: "{0}",
    NOTHING: "false",
    TIME: "now",
    LATER: "format('%.0f', clock + {0})",
    ADDED: "format('%.0f', ({old} or 0) + {0})",
    RAISED: "({old} and format('%.0f', math.max({old}, {0})) or {0})",
    LOWERED: "({old} and format('%.0f', math.min({old}, {0})) or {0})",
    RAISED_TO_TIME: "format('%.0f', math.max({old} or clock + {0}, clock + {0}))",
    LOWERED_TO_TIME: "format('%.0f', math.min({old} or clock + {0}, clock + {0}))",
    SWAPPED: "swapped({old}, {0}, {1})",
    LAST_SEQ: "seqs[{log}]",
    EARLIER_SEQ: "format('%.0f', seqs[{log}] - {0})",
}


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
            code, *data = _CODES[kind](value)
            arguments += map(plain, data)
            add(code)
    return tuple(codes)


def _bounded(code: str, code_of_time: str, bound: int | Now) -> tuple[Any, ...]:
    return (code_of_time, bound.plus) if isinstance(bound, Now) else (code, bound)


_CODES: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Max: lambda value: _bounded(RAISED, RAISED_TO_TIME, value.value),
    Min: lambda value: _bounded(LOWERED, LOWERED_TO_TIME, value.value),
    AtMost: lambda value: _bounded(LOWERED, LOWERED_TO_TIME, value.limit),
    Now: lambda value: (LATER, value.plus) if value.plus else (TIME,),
    Seq: lambda value: (EARLIER_SEQ + value.log, value.back) if value.back else (LAST_SEQ + value.log,),
    Swap: lambda value: (SWAPPED, value.old, value.new),
}
"""The code of an expression, and its arguments."""


def plain(value: str | int | None) -> bytes:
    """A value that may be NULL, as one argument."""
    if value is None:
        return NULL
    return value.encode() if isinstance(value, str) else b"%d" % value


def argument_count(code: str) -> int:
    """How many arguments a value with this code adds."""
    return _ARGUMENTS.get(code[0], 1)


def expression(code: str, arguments: Sequence[str], old: str) -> str:
    """Lua for the new value of a column, given its arguments: text, or false for NULL."""
    return _EXPRESSIONS[code[0]].format(*arguments, old=old, log=quoted(code[1:]))


def quoted(text: str | bytes) -> str:
    """A text or bytes as a Lua string."""
    data = text.encode() if isinstance(text, str) else text
    return "'" + "".join(chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\{b:03d}" for b in data) + "'"
