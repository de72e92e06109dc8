"""Scripts, joined from files of Lua and called by their hash.

A hash versions its script: an older process still running calls its own text, and a server that has forgotten a hash
(after a restart or a failover) gets the text again.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files


@cache
def lua(*pieces: str) -> str:
    """The text of some files, one after the other."""
    return "\n".join(_piece(piece) for piece in pieces)


def _piece(name: str) -> str:
    for folder in ("read", "write"):
        file = files("perdure.engines.redis") / folder / "lua" / f"{name}.lua"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    raise FileNotFoundError(name)


class Script:
    """A script and its hash. One that `commits` may have written when it ends in an error."""

    def __init__(self, text: str, *, commits: bool = False) -> None:
        self.commits = commits
        self.text = text.encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


VIEW = Script(lua("common", "text", "keys", "reads", "view"))
REBUILD = Script(lua("common", "text", "keys", "indexes", "rebuild"))
AUDIT = Script(lua("common", "text", "keys", "indexes", "reads", "audit"))
RECORD = Script(lua("record"))
UNLOCK = Script(lua("unlock"))
MARK = Script(lua("mark"))
PROBE = Script(lua("probe"))
COMPILE = Script(lua("compile"), commits=True)
"""Runs the text in its last argument."""
