"""Tables that fit and lose nothing: what matters least moves to a second line, and only long texts are shortened.

When a terminal is too narrow, the columns of the lowest `worth` leave the table. Their values follow each row on an
indented line, with their names. What is left shares the room; a long text ends in an ellipsis. An id, a time or a
number is always whole: a table whose ids alone are wider than the terminal is drawn wider.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rich.text import Text

from perdure.cli.flow import GAP, flowed, shortened

_INDENT = 4
_READABLE = 10
"""What a text needs at least to be worth showing."""

Kind = Literal["id", "word", "number", "time", "text"]
Cell = str | Text


class Column(NamedTuple):
    """A column: `id`, `word`, `number` and `time` are never cut, a `text` may be. The highest `worth` stays longest."""

    name: str
    kind: Kind
    worth: int


class Layout(NamedTuple):
    """Which columns are in the table, by index, how wide each is, and which follow on a line of their own."""

    inside: list[int]
    widths: list[int]
    below: list[int]


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, ellipsis: str = "…"
) -> Iterator[Text]:
    """The lines of the table, its head first."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    layout = _layout(columns, cells, width)
    head = [Text(column.name, "dim") for column in columns]
    for row in (head, *cells):
        line = Text()
        for index, room in zip(layout.inside, layout.widths, strict=True):
            cell = shortened(row[index], room, ellipsis)
            padding = " " * (room - cell.cell_len)
            line.append_text(Text(padding) + cell if columns[index].kind == "number" else cell + Text(padding))
            line.append(" " * GAP)
        line.rstrip()
        yield line
        if row is not head:
            yield from _below(columns, row, layout, width, ellipsis)


def _below(columns: Sequence[Column], row: Sequence[Text], layout: Layout, width: int, ellipsis: str) -> Iterator[Text]:
    """The values that have no column, each after its name."""
    pieces: list[Text] = []
    for index in layout.below:
        name, kind, _ = columns[index]
        if row[index] and str(row[index]) != "0":
            piece = Text(f"{name} ", "dim").append_text(row[index])
            pieces.append(shortened(piece, width - _INDENT, ellipsis) if kind == "text" else piece)
    for line in flowed(pieces, width - _INDENT):
        yield Text(" " * _INDENT).append_text(line)


def _layout(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> Layout:
    longest = [max([len(column.name), *(row[index].cell_len for row in rows)]) for index, column in enumerate(columns)]
    needed = [
        min(size, max(_READABLE, len(column.name))) if column.kind == "text" else size
        for size, column in zip(longest, columns, strict=True)
    ]
    inside, below = list(range(len(columns))), list[int]()
    while len(inside) > 1 and _total(needed, inside) > width:
        least = min(inside, key=lambda index: columns[index].worth)
        inside.remove(least)
        below.append(least)
    spare = max(width - _total(needed, inside), 0)
    for index in sorted(inside, key=lambda index: -columns[index].worth):
        more = min(spare, longest[index] - needed[index])
        needed[index] += more
        spare -= more
    return Layout(inside, [needed[index] for index in inside], sorted(below))


def _total(widths: Sequence[int], inside: Sequence[int]) -> int:
    return sum(widths[index] for index in inside) + GAP * (len(inside) - 1)
