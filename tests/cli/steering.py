"""What may not reach a terminal, judged by the Unicode database and not by the product's own pattern."""

from __future__ import annotations

import re
import unicodedata

OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[12]?[AK]|\r(?=\x1b\[|\n|$)")
"""Colours, and how a progress bar hides the cursor, goes up and clears its line."""

_KINDS = ("Cc", "Cf", "Zl", "Zp", "Cs")
_JOINERS = "\u200c\u200d"


def steering(text: str) -> list[str]:
    """Characters that a terminal might obey, line ends aside; a joiner may stand between two visible characters."""
    odd = [c for c in text if c != "\n" and unicodedata.category(c) in _KINDS and c not in _JOINERS]
    return odd + re.findall(r"(?:^|[\x00-\x7f])[\u200c\u200d]|[\u200c\u200d]{2}", text)


def steering_on_screen(text: str) -> list[str]:
    """The same for what a terminal got: the program's own codes aside."""
    return steering(OURS.sub("", text))
