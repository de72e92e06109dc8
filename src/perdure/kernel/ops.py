"""The vocabulary of the kernel: operations for `transact`, reads for `view`, and the values in both.

These are plain records that engines interpret (they hold no cycles, so they need no garbage collection). Bodies are
JSON text as bytes, already encoded by the store that owns them. A row or a partition is named at most once per
transaction, so the order of operations never matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from perdure.kernel.schema import Key


class Presence(Enum):
    """Conditions that need no value."""

    ANY = "any"
    ABSENT = "absent"
    PRESENT = "present"


ANY: Final = Presence.ANY
ABSENT: Final = Presence.ABSENT
PRESENT: Final = Presence.PRESENT


class Now(msgspec.Struct, frozen=True, gc=False):
    """The engine's clock at this transaction, plus `plus` milliseconds.

    It also stands where a bound does: in `AtMost`, `Max`, `Min` and the `upto` of a `take`. A transaction reads the
    clock once, so all of them mean the same time. And it is a read: `view(NOW, Get(…))` answers the engine's time with
    the rows. What an engine stamped is compared with this time only, because the clock of a client may be days off.
    """

    plus: int = 0


class AtMost(msgspec.Struct, frozen=True, gc=False):
    """A column condition: the stored integer is NULL or not above `limit`."""

    limit: int | Now


Condition = Presence | int | dict[str, Any]
"""ANY, ABSENT, PRESENT, a rev, or columns with the value (or `AtMost`) that each must hold."""


class Inc(msgspec.Struct, frozen=True, gc=False):
    """Add to a column; NULL counts as 0."""

    by: int = 1


class Max(msgspec.Struct, frozen=True, gc=False):
    """Raise a column to at least `value`; NULL counts as missing."""

    value: int | Now


class Min(msgspec.Struct, frozen=True, gc=False):
    """Lower a column to at most `value`; NULL counts as missing."""

    value: int | Now


class Swap(msgspec.Struct, frozen=True, gc=False):
    """`new` if the column equals `old` (NULL equals NULL), else what it was: how pointers move."""

    old: str | int | None
    new: str | int | None


class Seq(msgspec.Struct, frozen=True, gc=False):
    """The last seq this transaction appends to `log`, minus `back`."""

    log: str
    back: int = 0


NOW: Final = Now()


class Check(msgspec.Struct, frozen=True, gc=False):
    """Refuse the transaction unless the row meets `if_` (not ANY, not ABSENT)."""

    table: str
    key: Key
    if_: Condition


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write a whole row. Columns may hold `Now` and `Seq`; `if_` is ANY, ABSENT, PRESENT or a rev."""

    table: str
    key: Key
    columns: dict[str, Any]
    body: bytes | None = None
    if_: Condition = ANY


class Default(msgspec.Struct, frozen=True, gc=False):
    """The row that a `Patch` inserts when there is none."""

    columns: dict[str, Any]
    body: bytes | None = None


class Patch(msgspec.Struct, frozen=True, gc=False):
    """Change some columns, and the body if one is given.

    On an absent row it conflicts, whatever `if_`, unless it has a `default`, which is then inserted as it is;
    conditions apply only to an existing row.
    """

    table: str
    key: Key
    set: dict[str, Any]
    if_: Condition = ANY
    body: bytes | None = None
    default: Default | None = None


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove a row; an absent row is fine unless `if_` says otherwise."""

    table: str
    key: Key
    if_: Condition = ANY


class Append(msgspec.Struct, frozen=True, gc=False):
    """Add entries to a partition: each is the declared columns' values in order, then the body.

    `expect` is the partition's last seq before the append. Values may be `Now`. `start`, for copy and import of logs
    that are trimmed, is the seq of the first of these entries: the partition must be empty, or end just before it.
    """

    log: str
    partition: str
    entries: Sequence[tuple[Any, ...]]
    expect: int | None = None
    start: int | None = None

    @property
    def before(self) -> int | None:
        """The last seq that the partition must have before the append; None if any will do."""
        return self.expect if self.start is None else self.start - 1


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Remove a partition, or its entries after seq `keep`; the next append continues after what is left.

    `keep` lets a long log go in bounded pieces, from its end: 5,000 entries are `keep=4_000`, `keep=3_000`, …, 0. If
    all entries up to `keep` were trimmed, nothing is left: the partition is gone, and the next append begins at 1.
    """

    log: str
    partition: str
    keep: int = 0


