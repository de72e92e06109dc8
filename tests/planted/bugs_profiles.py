"""Bugs in profiles: guards, expiry, pages, imports; see `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

PROFILE_BUGS = (
    Bug(
        "a profile lives one millisecond too long",
        "rules/expiry.py",
        "expires_at <= now",
        "expires_at < now",
        ("case:profiles/ttl@memory",),
    ),
    Bug(
        "an expired profile keeps its age",
        "stores/profiles.py",
        '"created_at": NOW if live is None else live["created_at"],',
        '"created_at": NOW if row is None else row["created_at"],',
        ("case:profiles/expired-is-absent@memory",),
    ),
    Bug(
        "a profile overwrites what it did not read",
        "stores/profiles.py",
        "change = Put(TABLE, row_key, columns, body, ABSENT if row is None else row.rev)",
        "change = Put(TABLE, row_key, columns, body)",
        ("case:profiles/guarded-race@memory",),
    ),
    Bug(
        "expired profiles shorten a page",
        "stores/profiles.py",
        "if len(live) >= count or len(rows) < size or len(inside) < len(page):",
        "if live or len(rows) < size or len(inside) < len(page):",
        ("case:profiles/expired-pages@memory",),
    ),
    Bug(
        "a prefix leaves out the key that equals it",
        "stores/profiles.py",
        "first = [(owner, prefix)] if after is None and prefix is not None else []",
        "first: list[tuple[str, str]] = []\n        after = prefix if after is None else after",
        ("case:profiles/prefix@memory",),
    ),
    Bug(
        "housekeeping removes a profile that was written anew",
        "stores/cleanup.py",
        "[Delete(scan.table, row.key, row.rev) for row in doomed]",
        "[Delete(scan.table, row.key) for row in doomed]",
        ("case:profiles/sweep-race@memory",),
    ),
    Bug(
        "a follower repeats documents that did not change",
        "stores/profile_following.py",
        "if self._revs.get(profile.key) != profile.rev:",
        "if profile.rev:",
        ("case:profiles/follow@memory",),
    ),
    Bug(
        "an import does not look at the life of a profile",
        "stores/soundness.py",
        "    problem = expiry_problem(row)\n",
        "    problem = None\n",
        ("test:tests/unit/test_auditor.py::test_damage_to_rows_is_found_and_nothing_else",),
    ),
    Bug(
        "expired profiles are exported",
        "stores/transfer/export.py",
        "if not is_over(row, now):",
        "if row is not None:",
        ("case:profiles/transfer@memory",),
    ),
)
