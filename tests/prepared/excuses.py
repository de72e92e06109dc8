"""What an audit of a prepared store may miss, and why. The list is exact: see `tests.audit.excuses`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.audit.mutations import Damage


@dataclass(frozen=True)
class Excuse:
    """Damage of these kinds to a column; `engines` names where it holds (none named: everywhere)."""

    table: str
    column: str
    kinds: str
    reason: str
    engines: str = "sqlite redis"

    def covers(self, damage: Damage, engine: str) -> bool:
        return (
            engine in self.engines.split()
            and self.table in ("*", damage.table)
            and self.column == damage.column
            and damage.kind in self.kinds.split()
        )


def excuse_of(damage: Damage, engine: str, excuses: tuple[Excuse, ...]) -> Excuse | None:
    """The first excuse that covers it."""
    return next((excuse for excuse in excuses if excuse.covers(damage, engine)), None)


ANY_TEXT = "any text will do, and nothing else holds a copy; whoever shows it escapes it"
OPTIONAL = "it need not be there, and nothing else says that it was"
LAST_COUNTS = "of two members of one name the last counts, and that is as good as any"

EXCUSES: tuple[Excuse, ...] = (
    Excuse("threads", "title", "null control", ANY_TEXT),
    Excuse("threads", "body", "twice", LAST_COUNTS),
    Excuse("thread_heads", "fence", "null", OPTIONAL),
    Excuse("thread_heads", "open_run", "null", OPTIONAL),
    Excuse("runs", "body", "twice", LAST_COUNTS),
    Excuse("state", "body", "text", "any JSON is a document"),
    Excuse("state", "body", "twice", LAST_COUNTS),
    Excuse("keys", "run", "null", OPTIONAL),
    Excuse("messages", "step", "null", OPTIONAL, "sqlite"),
)

LEAKS: tuple[Excuse, ...] = ()
"""Where a call still raises what is not ours."""
