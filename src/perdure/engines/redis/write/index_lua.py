"""Generates Lua for a row's entries in indexes and unique groups, as far as they are known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from perdure.engines.redis.schema.table_info import unique_name
from perdure.engines.redis.write.value_lua import quoted
from perdure.kernel.schema import Index, Table

UniqueGroup = tuple[str, ...]


class Term(NamedTuple):
    """A column's value in Lua; `null` says whether it is NULL, None if only the server knows."""

    lua: str
    null: bool | None


Terms = Callable[[str], Term]


class Entry(NamedTuple):
    """The Lua that adds a row's entry in an index or a unique group, and the Lua that removes it."""

    add: str
    remove: str


def columns_of(holder: Index | UniqueGroup) -> tuple[str, ...]:
    """The columns on which the entries in an index or a unique group depend."""
    return (*holder.by, *holder.order) if isinstance(holder, Index) else holder


def entry_of(table: Table, holder: Index | UniqueGroup, values: Terms, key: str) -> Entry | None:
    """A row's entry in an index or a unique group; None if it cannot have one."""
    if isinstance(holder, Index):
        return _index_entry(table, holder, values, key)
    claim, present = claim_of(holder, values)
    if claim is None:
        return None
    name = f"base .. {quoted(unique_name(table, holder))}"
    return _entry(f"call('HSET', {name}, {claim}, {key})", f"call('HDEL', {name}, {claim})", present)


def _index_entry(table: Table, index: Index, values: Terms, key: str) -> Entry | None:
    order, by = [values(name) for name in index.order], [values(name) for name in index.by]
    required = order + by[: index.required]
    if any(term.null for term in required):
        return None
    group = " .. ".join([f"base .. {quoted(f'i:{table.name}:{index.name}:')}", *[f"grouped({t.lua})" for t in by]])
    parts = [_ordered(term.lua, table.types[name]) for name, term in zip(index.order, order, strict=True)]
    member = " .. ".join([*parts, key])
    present = " and ".join(term.lua for term in required if term.null is None)
    return _entry(f"call('ZADD', {group}, 0, {member})", f"call('ZREM', {group}, {member})", present)


def _entry(add: str, remove: str, present: str) -> Entry:
    return Entry(f"if {present} then {add} end", f"if {present} then {remove} end") if present else Entry(add, remove)


def claim_of(group: UniqueGroup, values: Terms) -> tuple[str | None, str]:
    """A row's value in a unique group and the condition under which it has one; None if it cannot have one."""
    terms = [values(name) for name in group]
    if any(term.null for term in terms):
        return None, "false"
    present = " and ".join(term.lua for term in terms if term.null is None) or "true"
    return " .. ".join(f"grouped({term.lua})" for term in terms), present


def _ordered(value: str, kind: str) -> str:
    return f"format('%016.0f', {value} + 4503599627370496)" if kind == "int" else f"escaped({value}) .. '\\000'"
