"""The only place that writes to a terminal: colours when it is one, and never a character that could steer it.

A `Screen` escapes every piece of text as it is rendered, whatever its caller forgot, reads no markup and makes no
links; the only control codes left are those that rich makes itself. What goes past a screen (help texts, warnings of
libraries, Python's own tracebacks) meets `guarded_streams`, which let colours through and nothing else. A caller still
escapes what it measures: an escape is wider than what it stands for.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import TextColumn
from rich.segment import Segment
from rich.text import Text

from perdure.cli.escaping import one_line, visible

PIPE_WIDTH = 100
"""How wide a tree is drawn when nobody says and there is no terminal."""

ROLES = {"user": "bold cyan", "assistant": "bold green", "tool": "yellow", "system": "magenta"}
STATUSES = {"created": "blue", "running": "bold green", "waiting": "bold yellow", "done": "dim"}


class Screen(Console):
    """A console without markup, emoji codes, links or guessed highlights; with NO_COLOR, without bold and dim too."""

    def __init__(self, file: IO[str], *, width: int | None = None, soft_wrap: bool = False) -> None:
        super().__init__(
            file=file.stream if isinstance(file, Guard) else file,
            width=width,
            soft_wrap=soft_wrap,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            markup=False,
            emoji=False,
            highlight=False,
        )

    @property
    def on_terminal(self) -> bool:
        """Whether somebody looks at it. Not rich's `is_terminal`: FORCE_COLOR means colours, not a width or a bar."""
        return self.file.isatty()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Every piece of text that rich writes comes from here, escaped."""
        for segment in super().render(renderable, options):
            yield _harmless(segment)

    def on_broken_pipe(self) -> NoReturn:
        """A reader who has seen enough is no failure; rich would exit with 1, here the command's end decides."""
        raise BrokenPipeError


def _harmless(segment: Segment) -> Segment:
    text, style, control = segment
    if control:
        return segment
    if style is not None and style.link is not None:
        style = style.update_link(None)
    return Segment(visible(text, lines=True), style)


def console(*, width: int | None = None) -> Screen:
    """A screen on stdout."""
    out = Screen(sys.stdout, width=width)
    if width is None and not out.on_terminal:
        # A pipe has no width: tables take what they need, and programs see whole lines.
        out.width = 10_000
    return out


def error_console() -> Screen:
    """The screen for errors and progress, on stderr."""
    return Screen(sys.stderr, soft_wrap=True)


_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


class Guard(io.TextIOBase):
    """A stream for whoever does not know of screens: what would steer a terminal is escaped, colours aside."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str, /) -> int:
        """Write text, escaped; answers with the length that was given, as writers expect."""
        parts = _COLOUR.split(text)
        self.stream.write("".join([part if i % 2 else visible(part, lines=True) for i, part in enumerate(parts)]))
        return len(text)

    def flush(self) -> None:
        """Hand on what the stream below has buffered."""
        self.stream.flush()

    def isatty(self) -> bool:
        """Whether a terminal is below."""
        return self.stream.isatty()

    def writable(self) -> bool:
        """It is there to be written to."""
        return True

    def fileno(self) -> int:
        """The number of the file below."""
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream below."""
        return stream_encoding(self.stream)

    @property
    def buffer(self) -> IO[bytes]:
        """The bytes below, for exports into files and pipes."""
        return self.stream.buffer  # type: ignore[attr-defined, no-any-return]


def stream_encoding(stream: IO[str]) -> str:
    """The encoding of a stream that may have none of its own."""
    return str(getattr(stream, "encoding", None) or "utf-8")


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Escape whatever anybody writes to stdout and stderr meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Guard(sys.stdout), Guard(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def whole(text: str | None, style: str = "") -> Text:
    """An id or a name, exactly as it is: none of it is cut or squeezed."""
    return Text(visible(text or ""), style=style)


def plain(text: str | None, style: str = "", *, most: int = 200) -> Text:
    """The beginning of a stranger's text, on one line and as wide as it will be."""
    return Text(one_line(text or "", most), style=style)


def bar_text(template: str) -> TextColumn:
    """A column of a progress bar whose fields are text, and not markup."""
    return TextColumn(template, markup=False)


def moment(at: int | None) -> str:
    """A time in milliseconds as people write it, UTC."""
    if at is None:
        return "–"
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(at)
