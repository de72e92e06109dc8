"""Lua for where a row stands in an index and what it holds in a unique group, as far as that is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from perdure.engines.redis.write.value_lua import quoted
from perdure.kernel.schema import Index, Table


class Term(NamedTuple):
    """A column's value in Lua; `null` says whether it is NULL, None if that shows only on the server."""

    lua: str
    null: bool | None


Terms = Callable[[str], Term]


class Place(NamedTuple):
    """A sorted set, what its member begins with, and the condition under which a row is in it ('' for always)."""

    group: str
    member: str
    condition: str


def place_of(table: Table, index: Index, values: Terms) -> Place | None:
    """Where a row stands in an index; None if it surely is not in it."""
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
    return Place(" .. ".join(group), " .. ".join(members), " and ".join(conditions))


def entry(command: str, place: Place | None, key: str) -> Iterator[str]:
    """Enter a row at its place (ZADD), or remove it from there (ZREM)."""
    if place is None:
        return
    member = f"{place.member} .. {key}"
    if command == "ZADD":
        done = f"call('ZADD', {place.group}, 0, {member})"
    else:
        done = f"call('ZREM', {place.group}, {member})"
    yield f"if {place.condition} then {done} end" if place.condition else done


def claim_of(group: tuple[str, ...], values: Terms) -> tuple[str | None, str]:
    """A row's value in a unique group and the condition under which it has one; None if it surely has none."""
    terms = [values(name) for name in group]
    if any(term.null for term in terms):
        return None, "false"
    present = " and ".join(term.lua for term in terms if term.null is None) or "true"
    return " .. ".join(f"grouped({term.lua})" for term in terms), present


def _ended(value: str) -> str:
    return f"escaped({value}) .. '\\000'"
