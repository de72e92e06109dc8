"""A thread's tree: which message hangs under which, and how that is drawn.

Chains stay flat; only the children of a branch point are indented. The current line comes first and is marked. Every
walk is a loop over a stack, and of a deep indentation only the innermost levels are drawn, so ten thousand forks of
forks are no different from three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rich.cells import cell_len
from rich.text import Text

from perdure.cli.escaping import one_line
from perdure.cli.render import role_text

_LEVEL = 3
_ROOM_FOR_TEXT = 40
_ROLE_WIDTH = 9


class Node(msgspec.Struct, frozen=True):
    """One message of a tree. `heads` names the branches that end at it; `current` means on the current line."""

    seq: int
    id: str
    parent: int | None
    branch: int
    role: str
    text: str
    label: str | None = None
    internal: bool = False
    current: bool = False
    heads: tuple[str, ...] = ()


class Tree(msgspec.Struct, frozen=True):
    """The nodes by seq, what hangs under what (None: the roots), and the branches that have no message at all."""

    nodes: Mapping[int, Node]
    children: Mapping[int | None, Sequence[int]]
    empty: Sequence[str]
    current_branch: str


class Row(msgspec.Struct, frozen=True):
    """A line of the drawing: its indentation, whether it is the last of its siblings (None: no connector), its node."""

    gutter: Gutter | None
    last: bool | None
    node: Node


class Gutter(msgspec.Struct, frozen=True):
    """One level of indentation, linked to the one outside it. `more` draws a line down to the next sibling."""

    outer: Gutter | None
    more: bool
    depth: int


def rows(tree: Tree) -> Iterator[Row]:
    """The lines of the drawing, top to bottom."""
    roots = tree.children.get(None, ())
    forked = len(roots) > 1
    stack = _siblings(tree, roots, None, forked=forked)
    while stack:
        row = stack.pop()
        yield row
        below = tree.children.get(row.node.seq, ())
        inside = row.gutter
        if row.last is not None:
            inside = Gutter(row.gutter, more=not row.last, depth=_depth(row.gutter) + 1)
        stack.extend(_siblings(tree, below, inside, forked=len(below) > 1))


def _siblings(tree: Tree, seqs: Sequence[int], gutter: Gutter | None, *, forked: bool) -> list[Row]:
    """Rows of siblings in the order of a stack: the current line on top, then by seq."""
    ordered = sorted((tree.nodes[seq] for seq in seqs), key=lambda node: (not node.current, node.seq))
    final = len(ordered) - 1
    siblings = [Row(gutter, (i == final) if forked else None, node) for i, node in enumerate(ordered)]
    return siblings[::-1]


def _depth(gutter: Gutter | None) -> int:
    return 0 if gutter is None else gutter.depth


def indentation(row: Row, width: int) -> str:
    """The lines to the left of a row; levels that would leave no room for text are counted instead of drawn."""
    own = "" if row.last is None else ("└─ " if row.last else "├─ ")
    levels = max(1, (width - _ROOM_FOR_TEXT) // _LEVEL - 1)
    parts: list[str] = []
    gutter = row.gutter
    while gutter is not None and len(parts) < levels:
        parts.append("│  " if gutter.more else "   ")
        gutter = gutter.outer
    elided = f"⋯{gutter.depth} " if gutter is not None else ""
    return elided + "".join(reversed(parts)) + own


def draw_row(row: Row, width: int, digits: int, current_branch: str) -> Text:
    """A row as one line of at most `width` cells."""
    node = row.node
    faded = "" if node.current else "dim"
    line = Text(no_wrap=True, overflow="ellipsis").append(indentation(row, width), "dim")
    line.append("• " if node.current else "◦ ", "bold green" if node.current else "dim")
    line.append(f"#{node.seq:<{digits}} ", "dim")
    role = role_text(node.role)
    role.pad_right(max(0, _ROLE_WIDTH - cell_len(role.plain)))
    if not node.current:
        role.stylize("not bold dim")
    line.append_text(role).append(" ")
    if node.label is not None:
        line.append(f"[{one_line(node.label, 60)}] ", "bold magenta")
    tips = Text()
    for name in node.heads:
        here = name == current_branch
        tips.append(" ◂ " if here else " ‹ ", "bold green" if here else "dim")
        tips.append(one_line(name, 60), "bold green" if here else "cyan")
    text = Text(node.text, style=f"{faded} italic" if node.internal else faded)
    room = width - line.cell_len - tips.cell_len
    text.truncate(max(room, 8), overflow="ellipsis")
    line.append_text(text).append_text(tips)
    line.truncate(width, overflow="ellipsis")
    return line


def draw(tree: Tree, width: int) -> Iterator[Text]:
    """The whole drawing, a line at a time."""
    digits = len(str(max(tree.nodes, default=0)))
    for row in rows(tree):
        yield draw_row(row, width, digits, tree.current_branch)
    for name in tree.empty:
        here = name == tree.current_branch
        line = Text(no_wrap=True).append("• " if here else "◦ ", "bold green" if here else "dim")
        line.append("no messages yet", "dim").append(f" ◂ {one_line(name, 60)}", "bold green" if here else "cyan")
        line.truncate(width, overflow="ellipsis")
        yield line
