"""Bugs in what SQLite files are trusted with, in who may read them, and in stopping reads. See `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

SQLITE_BUGS = (
    Bug(
        "sqlite: a trigger in the file is not noticed",
        "engines/sqlite/schema.py",
        "if expected is None and not is_harmless(item):",
        'if expected is None and item.kind != "trigger" and not is_harmless(item):',
        ("test:tests/engines/test_sqlite_prepared.py::test_an_older_file_is_compared_with_its_own_declaration",),
    ),
    Bug(
        "sqlite: only the names of tables are compared",
        "engines/sqlite/schema.py",
        "    return _parts(item.sql) == _parts(expected.sql)\n",
        "    return _parts(item.sql)[0] == _parts(expected.sql)[0]\n",
        ("test:tests/engines/test_sqlite_prepared.py::test_a_prepared_file_is_refused_by_name_and_left_as_it_is",),
    ),
    Bug(
        "sqlite: everybody may read a new file",
        "engines/sqlite/connections/forks.py",
        "os.fchmod(descriptor, 0o600)",
        "os.fchmod(descriptor, 0o644)",
        ("test:tests/engines/test_sqlite_modes.py::test_a_new_file_and_its_log_belong_to_their_owner_alone",),
    ),
    Bug(
        "sqlite: a cancelled read goes on",
        "engines/sqlite/read.py",
        "            stop.request()\n            raise\n",
        "            raise\n",
        ("test:tests/engines/test_sqlite_cancel.py::test_cancelled_reads_stop_and_do_not_hold_up_the_close[tasks]",),
        hangs=True,
    ),
    Bug(
        "sqlite: a stop reaches whoever has the connection now",
        "engines/sqlite/connections/interrupts.py",
        '        """The connection is about to serve another question."""\n        with self._lock:\n',
        '        """The connection is about to serve another question."""\n        if self._connection is None:\n',
        ("test:tests/engines/test_sqlite_cancel.py::test_a_request_reaches_only_the_question_it_was_made_for",),
    ),
    Bug(
        "sqlite: a stop between two statements is lost",
        "engines/sqlite/connections/interrupts.py",
        "verdict = int(self.stop is not None and self.stop.requested)",
        "verdict = 0",
        ("test:tests/engines/test_sqlite_cancel.py::test_a_request_between_two_statements_stops_the_next",),
    ),
)
