"""The order in which threads are listed: which parts of which index a list reads, and how they become one.

The indexes by activity and by creation are grouped by the column `child`, so that the roots are one group of them and
cost no index of their own. A list of roots and children merges the groups, all from one snapshot. Rows that an older
version wrote have no `child` until housekeeping fills it in: they are a third group, part of every such list, from
which a list of roots picks its own. A row that moves between groups keeps its place in the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Literal, TypeVar

import msgspec

from perdure.kernel.joined import Chosen, Values
from perdure.kernel.ops import Row, Scan

Order = Literal["active", "created"]
Rows = TypeVar("Rows", bound=tuple[Row, *tuple[Row | None, ...]])
ORDER_COLUMN: dict[Order, str] = {"active": "updated_at", "created": "created_at"}
_ROOT, _CHILD, _UNKNOWN = 0, 1, None

_COLD, _HOT = "threads", "thread_heads"
COLUMNS = Chosen(
    _HOT,
    _COLD,
    (
        (_HOT, "thread"),
        *[(_COLD, name) for name in ("title", "resource", "parent", "body")],
        *[(_HOT, name) for name in ("created_at", "updated_at", "version", "branch", "children", "fence")],
        *[(_HOT, name) for name in ("active_run", "open_run", "latest_run")],
        (_COLD, "rev"),
    ),
)
"""What a list shows, in the order of the fields of `Thread`; the body holds `custom`."""
_KEYSETS = {order: itemgetter(COLUMNS.position(_HOT, column), 0) for order, column in ORDER_COLUMN.items()}


class ThreadList(msgspec.Struct, frozen=True, kw_only=True):
    """Threads in an order: all, or those of a resource, below a parent, or without one."""

    resource: str | None = None
    parent: str | None = None
    root: bool = False
    order: Order = "active"
    desc: bool = True

    @property
    def query(self) -> tuple[Any, ...]:
        """What a cursor of the list belongs to."""
        return ("threads", self.resource, self.parent, self.root, self.order)

    def keyset(self, head: Row) -> tuple[Any, ...]:
        """Where a thread is in the order."""
        return (head[ORDER_COLUMN[self.order]], head.key[0])

    def scans(self, limit: int, after: tuple[Any, ...] | None) -> list[Scan]:
        """The reads that together hold the first threads after a place."""
        if self.parent is not None:
            name, eq = ("parent", (self.parent,)) if self.resource is None else ("family", (self.resource, self.parent))
            return [Scan("thread_heads", f"{name}_{self.order}", eq, after, limit, desc=self.desc)]
        index = self.order if self.resource is None else f"resource_{self.order}"
        owner = () if self.resource is None else (self.resource,)
        groups = (_ROOT, _UNKNOWN) if self.root else (_ROOT, _CHILD, _UNKNOWN)
        return [
            Scan("thread_heads", index, (*owner, child), after, limit, desc=self.desc, where=self._filter(child))
            for child in groups
        ]

    def _filter(self, child: int | None) -> dict[str, Any]:
        return {"parent": None} if self.root and child is _UNKNOWN else {}

    def keyset_of(self, values: Values) -> tuple[Any, ...]:
        """The same for a thread as `COLUMNS`."""
        keyset: tuple[Any, ...] = _KEYSETS[self.order](values)
        return keyset

    def merged_values(self, groups: Sequence[list[Values]]) -> list[Values]:
        """The threads of all groups in their order, each as `COLUMNS`."""
        full = [group for group in groups if group]
        if len(full) < 2:
            return full[0] if full else []
        threads = [values for group in full for values in group]
        threads.sort(key=_KEYSETS[self.order], reverse=self.desc)
        return threads

    def merged(self, groups: Sequence[Sequence[Rows]]) -> list[Rows]:
        """The threads of all groups in their order; each is a tuple that begins with its hot row."""
        threads = [rows for group in groups for rows in group]
        if sum(map(bool, groups)) > 1:
            threads.sort(key=lambda rows: self.keyset(rows[0]), reverse=self.desc)
        return threads
