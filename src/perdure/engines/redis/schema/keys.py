"""How scopes, keys and values become the names and sorted-set members that the scripts work with.

All keys of a scope begin with `<prefix>:{<scope>}:`, whose braces put them into one slot of a cluster. After it a
letter names the kind of key: `t` a row, `k` the key order of a table, `i` a group of an index, `u` unique values, `l` a
log partition, `q` the facts about it, `g` its stretches, `p` the partitions of a log. `lua/common.lua` and
`lua/text.lua` repeat these encodings, because the scripts build names from stored values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from perdure.errors import InvalidError
from perdure.kernel.schema import Column, Table

OFFSET = 2**52
_UNSAFE = re.compile(r"[%{}\x00-\x1f\x7f]")
_ESCAPED = re.compile("\x01(.)", re.DOTALL)
_PLAIN = {"\x01": "\x00", "\x02": "\x01"}


def utf8(value: str) -> bytes:
    """The bytes of a text; `InvalidError` if it is not Unicode."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"{value!r:.80} is not valid Unicode: {error.reason}") from None


def tag_of(scope: str) -> str:
    """A scope as the text between the braces, which must not be empty or contain a brace."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02x}", scope) or "%"


def base_of(prefix: str, scope: str) -> bytes:
    """What all keys of a scope begin with."""
    return utf8(f"{prefix}:{{{tag_of(scope)}}}:")


def escape(value: str) -> str:
    """Text without NUL, in the same byte order, so that NUL can end it."""
    if "\x00" in value or "\x01" in value:
        return value.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
    return value


def unescape(text: str) -> str:
    """The text behind `escape`."""
    return _ESCAPED.sub(lambda match: _PLAIN[match[1]], text) if "\x01" in text else text


def ordered(value: str | int, *, last: bool = False) -> str:
    """A value as part of a member: integers as sixteen digits, text ended by NUL unless nothing follows."""
    if isinstance(value, int):
        return f"{value + OFFSET:016d}"
    return escape(value) if last else escape(value) + "\x00"


def encode_key(key: Sequence[str | int]) -> str:
    """A whole key: the end of the name of its row and of all its index members."""
    if len(key) == 1:
        (value,) = key
        return escape(value) if isinstance(value, str) else ordered(value)
    return "".join([ordered(value) for value in key[:-1]]) + ordered(key[-1], last=True)


def decode_key(text: str, columns: Sequence[Column]) -> tuple[str | int, ...]:
    """The key behind `encode_key`."""
    values: list[str | int] = []
    last = len(columns) - 1
    for position, column in enumerate(columns):
        if column.type == "int":
            values.append(int(text[:16]) - OFFSET)
            text = text[16:]
        elif position == last:
            values.append(unescape(text))
        else:
            part, _, text = text.partition("\x00")
            values.append(unescape(part))
    return tuple(values)


def stored(value: Any) -> Any:
    """A column value in the form that the scripts use: text, integers in decimal, `False` for NULL."""
    if value is None:
        return False
    return value if type(value) is str else str(value)


def grouped(value: Any) -> str:
    """A value as part of the name of an index group or of a unique value."""
    return "-" if value is None else "+" + escape(value if type(value) is str else str(value)) + "\x00"


def source(table: Table, name: str, slots: dict[str, int]) -> int:
    """Where a script finds a column: a slot in the row it read, or (negative) a position in the key."""
    if name in table.value_types:
        return slots[name]
    return -1 - table.key_names.index(name)
