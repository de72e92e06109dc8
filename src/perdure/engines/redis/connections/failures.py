"""How a request can fail: the server replies with an error, the reply cannot be read, or the connection is lost.

A server chooses the words of its errors, and one that received a password can repeat it. So the text of an error reply
is bounded, and loses control characters and the password, before anything else handles it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 2_000
HIDDEN = "***"
_SECRET_CHARACTERS = 4
"""A shorter password is part of too many words to be removed from them."""

FORBIDDEN_IN_SCRIPT = ("ACL failure in script", "user executing the script")
_NESTED_CODES = (
    *("OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY"),
    *("NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT"),
    *("PERDURE_CORRUPT", "PERDURE_RANGE", "PERDURE_REFUSED"),
)
"""Codes that older servers wrap in the error of a script."""
_NESTED_CODE = re.compile(rf"\b({'|'.join(_NESTED_CODES)})\b")
_LEADING_CODES = frozenset(
    ("ERR", "EXECABORT", "NOSCRIPT", "OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
    + ("NOAUTH", "WRONGPASS", "NOPERM", "CROSSSLOT")
)
"""Codes that are dropped from the text of a reply."""
_MEANINGS = (
    *_NESTED_CODES,
    *FORBIDDEN_IN_SCRIPT,
    *("Error compiling script", "unknown command"),
    *("cluster support disabled", "DB index is out of range", "value is not an integer"),
)
_MEANING = re.compile("(" + "|".join(map(re.escape, _MEANINGS)) + ")")
_REDIRECTION = re.compile(r"[0-9]+ ([^ ]*):([0-9]+)")
_BAD_LOGINS = ("invalid password", "AUTH <password> called without any password configured")
_REFUSED_CONNECTIONS = ("max number of clients reached", "problem with LDAP service")


class Lost(Exception):
    """The connection broke before the reply to a request arrived, or the reply is one that no server of this kind
    sends: the outcome is unknown."""


class Silent(Lost):
    """No reply arrived within the time limit of a command."""


class Stopped(Lost):
    """A script that commits ended in an error that may have come after its first write."""


class ConnectionRefused(Lost):
    """The server replied with an error and closes the connection, for example because it has too many clients."""


class SpeaksPlain(OSError):
    """A port that was addressed with TLS answers without it."""

    def __init__(self) -> None:
        super().__init__("the server does not speak TLS on this port")


class InvalidReply(Exception):
    """Bytes that are not of the protocol, or a reply larger than its budget."""


class ErrorReply(Exception):
    """An error as the server's reply. `code` is empty if the text contains none that the engine knows."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_login(self) -> bool:
        """Whether the server rejects the user or the password."""
        return self.code in ("NOAUTH", "WRONGPASS")


class Redirection(ErrorReply):
    """A node of a cluster names another one: the owner of the slot (MOVED), or where it is being moved to (ASK)."""

    def __init__(self, text: str, code: str) -> None:
        match = _REDIRECTION.fullmatch(text)
        if match is None:
            raise InvalidReply(f"a redirection without a host and a port: {text!r:.200}")
        super().__init__(text, code)
        self.host, self.port = match.groups()


def parse_error(line: str) -> ErrorReply | ConnectionRefused:
    """The error reply in a line, which must have passed `cleaned`."""
    code, _, text = line.partition(" ")
    if code in ("MOVED", "ASK"):
        return Redirection(text, code)
    if code == "ERR" and text in _REFUSED_CONNECTIONS:
        return ConnectionRefused(text)
    if code == "ERR" and text.startswith(_BAD_LOGINS):
        return ErrorReply(text, "WRONGPASS")
    if code not in _LEADING_CODES:
        return ErrorReply(line, _nested_code(line))
    return ErrorReply(text, _nested_code(text) if code in ("ERR", "EXECABORT") else code)


def _nested_code(text: str) -> str:
    if any(words in text for words in FORBIDDEN_IN_SCRIPT):
        return "NOPERM"
    match = _NESTED_CODE.search(text)
    return "" if match is None else match[1]


def reason_of(error: BaseException) -> str:
    """The text of an error, or the name of its class if it has none."""
    return str(error) or type(error).__name__


def cleaned(text: str, secrets: Sequence[str] = ()) -> str:
    """A server's words, safe to show and to log."""
    text = text[: LONGEST + max(map(len, secrets), default=0)]
    for secret in secrets:
        if len(secret) >= _SECRET_CHARACTERS:
            text = _without(text, secret)
    return escaped(text[:LONGEST])


def _without(text: str, secret: str) -> str:
    """A password such as `script` must not change what an error means: words that carry a meaning stay."""
    if not any(secret in words for words in _MEANINGS):
        return text.replace(secret, HIDDEN)
    parts = _MEANING.split(text)
    parts[::2] = [part.replace(secret, HIDDEN) for part in parts[::2]]
    return "".join(parts)


def escaped(text: str) -> str:
    """Text with its control and formatting characters spelled out, such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
