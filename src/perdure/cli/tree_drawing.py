"""A thread's tree in colour: the drawing is the library's (`perdure.model.tree`), the styles are the command's."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from perdure.cli.terminal import ROLES
from perdure.model.tree import Span, Tree, drawn_lines

_CURRENT = {"mark": "bold green", "tip": "bold green", "branch": "bold green", "text": "", "internal": "italic"}
_STYLES = {"branch": "cyan", "label": "bold magenta", "internal": "dim italic"}


def draw(tree: Tree, width: int) -> Iterator[Text]:
    """The whole drawing, a line at a time."""
    for spans in drawn_lines(tree, width):
        line = Text(no_wrap=True, overflow="ellipsis")
        for span in spans:
            line.append(span.text, _style(span))
        yield line


def _style(span: Span) -> str:
    if span.kind == "role":
        colour = ROLES.get(span.text.rstrip(), "bold")
        return colour if span.current else f"{colour} not bold dim"
    style = _CURRENT.get(span.kind) if span.current else None
    return _STYLES.get(span.kind, "dim") if style is None else style
