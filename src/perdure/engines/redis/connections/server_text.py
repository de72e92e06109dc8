"""What a server says in an error, made fit to be shown: bounded, without control characters, without the password.

A server chooses the words of its errors, and one that was sent a password can repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 2_000
_SECRET_CHARACTERS = 4
"""A shorter password is part of too many words to be taken out of them."""
HIDDEN = "***"
MEANINGS = (
    *("OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY"),
    *("NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT"),
    *("PERDURE_CORRUPT", "PERDURE_RANGE", "PERDURE_REFUSED"),
    *("ACL failure in script", "user executing the script", "Error compiling script", "unknown command"),
    *("cluster support disabled", "DB index is out of range", "value is not an integer"),
)
"""The words by which errors are told apart."""
_MEANING = re.compile("(" + "|".join(map(re.escape, MEANINGS)) + ")")


def cleaned(text: str, secrets: Sequence[str] = ()) -> str:
    """A server's words as they may be shown and logged."""
    shown = text[: LONGEST + max(map(len, secrets), default=0)]
    for secret in secrets:
        if len(secret) >= _SECRET_CHARACTERS:
            shown = _without(shown, secret)
    return escaped(shown[:LONGEST])


def _without(text: str, secret: str) -> str:
    """A password such as `script` must not change what an error means: then those words stay, which tell nothing."""
    if not any(secret in words for words in MEANINGS):
        return text.replace(secret, HIDDEN)
    parts = _MEANING.split(text)
    parts[::2] = [part.replace(secret, HIDDEN) for part in parts[::2]]
    return "".join(parts)


def escaped(text: str) -> str:
    """Text with its control and formatting characters spelled out, such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
