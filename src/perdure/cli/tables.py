"""Tables that fit: an id is shown whole or not at all, and what matters least makes room first.

When a terminal is too narrow, times lose their clock, then columns are left out, those of the lowest `worth` first.
What is left shares the room; long texts end in an ellipsis. An id is worth more than any width: a table whose ids alone
are wider than the terminal is drawn wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_GAP = 2
_DATE = len("2026-01-31")
_READABLE = 12
"""What a text needs at least to be worth showing."""

Kind = Literal["id", "word", "number", "time", "text"]
Cell = str | Text


class Column(NamedTuple):
    """A column: `id`, `word`, `number` and `time` are never cut, a `text` may be. The highest `worth` stays longest."""

    name: str
    kind: Kind
    worth: int


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> tuple[Table, int]:
    """The table, and how wide it has to be drawn."""
    cells = [list(row) for row in rows]
    if _needed(columns, cells) > width:
        cells = [[_dated(cell, column) for cell, column in zip(row, columns, strict=True)] for row in cells]
    columns = list(columns)
    while len(columns) > 1 and _needed(columns, cells) > width:
        least = min(range(len(columns)), key=lambda i: columns[i].worth)
        del columns[least]
        for row in cells:
            del row[least]
    return _drawn(columns, cells), max(width, _needed(columns, cells))


def _drawn(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, _widths(columns, rows), strict=True):
        justify: Literal["right", "left"] = "right" if column.kind == "number" else "left"
        table.add_column(column.name, justify=justify, overflow="ellipsis", no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*row)
    return table


def _dated(cell: Cell, column: Column) -> Cell:
    return str(cell)[:_DATE] if column.kind == "time" else cell


def _needed(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> int:
    return sum(_widths(columns, rows)) + _GAP * (len(columns) - 1)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The least width of each column."""
    widths = []
    for index, column in enumerate(columns):
        longest = max([cell_len(column.name), *(cell_len(str(row[index])) for row in rows)])
        widths.append(min(longest, _READABLE) if column.kind == "text" else longest)
    return widths
