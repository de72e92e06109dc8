"""Pieces side by side: lines are wrapped between pieces and never inside one, so that ids and times stay whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

GAP = 2
"""Columns between two pieces."""


def flowed(pieces: Iterable[Text], width: int, *, indent: int = 0) -> Iterator[Text]:
    """Lines of at most `width` columns; all but the first are indented. A piece wider than that has its own line."""
    line = Text()
    for piece in pieces:
        if line and line.cell_len + GAP + piece.cell_len > width:
            yield line
            line = Text(" " * indent)
        elif line:
            line.append(" " * GAP)
        line.append_text(piece)
    if line:
        yield line


def shortened(text: Text, width: int, ellipsis: str = "…") -> Text:
    """The text, or as much of it as fits, with an ellipsis that says so."""
    if text.cell_len <= width:
        return text
    beginning = text.copy()
    beginning.truncate(max(width - len(ellipsis), 0))
    beginning.rstrip()
    return beginning.append(ellipsis)