class Trim(msgspec.Struct, frozen=True, gc=False):
    """Remove the oldest entries of a partition, those with `seq <= upto`; only of a log declared with `trim`.

    The newest entry always stays, so the last seq never falls. One trim removes at most `limits.TRIM_ENTRIES` entries,
    the oldest; `Kernel.trim` repeats it. Their unique values become free. Trimming what is gone already,
    or an absent partition, does nothing. It is alone in its transaction, but for any number of `Check`s.
    """

    log: str
    partition: str
    upto: int


Op = Check | Put | Patch | Delete | Append | Drop | Trim


class Ref(msgspec.Struct, frozen=True, gc=False):
    """Keys taken from the rows that an earlier read of the same view returned (rows with a NULL are skipped).

    `columns` name promoted columns of those rows, or the key column where the key is a single one.
    """

    read: int
    columns: tuple[str, ...]


class Get(msgspec.Struct, frozen=True, gc=False):
    """Rows by key, in the order asked, None for an absent one; with a `Ref`, the rows that exist."""

    table: str
    keys: Sequence[Key] | Ref


class Scan(msgspec.Struct, frozen=True, gc=False):
    """Rows in the order of an index (None: of the key), where the index's leading `by` columns equal `eq`.

    `eq` is a prefix of `by` (or of the key) and must cover `by` wholly when an order is wanted; NULL matches NULL; one
    value may be a `Ref`. `after` is the keyset of the last row seen: ordering values, then key. `where` (a value, a
    tuple of values, None for NULL) and `upto` (column at most n, never NULL) are residual: they cost what they skip.
    In a `take`, `upto` may be `Now`, and its bound on the first ordering column ends the walk.
    """

    table: str
    index: str | None = None
    eq: tuple[Any, ...] = ()
    after: tuple[Any, ...] | None = None
    limit: int | None = None
    desc: bool = False
    where: Mapping[str, Any] = {}
    upto: Mapping[str, int | Now] = {}


class Segment(msgspec.Struct, frozen=True, gc=False):
    """The entries of one segment value (a branch) with `after < seq <= upto`."""

    value: int
    after: int
    upto: int | None = None


class Read(msgspec.Struct, frozen=True, gc=False):
    """Entries of a partition with `after < seq <= upto`, ascending or descending.

    `segments`, disjoint and ascending, restrict the read to the given stretches. `where` works as in `Scan`; equality
    on a unique column is an index look-up.
    """

    log: str
    partition: str
    after: int = 0
    upto: int | None = None
    limit: int | None = None
    desc: bool = False
    where: Mapping[str, Any] = {}
    segments: tuple[Segment, ...] | None = None


class Heads(msgspec.Struct, frozen=True, gc=False):
    """The last seq of each partition, 0 for an empty one, in the order asked."""

    log: str
    partitions: Sequence[str]


ReadOp = Get | Scan | Read | Heads | Now


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a table as read: its key, the values of its declared columns in order, its rev and its body.

    `positions` is the table's map from column names to positions (`Table.positions`); `row["name"]` looks a value up.
    """

    key: Key
    values: tuple[Any, ...]
    rev: int
    body: bytes | str | None
    positions: dict[str, int]

    def __getitem__(self, name: str) -> Any:
        return self.values[self.positions[name]]

    @property
    def columns(self) -> dict[str, Any]:
        """All declared columns by name."""
        return dict(zip(self.positions, self.values, strict=True))


LogEntry = tuple[Any, ...]
"""`(seq, rev, *columns, body)` in declared order; bodies come as JSON text, str or bytes as the engine has them."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """What `transact` returns: the transaction's rev, the last seq of each appended (log, partition), and the clock."""

    rev: int
    seqs: dict[tuple[str, str], int]
    now: int


class Taken(msgspec.Struct, frozen=True, gc=False):
    """What `take` returns: the claimed rows as updated, and the clock."""

    rows: list[Row]
    now: int
