"""Generates Lua for the position of a row in an index and its value in a unique group, as far as known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from perdure.engines.redis.write.value_lua import quoted
from perdure.kernel.schema import Index, Table


class Term(NamedTuple):
    """A column's value in Lua; `null` says whether it is NULL, None if only the server knows."""

    lua: str
    null: bool | None


Terms = Callable[[str], Term]


class IndexPosition(NamedTuple):
    """A sorted set, the beginning of its member, and the condition under which a row is in it ('' for always)."""

    group: str
    member: str
    condition: str


def index_position(table: Table, index: Index, values: Terms) -> IndexPosition | None:
    """The position of a row in an index; None if it cannot be in it."""
    members, conditions = [], []
    group = [f"base .. {quoted(f'i:{table.name}:{index.name}:')}"]
    for name in index.order:
        term = values(name)
        if term.null:
            return None
        if term.null is None:
            conditions.append(term.lua)
        whole = table.types[name] == "int"
        members.append(f"format('%016.0f', {term.lua} + 4503599627370496)" if whole else _ended(term.lua))
    for name in index.by:
        term = values(name)
        if term.null and index.sparse:
            return None
        if term.null is None and index.sparse:
            conditions.append(term.lua)
        group.append(f"grouped({term.lua})")
    return IndexPosition(" .. ".join(group), " .. ".join(members), " and ".join(conditions))


def entry(command: str, position: IndexPosition | None, key: str) -> Iterator[str]:
    """Add a row at its position (ZADD), or remove it from there (ZREM)."""
    if position is None:
        return
    call = "call('ZADD', {}, 0, {} .. {})" if command == "ZADD" else "call('ZREM', {}, {} .. {})"
    change = call.format(position.group, position.member, key)
    yield f"if {position.condition} then {change} end" if position.condition else change


def claim_of(group: tuple[str, ...], values: Terms) -> tuple[str | None, str]:
    """A row's value in a unique group and the condition under which it has one; None if it cannot have one."""
    terms = [values(name) for name in group]
    if any(term.null for term in terms):
        return None, "false"
    present = " and ".join(term.lua for term in terms if term.null is None) or "true"
    return " .. ".join(f"grouped({term.lua})" for term in terms), present


def _ended(value: str) -> str:
    return f"escaped({value}) .. '\\000'"
