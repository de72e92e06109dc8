"""`Joined`: a read for lists that show a few columns of two tables with the same key, as one tuple per row.

It says nothing that `view` could not: scans of one table, and `Get` of the other by the keys of the first. But an
engine that joins in its own language fetches only what is shown and builds no rows. So it is optional: an engine that
has `view_joined` answers it, and for others a store asks by `view`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.kernel.ops import Scan

Values = tuple[Any, ...]


class Chosen(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Columns of two tables, each by its table and name: of the key, declared, `rev` or `body`.

    Those of the key of `table` come first. Made once per list and compared by identity, so that engines and checks can
    keep what they derive from it.
    """

    table: str
    other: str
    columns: tuple[tuple[str, str], ...]

    def position(self, table: str, name: str) -> int:
        """Where the value of a column is in each tuple."""
        return self.columns.index((table, name))


class Joined(msgspec.Struct, frozen=True, gc=False):
    """Scans of `chosen.table`; the answer has a list of tuples for each, in its order, all from one snapshot.

    Where the other table has no row of that key, all its columns are None.
    """

    scans: Sequence[Scan]
    chosen: Chosen
