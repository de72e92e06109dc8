"""What is said when a server cannot be had, and whether that is a skip or a failure.

On somebody's laptop a server that cannot be had leaves its tests skipped, loudly and counted. Where `CI` is set, or
`PERDURE_REQUIRE_SERVERS=1`, the same tests fail: a build must never go green because it tested nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

REQUIRE_VARIABLE = "PERDURE_REQUIRE_SERVERS"
_NO = ("", "0", "false", "no")


class ServerMissing(Exception):
    """No such server can be had here; the message lists everything that was tried."""

    def __init__(self, name: str, tried: Sequence[str]) -> None:
        self.name = name
        self.tried = tuple(tried)
        super().__init__(f"no {name} server: " + "; ".join(tried))


def servers_required() -> bool:
    """Is a missing server a failure here?"""
    return any(os.environ.get(name, "").lower() not in _NO for name in (REQUIRE_VARIABLE, "CI"))
