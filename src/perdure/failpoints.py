"""Named points in the code that a test can make crash, hang or fail.

`hit("sqlite.before_commit")` costs one look into an empty dict in production; a hot path looks itself:
`if failpoints.ARMED: failpoints.hit("…")`. A test arms a point with
`arm(name, action, after=n)`, or a child process inherits them from `PERDURE_FAILPOINTS="name=crash@3,other=error"`.
Actions: `crash` (SIGKILL to this process), `error` (an OSError), `hang` (wait until disarmed), or any callable.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

POINTS = (
    "commit.before_transact",
    "commit.after_transact",
    "delete.after_tombstone",
    "delete.between_chunks",
    "delete.between_erasures",
    "sqlite.before_begin",
    "sqlite.after_member",
    "sqlite.before_commit",
    "sqlite.after_commit",
    "sqlite.in_migration",
    "mysql.in_migration",
    "postgres.in_migration",
    "import.between_chunks",
)
"""Every failpoint of the product. Each is crossed by a test."""

Action = Callable[[str], None]
ARMED: dict[str, tuple[Action, int]] = {}
"""The points that are armed, with what they do and at which crossing; empty in production."""
_released = threading.Event()


def _crash(name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _error(name: str) -> None:
    raise OSError(5, f"failpoint {name}")


def _hang(name: str) -> None:
    _released.wait()


_ACTIONS: dict[str, Action] = {"crash": _crash, "error": _error, "hang": _hang}


def hit(name: str) -> None:
    """Pass the point `name`; nothing happens unless it is armed."""
    if not ARMED or name not in ARMED:
        return
    action, remaining = ARMED[name]
    if remaining > 1:
        ARMED[name] = (action, remaining - 1)
        return
    del ARMED[name]
    action(name)


def arm(name: str, action: str | Action, *, after: int = 1) -> None:
    """Make the `after`-th crossing of `name` run `action`; the point disarms itself then."""
    if name not in POINTS:
        raise ValueError(f"no failpoint is called {name!r}; known: {', '.join(POINTS)}")
    _released.clear()
    ARMED[name] = (_ACTIONS[action] if isinstance(action, str) else action, after)


def disarm() -> None:
    """Disarm everything and let hanging points go on."""
    ARMED.clear()
    _released.set()


def arm_from(text: str) -> None:
    """Arm from `name=action[@count]`, comma separated: how a child process inherits failpoints."""
    for item in filter(None, text.split(",")):
        name, _, action = item.partition("=")
        action, _, count = action.partition("@")
        arm(name.strip(), action.strip(), after=int(count or 1))


arm_from(os.environ.get("PERDURE_FAILPOINTS", ""))
