"""A record as a list of its facts: a name and a value on each line, those without a value left out."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

Fact = tuple[str, object]


def facts_table(facts: Iterable[Fact]) -> Table:
    """The facts as a table of two columns; what is too long is continued below itself."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        if str(value):
            table.add_row(name, value if isinstance(value, Text) else str(value))
    return table
