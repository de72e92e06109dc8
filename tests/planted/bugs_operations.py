"""Bugs in what operators see: logs and spans; see `bugs` for what a bug is."""

from __future__ import annotations

from tests.planted.bug import Bug

OPERATION_BUGS = (
    Bug(
        "warnings are printed by default",
        "__init__.py",
        'logging.getLogger("perdure").addHandler(logging.NullHandler())',
        'logging.getLogger("perdure")',
        ("test:tests/unit/test_logging.py::test_nothing_is_printed_by_default_and_everything_on_request",),
    ),
    Bug(
        "the text of a driver's error is logged",
        "engines/shared/events.py",
        "return type(error).__name__ if number is None else",
        "return repr(error) if number is None else",
        ("test:tests/unit/test_logging.py::test_what_lasts_is_logged_when_it_begins_and_when_it_ends",),
    ),
    Bug(
        "stores of other scopes have no spans",
        "otel.py",
        "        _wrap(other, tracer)\n",
        "",
        ("test:tests/unit/test_otel.py::test_scoped_stores_are_instrumented_and_others_are_not",),
    ),
    Bug(
        "tests leave their data on a shared store",
        "testkit/fixtures.py",
        "if scope.startswith(prefix):",
        "if scope == prefix:",
        ("test:tests/unit/test_user_fixtures.py::test_a_shared_store_is_clean_before_and_after",),
    ),
)
