"""What an audit may miss, and why: damage that leaves data which somebody could have written.

The list is exact. A missed mutation that is not here fails the test; so does one that is here and is noticed, and an
entry that excuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.audit.mutations import Damage

ANY_TIME = "any time is a time, and clocks may be set back"
ANY_NUMBER = "nothing else counts this"
ANY_TEXT = "any text will do, and nothing else holds a copy"
ANY_REV = "a rev is a random number that each write mints"
OPTIONAL = "it need not be there, and nothing else says that it was"
ANOTHER = "another row of the thread would do as well"
TOMBSTONE = "a tombstone says nothing but that an id was used, and goes after a week"
UNMARKED = "nothing else refers to it, so nothing misses it"
ONE_MORE = "there may be any number of them"
ANY_LIFE = "any life that a put allows will do"
CARRIED = "unknown words are carried: a newer build may know them"


@dataclass(frozen=True)
class Excuse:
    """Damage of these kinds to a column is not noticed, in these rows, on these engines (none named: everywhere)."""

    table: str
    column: str
    kinds: str
    reason: str
    rows: str = ""
    engines: str = ""

    def covers(self, damage: Damage, engine: str) -> bool:
        return (
            self.table in ("*", damage.table)
            and self.column == damage.column
            and damage.kind in self.kinds.split()
            and (not self.rows or damage.row in self.rows.split())
            and (not self.engines or engine in self.engines.split())
        )


def excuse_of(damage: Damage, excuses: tuple[Excuse, ...], engine: str = "") -> Excuse | None:
    """The first excuse that covers it."""
    return next((excuse for excuse in excuses if excuse.covers(damage, engine)), None)


EXCUSES = (
    Excuse("*", "rev", "other swapped", ANY_REV),
    Excuse("threads", "title", "null other swapped empty control", ANY_TEXT, "leaf parent t"),
    Excuse("threads", "body", "object", "a thread may have no metadata", "t"),
    Excuse("threads", "created_at", "other swapped", TOMBSTONE, "dying erased"),
    Excuse("threads", "deleted_at", "other swapped", TOMBSTONE, "dying erased"),
    Excuse("threads", "erased_at", "null other", TOMBSTONE, "erased"),
    Excuse("threads", "thread", "other", TOMBSTONE, "erased"),
    Excuse("threads", "scope", "other", TOMBSTONE, "erased"),
    Excuse("threads", "*", "deleted", TOMBSTONE, "erased"),
    Excuse("threads", "*", "twin", TOMBSTONE, "dying erased"),
    Excuse("thread_heads", "branch", "other swapped", "any living branch may be the current one", "t"),
    Excuse("thread_heads", "fence", "null other swapped", ANY_NUMBER),
    Excuse("thread_heads", "born", "other swapped", "a birth is known by a random number"),
    Excuse("thread_heads", "updated_at", "other swapped", ANY_TIME),
    Excuse("thread_heads", "child", "null", "rows of an older version have none, and lists know it"),
    Excuse("thread_heads", "open_run", "null", "a run that is not done need not be the open one", "t"),
    Excuse("branches", "created_at", "other swapped", ANY_TIME),
    Excuse("branches", "deleted_at", "other", ANY_TIME, "t/3"),
    Excuse("branches", "name", "other", ANY_TEXT, "leaf/0 parent/0 t/0 t/1 t/2"),
    Excuse("branches", "name", "swapped", ANY_TEXT, "leaf/0 parent/0"),
    Excuse("labels", "label", "other swapped", ANY_TEXT),
    Excuse("labels", "at", "other swapped", ANY_TIME),
    Excuse("labels", "*", "deleted", UNMARKED),
    Excuse("runs", "agent_id", "other", ANY_TEXT),
    Excuse("runs", "parent_run_id", "null other swapped", "a parent run may live anywhere, or nowhere any more"),
    Excuse("runs", "branch", "other swapped", "any living branch of the thread would do as well"),
    Excuse("runs", "steps", "other swapped", ANY_NUMBER),
    Excuse("runs", "input_tokens", "other swapped", ANY_NUMBER),
    Excuse("runs", "output_tokens", "other swapped", ANY_NUMBER),
    Excuse("runs", "created_at", "other swapped", ANY_TIME, "cancelled created done"),
    Excuse("runs", "updated_at", "other swapped", ANY_TIME),
    Excuse("runs", "started_at", "other", ANY_TIME, "cancelled done running waiting"),
    Excuse("runs", "started_at", "swapped", ANY_TIME, "cancelled done running waiting"),
    Excuse("runs", "started_at", "null", "a run may end without having begun", "done"),
    Excuse("runs", "finished_at", "other swapped", ANY_TIME, "cancelled done"),
    Excuse("runs", "body", "object", "a run that neither waits nor is done needs nothing", "running"),
    Excuse("runs", "run", "other", UNMARKED, "cancelled waiting"),
    Excuse("runs", "*", "deleted", UNMARKED, "cancelled done waiting"),
    Excuse("runs", "*", "twin", ONE_MORE, "cancelled created waiting"),
    Excuse("state", "name", "other swapped", ANY_TEXT),
    Excuse("state", "run", "empty", "it is a document of the thread then", "t/running/memo"),
    Excuse("state", "run", "swapped", ANOTHER, "t//plan t/running/memo"),
    Excuse("state", "schema", "other", ANY_NUMBER),
    Excuse("state", "at", "other swapped", ANY_TIME),
    Excuse("state", "body", "object list text", "any JSON is a document"),
    Excuse("state", "*", "deleted", UNMARKED),
    Excuse("state", "*", "twin", ONE_MORE),
    Excuse("keys", "key", "other swapped", ANY_TEXT),
    Excuse("keys", "digest", "swapped", "only whoever commits again knows what was asked"),
    Excuse("keys", "at", "other swapped", ANY_TIME, "t/k2"),
    Excuse("keys", "run", "null", OPTIONAL),
    Excuse("keys", "run", "swapped", ANOTHER, "t/k3"),
    Excuse("keys", "*", "deleted", "keys go after a week"),
    Excuse("keys", "*", "twin", ONE_MORE),
    Excuse("pending", "revision", "other", ANY_NUMBER),
    Excuse("pending", "created_at", "other", ANY_TIME),
    Excuse("pending", "updated_at", "other", ANY_TIME),
    Excuse("queues", "revision", "other swapped", ANY_NUMBER),
    Excuse("queues", "*", "deleted", "an empty queue needs no row", "parent"),
    Excuse("profiles", "owner", "other swapped", ANY_TEXT),
    Excuse("profiles", "key", "other swapped", ANY_TEXT),
    Excuse("profiles", "scope", "other", "another tenant may have it as well"),
    Excuse("profiles", "schema", "other", ANY_NUMBER),
    Excuse("profiles", "created_at", "other swapped", ANY_TIME),
    Excuse("profiles", "updated_at", "other swapped", ANY_TIME),
    Excuse("profiles", "expires_at", "null swapped", ANY_LIFE),
    Excuse("profiles", "expires_at", "other", ANY_LIFE, "t/prefs user:ann/city"),
    Excuse("profiles", "body", "object list text", "any JSON is a document"),
    Excuse("profiles", "*", "deleted", UNMARKED),
    Excuse("profiles", "*", "twin", ONE_MORE),
    Excuse("messages", "id", "other swapped", UNMARKED, "t/5 t/8"),
    Excuse("messages", "role", "other swapped", CARRIED, "parent/1 t/1 t/6 t/7 t/8"),
    Excuse("messages", "visibility", "other swapped", CARRIED, "parent/1 t/1 t/5 t/6 t/7 t/8"),
    Excuse("messages", "run", "other swapped", "a message may name any run", "parent/1 t/1 t/5 t/6 t/7 t/8"),
    Excuse("messages", "step", "null other swapped", ANY_NUMBER),
    Excuse("messages", "at", "other swapped", ANY_TIME, "t/5 t/6 t/9"),
)
