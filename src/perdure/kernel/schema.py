"""Schema as data: what tables and logs exist, which columns they promote, which orders they can be read in.

Engines derive everything from these declarations: DDL, in-memory indexes, sorted sets. A *table* holds keyed rows with
typed columns, a JSON body and a `rev`; a *log* holds append-only partitions whose entries get a gapless `seq` from 1.
Scope leads every key and partition and is never declared. Text compares as UTF-8 bytes on every engine.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, Literal

import msgspec

ColumnType = Literal["text", "int"]


class Column(msgspec.Struct, frozen=True):
    """A promoted, typed column: what can be filtered, ordered and made unique. NULL is allowed outside keys."""

    name: str
    type: ColumnType = "text"


class Index(msgspec.Struct, frozen=True):
    """Rows grouped by equality on `by` and read in the order of `order`, then of the key.

    A row whose ordering column is NULL is not in the index. A `sparse` index also leaves out rows with a NULL in `by`;
    with a number, only the first so many columns of `by` must not be NULL.
    """

    name: str
    by: tuple[str, ...]
    order: tuple[str, ...]
    sparse: bool | int = False

    @property
    def required(self) -> int:
        """How many of the first columns of `by` no row in the index has NULL in."""
        return len(self.by) if self.sparse is True else int(self.sparse)


class Table(msgspec.Struct, frozen=True, dict=True):
    """Keyed records. `unique` lists column groups that are unique within a scope when none of them is NULL."""

    name: str
    key: tuple[Column, ...]
    columns: tuple[Column, ...] = ()
    indexes: tuple[Index, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns, in order."""
        return tuple(c.name for c in self.key)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names of the promoted columns outside the key, in order."""
        return tuple(c.name for c in self.columns)

    @cached_property
    def types(self) -> dict[str, ColumnType]:
        """Type of every column, key columns included."""
        return {c.name: c.type for c in self.key + self.columns}

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each column outside the key in a row's values."""
        return {c.name: i for i, c in enumerate(self.columns)}

    @cached_property
    def value_types(self) -> dict[str, ColumnType]:
        """Type of every column outside the key."""
        return {c.name: c.type for c in self.columns}

    @cached_property
    def index_by_name(self) -> dict[str, Index]:
        """The declared indexes by name."""
        return {i.name: i for i in self.indexes}


class Log(msgspec.Struct, frozen=True, dict=True):
    """Append-only partitions of one text column. `unique` columns are unique per partition; `segment` names the integer
    column that segment reads select on (a branch number), so that engines can index it together with `seq`."""

    name: str
    partition: str
    columns: tuple[Column, ...] = ()
    unique: tuple[str, ...] = ()
    segment: str | None = None

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names of the promoted columns, in the order in which entries carry their values."""
        return tuple(c.name for c in self.columns)

    @cached_property
    def types(self) -> dict[str, ColumnType]:
        """Type of every promoted column."""
        return {c.name: c.type for c in self.columns}

    @cached_property
    def kinds(self) -> tuple[ColumnType, ...]:
        """Types of the promoted columns, in order."""
        return tuple(c.type for c in self.columns)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each column in an entry's values."""
        return {c.name: i for i, c in enumerate(self.columns)}


class Schema(msgspec.Struct, frozen=True, dict=True):
    """One version of the declarations. Additive changes migrate by themselves; others are written by hand."""

    version: int
    tables: tuple[Table, ...]
    logs: tuple[Log, ...]

    @cached_property
    def table(self) -> dict[str, Table]:
        """Tables by name."""
        return {t.name: t for t in self.tables}

    @cached_property
    def log(self) -> dict[str, Log]:
        """Logs by name."""
        return {log.name: log for log in self.logs}

    def declaration(self) -> str:
        """The declarations as canonical JSON: what an engine records with the data."""
        return msgspec.json.encode(self, order="deterministic").decode()

    def digest(self) -> str:
        """A short hash of the declarations."""
        return hashlib.sha256(self.declaration().encode()).hexdigest()[:16]


def text(*names: str) -> tuple[Column, ...]:
    """Several text columns."""
    return tuple(Column(name) for name in names)


def integer(*names: str) -> tuple[Column, ...]:
    """Several integer columns."""
    return tuple(Column(name, "int") for name in names)


Key = tuple[str | int, ...]
Columns = dict[str, Any]
