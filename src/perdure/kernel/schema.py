"""Schema as data: what tables and logs exist, which columns they promote, which orders they can be read in.

Engines derive everything from these declarations: DDL, in-memory indexes, sorted sets. A *table* holds keyed rows with
typed columns, a JSON body and a `rev`; a *log* holds append-only partitions whose entries get a gapless `seq` from 1.
Scope leads every key and partition and is never declared. Text compares as UTF-8 bytes on every engine.

Two kinds of facts are declared here. What shapes storage is recorded with the data (`declaration`), and a change of it
needs a new version. Who owns rows and how they are erased is a matter of the running program: it is not recorded, so it
may change without a migration.
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


class Blank(msgspec.Struct, frozen=True):
    """Erasing a row empties it instead of deleting it: its owner and these columns become NULL, its body `{}`.

    `marks` are columns set to a value, such as `("status", "erased")`. A row without an owner belongs to the scope.
    """

    columns: tuple[str, ...] = ()
    marks: tuple[tuple[str, str | int], ...] = ()


class Table(msgspec.Struct, frozen=True, dict=True):
    """Keyed records. `unique` lists column groups that are unique within a scope when none of them is NULL.

    `owner` names the column that says which thread a row belongs to: the first of the key, or one by which an index
    groups. Rows of a table without it belong to the scope. `erase` says what becomes of a thread's rows when it is
    erased. Raise `generation` when rows get another meaning: see `stored`.
    """

    name: str
    key: tuple[Column, ...]
    columns: tuple[Column, ...] = ()
    indexes: tuple[Index, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    generation: int = 1
    owner: str | None = None
    erase: Literal["delete"] | Blank = "delete"

    def __post_init__(self) -> None:
        if self.owner is not None and self.owner != self.key_names[0] and self.owner_index is None:
            raise ValueError(f"{self.name}: no index is grouped by the owner {self.owner}, nor does it lead the key")
        if not isinstance(self.erase, Blank):
            return
        if self.owner not in self.column_names:
            raise ValueError(f"{self.name}: a blanked row loses its owner, so the owner must be outside the key")
        unknown = {*self.erase.columns, *(name for name, _ in self.erase.marks)} - {*self.column_names}
        if unknown:
            raise ValueError(f"{self.name}: it has no column {min(unknown)} to blank")

    @cached_property
    def stored(self) -> str:
        """Its name in an SQL database. Each generation has another: every statement of a process that knows an older
        generation names a table that is gone, and fails."""
        return _stored(self.name, self.generation)

    @cached_property
    def owner_index(self) -> Index | None:
        """The index that finds the rows of an owner; None if they are found by key."""
        if self.owner is None or self.owner == self.key_names[0]:
            return None
        return next((index for index in self.indexes if index.by == (self.owner,)), None)

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
    column that segment reads select on (a branch number), so that engines can index it together with `seq`.

    `owner` is the partition if each partition belongs to the thread of that id, and is dropped with it. `generation` is
    that of `Table`. With `trim`, the oldest entries may be removed: seqs are then gapless from any number on.
    """

    name: str
    partition: str
    columns: tuple[Column, ...] = ()
    unique: tuple[str, ...] = ()
    segment: str | None = None
    generation: int = 1
    owner: str | None = None
    trim: bool = False

    def __post_init__(self) -> None:
        if self.owner not in (None, self.partition):
            raise ValueError(f"{self.name}: the owner of a log is its partition, not {self.owner}")

    @cached_property
    def stored(self) -> str:
        """Its name in an SQL database, as for `Table`."""
        return _stored(self.name, self.generation)

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

    @cached_property
    def stored(self) -> dict[str, str]:
        """The name of every table and log in an SQL database."""
        tables = {table.name: table.stored for table in self.tables}
        return tables | {log.name: log.stored for log in self.logs}

    def declaration(self) -> str:
        """What shapes storage, as canonical JSON: what an engine records with the data.

        Fields that came later are left out where they are at their default, and ownership everywhere: so declarations
        that earlier builds recorded keep their text and their digest.
        """
        shapes = [[_recorded(shape) for shape in some] for some in (self.tables, self.logs)]
        facts = {"version": self.version, "tables": shapes[0], "logs": shapes[1]}
        return msgspec.json.encode(facts).decode()

    def digest(self) -> str:
        """A short hash of the declarations."""
        return hashlib.sha256(self.declaration().encode()).hexdigest()[:16]


_NOT_RECORDED = frozenset(("owner", "erase"))
_LATER: dict[str, Any] = {"generation": 1, "trim": False}
"""Fields that came after the first release, with the default at which they are not recorded."""


def _recorded(shape: Table | Log) -> dict[str, Any]:
    """The fields of a declaration that are recorded with the data."""
    fields = ((name, getattr(shape, name)) for name in shape.__struct_fields__ if name not in _NOT_RECORDED)
    return {name: value for name, value in fields if name not in _LATER or value != _LATER[name]}


def _stored(name: str, generation: int) -> str:
    return name if generation == 1 else f"{name}__v{generation}"


def text(*names: str) -> tuple[Column, ...]:
    """Several text columns."""
    return tuple(Column(name) for name in names)


def integer(*names: str) -> tuple[Column, ...]:
    """Several integer columns."""
    return tuple(Column(name, "int") for name in names)


Key = tuple[str | int, ...]
Columns = dict[str, Any]
