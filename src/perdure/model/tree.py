"""A thread's tree: which message hangs under which, as data and as a drawing in plain text.

Chains stay flat; only the children of a branch point are indented. The current line comes first and is marked. Every
walk is a loop over a stack, and of a deep indentation only the innermost levels are drawn, so ten thousand forks of
forks are no different from three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from perdure.errors import InvalidError, short_repr
from perdure.model.branch import Branch
from perdure.model.record import Record
from perdure.model.visible_text import cells, fitting, one_line, visible

_LEVEL = 3
_ROOM_FOR_TEXT = 40
_ROLE_WIDTH = 9
_LEAST_TEXT = 8
NARROWEST, WIDEST = 20, 10_000
"""Columns that a drawing may have."""


class TreeNode(Record, frozen=True):
    """One message of a tree."""

    seq: int
    """Its seq."""
    id: str
    """Its id."""
    parent: int | None
    """The seq of the message it hangs under; None for a root."""
    branch: int
    """The number of the branch that it was written on."""
    role: str
    """Who wrote it."""
    text: str
    """What it says, on one line, shortened, with control characters made visible."""
    label: str | None = None
    """The label that a person put on it."""
    internal: bool = False
    """Whether it is hidden from the external view."""
    current: bool = False
    """Whether it is on the path of the current branch."""
    heads: tuple[str, ...] = ()
    """The names of the branches that end at it."""


class Tree(Record, frozen=True, kw_only=True):
    """The tree of a thread as it was when read."""

    thread_id: str
    """The thread."""
    nodes: list[TreeNode]
    """Its messages in the order in which they were committed: a parent comes before its children."""
    branches: list[Branch]
    """Its branches in order of creation, deleted ones left out."""

    @property
    def current_branch(self) -> str:
        """The name of the current branch."""
        return next((branch.name for branch in self.branches if branch.current), "")

    def draw(self, width: int = 80) -> str:
        """The tree as plain text, a line per message, each at most `width` columns wide (20 to 10,000)."""
        if type(width) is not int or not NARROWEST <= width <= WIDEST:
            raise InvalidError(f"width must be a number of columns from 20 to 10,000, not {short_repr(width)}")
        return "\n".join("".join([span.text for span in line]) for line in drawn_lines(self, width))


SpanKind = Literal["line", "mark", "seq", "role", "label", "text", "internal", "tip", "branch", "note"]


class Span(NamedTuple):
    """A piece of a line, and what it is: who draws in colour goes by that. `current` marks the current line."""

    text: str
    kind: SpanKind
    current: bool = False


class Row(msgspec.Struct, frozen=True):
    """A line of the drawing: its indentation, whether it is the last of its siblings (None: no connector), its node."""

    gutter: Gutter | None
    last: bool | None
    node: TreeNode


class Gutter(msgspec.Struct, frozen=True):
    """One level of indentation, linked to the one outside it. `more` draws a line down to the next sibling."""

    outer: Gutter | None
    more: bool
    depth: int


def rows(nodes: Sequence[TreeNode]) -> Iterator[Row]:
    """The lines of the drawing, top to bottom."""
    children: dict[int | None, list[TreeNode]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    stack = _siblings(children, None, None)
    while stack:
        row = stack.pop()
        yield row
        inside = row.gutter
        if row.last is not None:
            inside = Gutter(row.gutter, more=not row.last, depth=_depth(row.gutter) + 1)
        stack.extend(_siblings(children, row.node.seq, inside))


def _siblings(children: Mapping[int | None, list[TreeNode]], parent: int | None, gutter: Gutter | None) -> list[Row]:
    """Rows of siblings in the order of a stack: the current line on top, then by seq."""
    ordered = sorted(children.get(parent, ()), key=lambda node: (not node.current, node.seq))
    final = len(ordered) - 1
    siblings = [Row(gutter, (i == final) if final > 0 else None, node) for i, node in enumerate(ordered)]
    return siblings[::-1]


def _depth(gutter: Gutter | None) -> int:
    return 0 if gutter is None else gutter.depth


def _indentation(row: Row, width: int) -> str:
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


def drawn_lines(tree: Tree, width: int) -> Iterator[list[Span]]:
    """The whole drawing, a line at a time, each in spans that together have at most `width` columns."""
    digits = len(str(max((node.seq for node in tree.nodes), default=0)))
    current = tree.current_branch
    for row in rows(tree.nodes):
        yield _cut(_node_line(row, width, digits, current), width)
    for branch in tree.branches:
        if branch.head_seq == 0:
            tip = Span(f" ◂ {one_line(branch.name, 60)}", "branch", branch.current)
            yield _cut([_mark(branch.current), Span("no messages yet", "note"), tip], width)


def _node_line(row: Row, width: int, digits: int, current_branch: str) -> list[Span]:
    node = row.node
    role = visible(node.role)
    spans = [
        Span(_indentation(row, width), "line"),
        _mark(node.current),
        Span(f"#{node.seq:<{digits}} ", "seq"),
        Span(role + " " * max(0, _ROLE_WIDTH - cells(role)), "role", node.current),
        Span(" ", "line"),
    ]
    if node.label is not None:
        spans.append(Span(f"[{one_line(node.label, 60)}] ", "label"))
    tips: list[Span] = []
    for name in node.heads:
        here = name == current_branch
        tips += [Span(" ◂ " if here else " ‹ ", "tip", here), Span(one_line(name, 60), "branch", here)]
    room = width - sum(cells(span.text) for span in (*spans, *tips))
    text = fitting(node.text, max(room, _LEAST_TEXT))
    return [*spans, Span(text, "internal" if node.internal else "text", node.current), *tips]


def _mark(current: bool) -> Span:
    return Span("• " if current else "◦ ", "mark", current)


def _cut(spans: Sequence[Span], width: int) -> list[Span]:
    """The spans up to the width; where they are longer, an ellipsis ends them."""
    if sum(cells(span.text) for span in spans) <= width:
        return list(spans)
    room, cut = width - 1, []
    for span in spans:
        size = cells(span.text)
        if size > room:
            # One cell is left for the ellipsis itself.
            cut.append(span._replace(text=fitting(span.text + " ", room + 1)))
            break
        cut.append(span)
        room -= size
    return cut
