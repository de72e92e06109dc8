"""What reaches the terminal: colours when it is one, and never a character that could steer it.

Everything stored may have been written by a stranger. Control characters, escape sequences and the marks that reverse
text are shown as escapes (`\\x1b`), and text is never read as markup: it travels as `rich.text.Text`.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime
from typing import IO, Any, NoReturn

import msgspec
from rich.console import Console
from rich.text import Text

# Control characters, line and paragraph separators, and format characters (which reverse or hide text) but the two
# joiners that scripts and emoji need.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f\ud800-\udfff]"
)
_STEERING_IN_JSON = re.compile("[\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
PIPE_WIDTH = 100
"""How wide a tree is drawn when nobody says and there is no terminal."""

ROLES = {"user": "bold cyan", "assistant": "bold green", "tool": "yellow", "system": "magenta"}
STATUSES = {"created": "blue", "running": "bold green", "waiting": "bold yellow", "done": "dim"}


class Screen(Console):
    """A console without markup, emoji codes or guesses at highlights; with NO_COLOR, without bold and dim as well."""

    def __init__(self, file: IO[str] | None = None, *, width: int | None = None, soft_wrap: bool = False) -> None:
        super().__init__(
            file=file,
            width=width,
            soft_wrap=soft_wrap,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            markup=False,
            emoji=False,
            highlight=False,
        )

    def on_broken_pipe(self) -> NoReturn:
        """A reader who has seen enough is no failure; rich would exit with 1, here the command's end decides."""
        raise BrokenPipeError


def console(*, width: int | None = None) -> Screen:
    """A screen on stdout."""
    out = Screen(width=width)
    if width is None and not out.is_terminal:
        # A pipe has no width: tables take what they need, and programs see whole lines.
        out.width = 10_000
    return out


def error_console() -> Screen:
    """The screen for errors and progress, on stderr."""
    return Screen(sys.stderr, soft_wrap=True)


def visible(text: str, *, lines: bool = False) -> str:
    """The text with everything that could steer a terminal made visible; with `lines`, line ends and tabs may stay."""
    if lines:
        parts = text.replace("\r\n", "\n").expandtabs(4).split("\n")
        return "\n".join(_STEERING.sub(_escaped, part) for part in parts)
    return _STEERING.sub(_escaped, text)


def one_line(text: str, most: int = 200) -> str:
    """The beginning of a text on one line."""
    squeezed = " ".join(text[: most * 4].split())
    shown = visible(squeezed[:most])
    return f"{shown}…" if len(squeezed) > most or len(text) > most * 4 else shown


def _escaped(match: re.Match[str]) -> str:
    return escaped(match.group())


def escaped(character: str) -> str:
    """A character as Python spells it in ASCII: `\\x1b`, `\\u202e`, `\\U0001f980`."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str | None, style: str = "", *, most: int = 200) -> Text:
    """A stranger's text, on one line, safe."""
    return Text(one_line(text or "", most), style=style)


def to_json_text(document: Any) -> str:
    """One line of JSON; what msgspec leaves unescaped and a terminal would obey is escaped too."""
    return harmless_json(msgspec.json.encode(document).decode())


def harmless_json(text: str) -> str:
    """The same JSON with the characters that a terminal would obey spelled as escapes."""
    return _STEERING_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def moment(at: int | None) -> str:
    """A time in milliseconds as people write it, UTC."""
    if at is None:
        return "–"
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(at)
