"""Bugs that the fuzzers must find in the seconds that `make test` gives them."""

from __future__ import annotations

from tests.planted.bug import Bug


def _by(target: str) -> tuple[str, ...]:
    return (f"test:tests/fuzz/test_fuzz.py::test_no_case_breaks_anything[{target}]",)


FUZZ_BUGS = (
    Bug(
        "a cursor may be spelled in several ways",
        "kernel/cursor.py",
        " or _spell(framed) != text:",
        ":",
        _by("cursors"),
    ),
    Bug(
        "a cursor begins before the window of its query",
        "stores/messages.py",
        "low = max(last, low)",
        "low = last",
        (*_by("cursors"), "case:messages/cursor-window@memory"),
    ),
    Bug(
        "a commit loses who sent a message",
        "stores/records.py",
        "message.sender_agent_id,",
        "None,",
        (*_by("messages"), "case:messages/fields-round-trip@memory"),
    ),
    Bug(
        "a deleted thread leaves rows of one table",
        "stores/deletion.py",
        "if table.name not in _OWN]",
        'if table.name not in (*_OWN, "queues")]',
        _by("imports"),
    ),
    Bug(
        "a text is taken before its end has come",
        "engines/redis/connections/resp.py",
        "if self._end < end + 2:",
        "if self._end < end:",
        _by("resp"),
    ),
)
