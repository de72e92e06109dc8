"""Text that cannot steer a terminal: one pattern says what is escaped, for people and in JSON.

Everything stored may have been written by a stranger. Escaped are, by Unicode's categories, controls (Cc), format
characters (Cf: they reverse, hide or tag text), line and paragraph separators (Zl, Zp) and lone surrogates (Cs); and
letters that show nothing (the Hangul fillers), and the unassigned code points that Unicode reserves for more of these.
Joiners and variation selectors stay where emoji and scripts need them: after a character that shows, one at a time.
The ranges are written out, so that the output does not depend on the version of Python; a test compares them with its
Unicode database.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import msgspec

_STEERING = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180e\u200b"
    "\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff\ud800-\udfff"
)
_JOINERS = "\u200c\u200d"
_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_ESCAPED = re.compile(
    f"[{_STEERING}]"
    # A joiner is for letters and emoji: hidden in ASCII, doubled, or after something escaped, it only hides.
    f"|(?<![^\x00-\x7f])[{_JOINERS}]|(?<=[{_STEERING}{_JOINERS}])[{_JOINERS}]"
    f"|(?<=[{_STEERING}{_JOINERS}{_SELECTORS}][{_SELECTORS}])[{_JOINERS}]"
    # One selector chooses a glyph ('1\ufe0f\u20e3'); a row of them carries hidden bytes.
    f"|(?<=[{_STEERING}{_JOINERS}{_SELECTORS}])[{_SELECTORS}]"
)


def visible(text: str, *, lines: bool = False) -> str:
    """The text with everything that could steer a terminal made visible; with `lines`, line ends and tabs may stay."""
    if text.isascii() and text.isprintable():
        return text
    if lines:
        parts = text.replace("\r\n", "\n").expandtabs(4).split("\n")
        return "\n".join(_ESCAPED.sub(_spelled, part) for part in parts)
    return _ESCAPED.sub(_spelled, text)


def one_line(text: str, most: int = 200) -> str:
    """The beginning of a text on one line."""
    squeezed = " ".join(text[: most * 4].split())
    start = visible(squeezed[:most])
    return f"{start}…" if len(squeezed) > most or len(text) > most * 4 else start


def cells(text: str) -> int:
    """How many columns a terminal needs for a text; rather one too many where terminals differ."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if character == "\ufe0f":
        return 1  # it makes the emoji before it wide
    kind = unicodedata.category(character)
    if kind in ("Mn", "Me", "Cf"):
        return 0
    wide = unicodedata.east_asian_width(character) in "WF" or (kind == "Cn" and character >= "\U0001f000")
    return 2 if wide else 1


def fitting(text: str, most: int) -> str:
    """The text if it fits in so many columns, else its beginning and an ellipsis."""
    if cells(text) <= most:
        return text
    room = most - 1
    for i, character in enumerate(text):
        room -= _cells_of(character)
        if room < 0:
            return text[:i] + ("…" if most > 0 else "")
    return text


def escaped(character: str) -> str:
    """A character as Python spells it in ASCII: `\\x1b`, `\\u202e`, `\\U0001f980`."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escaped_in_json(text: str) -> str:
    """Characters as JSON spells them: UTF-16, so one beyond the first plane is two escapes."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)])


def harmless_json(text: str) -> str:
    """The same JSON, on one line, with the characters that a terminal would obey spelled as escapes."""
    return _ESCAPED.sub(lambda match: escaped_in_json(match.group()), text)


def to_json_text(document: Any) -> str:
    """One line of JSON; what msgspec leaves unescaped and a terminal would obey is escaped too."""
    try:
        return harmless_json(msgspec.json.encode(document).decode())
    except UnicodeEncodeError:
        # A file name need not be UTF-8; Python carries its bytes as lone surrogates, which JSON can spell.
        return json.dumps(msgspec.to_builtins(document), separators=(",", ":"))


def _spelled(match: re.Match[str]) -> str:
    return escaped(match.group())
