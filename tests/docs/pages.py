"""Documentation pages as data: every fenced block with its language, its flags and the line it stands on.

A block is fenced by three backticks. Its first word is the language, the others are flags. Python blocks are executed
unless they carry `no-run`, and also saved under the name in `file=…` (with `save`, for a later shell block to run, they
are saved only); shell and SQL blocks are executed only with `run`, SQL on the server of the page's engine; a text block
with `output` holds what the block before it must print.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(.*)$")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block. `line` is the number of its first line of code."""

    language: str
    flags: frozenset[str]
    code: str
    line: int

    @property
    def runs(self) -> bool:
        if self.language == "python":
            return "no-run" not in self.flags
        return self.language in ("sh", "sql") and "run" in self.flags

    @property
    def file(self) -> str | None:
        """The name under which later blocks of the page find this code."""
        return next((flag.removeprefix("file=") for flag in self.flags if flag.startswith("file=")), None)

    @property
    def is_output(self) -> bool:
        return self.language == "text" and "output" in self.flags


@dataclass(frozen=True)
class Page:
    """A Markdown file and its text."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else self.path.name

    def blocks(self) -> list[Block]:
        return list(_blocks(self))

    def prose(self) -> Iterator[tuple[int, str]]:
        """The lines outside fenced blocks, numbered."""
        fenced = False
        for number, line in enumerate(self.text.splitlines(), 1):
            if FENCE.match(line):
                fenced = not fenced
            elif not fenced:
                yield number, line

    def links(self) -> Iterator[tuple[int, str]]:
        for number, line in self.prose():
            yield from ((number, target) for target in LINK.findall(line))

    def anchors(self) -> set[str]:
        """The anchors that headings get, the way the common Markdown hosts make them."""
        titles = (match.group(1) for _, line in self.prose() if (match := HEADING.match(line)))
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def all_pages() -> list[Page]:
    """README first, then docs/ in order of path."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [Page(path, path.read_text(encoding="utf-8")) for path in paths]


def _blocks(page: Page) -> Iterator[Block]:
    opened: tuple[str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.text.splitlines(), 1):
        match = FENCE.match(line)
        if match is None:
            lines.append(line)
        elif opened is None:
            opened, lines = (match.group(1), number + 1), []
        else:
            language, *flags = opened[0].split() or [""]
            yield Block(language, frozenset(flags), "\n".join(lines) + "\n", opened[1])
            opened = None
    if opened is not None:
        raise ValueError(f"{page.name}:{opened[1] - 1}: this block is never closed")
