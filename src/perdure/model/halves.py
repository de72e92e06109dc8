"""Characters that a server split over two chunks: an emoji in JSON is two escapes, `\\ud83d` and `\\ude00`.

Each half alone is no character and cannot be stored; together they are one.
"""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")


def with_whole_characters(text: str) -> str:
    """The text with its halves joined; a half without the other becomes U+FFFD."""
    if _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Halves:
    """Holds the first half of a character back until the second one comes."""

    def __init__(self) -> None:
        self._first = ""

    def joined(self, text: str) -> str:
        """The text with what was held back; its own last half is held back in turn."""
        text, self._first = self._first + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._first = text[:-1], text[-1]
        return with_whole_characters(text)
