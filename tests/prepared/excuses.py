"""What an audit of a prepared store may miss, and why. The list is exact: see `tests.audit.excuses`."""

from __future__ import annotations

from tests.audit.excuses import OPTIONAL, Excuse

ANY_TEXT = "any text will do, and nothing else holds a copy; whoever shows it escapes it"
LAST_COUNTS = "of two members of one name the last counts, and that is as good as any"

EXCUSES: tuple[Excuse, ...] = (
    Excuse("threads", "title", "null control", ANY_TEXT),
    Excuse("threads", "body", "twice", LAST_COUNTS),
    Excuse("thread_heads", "fence", "null", OPTIONAL),
    Excuse("thread_heads", "open_run", "null", OPTIONAL),
    Excuse("runs", "body", "twice", LAST_COUNTS),
    Excuse("state", "body", "text", "any JSON is a document"),
    Excuse("state", "body", "twice", LAST_COUNTS),
    Excuse("profiles", "expires_at", "null", OPTIONAL),
    Excuse("profiles", "body", "text", "any JSON is a document"),
    Excuse("profiles", "body", "twice", LAST_COUNTS),
    Excuse("keys", "run", "null", OPTIONAL),
    Excuse("messages", "step", "null", OPTIONAL, engines="sqlite"),
)

LEAKS: tuple[Excuse, ...] = ()
"""Where a call still raises what is not ours."""
