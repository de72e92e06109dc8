"""The scripts: pieces of Lua put together once, called by their hash, loaded where a server does not know them yet."""

from __future__ import annotations

import hashlib
from importlib.resources import files


class Script:
    """One script made of several files. One that `commits` may have written when it ends in an error."""

    def __init__(self, *pieces: str, commits: bool = False) -> None:
        self.commits = commits
        folder = files("perdure.engines.redis") / "lua"
        self.text = "\n".join((folder / f"{piece}.lua").read_text(encoding="utf-8") for piece in pieces).encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


TRANSACT = Script("common", "gate", "rows", "logs", "transact", commits=True)
VIEW = Script("common", "keys", "reads", "view")
TAKE = Script("common", "keys", "gate", "rows", "reads", "take", commits=True)
REBUILD = Script("common", "keys", "rows", "rebuild")
AUDIT = Script("common", "keys", "rows", "reads", "audit")
RECORD = Script("record")
UNLOCK = Script("unlock")
MARK = Script("mark")
PROBE = Script("probe")
