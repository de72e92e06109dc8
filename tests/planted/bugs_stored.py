"""Bugs in how stored data is checked on its way in; see `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

STORED_BUGS = (
    Bug(
        "a row without a time is served",
        "stores/answer_checks.py",
        "if rule.always)",
        'if rule.always and not name.endswith("at"))',
        ("case:lifecycle/damage-not-served@memory",),
    ),
    Bug(
        "listed runs are not checked",
        "kernel/answers.py",
        "elif kind is Scan:",
        'elif kind is Scan and read.table != "runs":  # type: ignore[union-attr]',
        ("test:tests/unit/test_checked.py::test_every_column_of_every_table_is_checked",),
    ),
    Bug(
        "deep JSON is read",
        "kernel/codec.py",
        "if len(data) > NEVER_DEEP and _nests_deeper(data, STORED_DEPTH):",
        "if len(data) > 1_000 * NEVER_DEEP and _nests_deeper(data, STORED_DEPTH):",
        ("test:tests/unit/test_checked.py::test_stored_json_may_nest_so_deeply_and_no_deeper",),
    ),
    Bug(
        "an audit leaves the log at the first entry that it cannot read",
        "audit/log.py",
        "            if size == 1:\n",
        "            if size > 0:\n                raise\n            if size == 1:\n",
        ("test:tests/unit/test_checked.py::test_an_audit_goes_on_after_what_it_cannot_read",),
    ),
    Bug(
        "SQLite takes text for zero",
        "engines/sql/embedded/statements.py",
        "IN ('integer', 'null')",
        "IN ('integer', 'null', 'text', 'real', 'blob')",
        ("test:tests/unit/test_checked.py::test_nothing_is_computed_with_a_number_that_is_none",),
    ),
    # The stores' look-ups.
    Bug(
        "a prefix is only where to begin",
        "stores/threads.py",
        "return [thread for thread in threads if thread.id.startswith(prefix)][:limit]",
        "return threads[:limit]",
        ("case:threads/with-prefix@memory",),
    ),
    Bug(
        "runs that are being erased hide the ones behind them",
        "stores/runs.py",
        "if len(matching) < limit:",
        "if len(matching) <= limit:",
        ("case:runs/with-prefix-erased@memory",),
    ),
)
