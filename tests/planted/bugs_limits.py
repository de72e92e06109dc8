"""Bugs in what bounds a prepared file or a long body, in reading streams, and in the writer's lock. See `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

_CANCEL = "tests/engines/test_sqlite_cancel.py"

LIMIT_BUGS = (
    Bug(
        "sqlite: a schema may take any number of steps",
        "engines/sqlite/connections/connect.py",
        "        _bound_steps(connection)\n        for setting",
        "        for setting",
        ("test:tests/engines/test_sqlite_bombs.py::test_a_schema_without_end_is_refused[to write]",),
        hangs=True,
    ),
    Bug(
        "stored JSON may have any length",
        "kernel/codec.py",
        "if len(data) > limits.COMMIT_BYTES:",
        "if len(data) < 0:",
        ("test:tests/unit/test_stored_size.py::test_every_read_refuses_a_body_beyond_it",),
    ),
    Bug(
        "an import takes messages of any number of blocks",
        "stores/soundness.py",
        "        if is_new:\n",
        "        if is_new and not thread:\n",
        ("test:tests/imports/test_blocks.py::test_too_many_blocks_are_refused[messages]",),
    ),
    Bug(
        "an import takes pending messages of any number of blocks",
        "stores/transfer/checks.py",
        'if name == "pending":',
        'if name == "messages":',
        ("test:tests/imports/test_blocks.py::test_too_many_blocks_are_refused[pending]",),
    ),
    Bug(
        "an import takes a FIFO for a missing file",
        "cli/commands/import_threads.py",
        "if file != STANDARD and not path.exists():",
        "if file != STANDARD and not path.is_file():",
        ("test:tests/cli/test_streams.py::test_an_import_from_a_fifo",),
    ),
    Bug(
        "sqlite: an interrupted commit keeps the writer's lock",
        "engines/sqlite/write/writer.py",
        "        finally:\n            # Nothing may come before this",
        "        except UnavailableError:\n            raise\n"
        "        else:\n            # Nothing may come before this",
        (f"test:{_CANCEL}::test_a_commit_may_be_interrupted_anywhere_and_the_next_goes_through[1]",),
        hangs=True,
    ),
    Bug(
        "a run at its size limit cannot be ended",
        "stores/commit/resumption.py",
        "return limits.RUN_BYTES if body.outcome is None else",
        "return limits.RUN_BYTES if body else",
        ("case:runs/end-at-limit@memory", "case:runs/end-at-limit@sqlite"),
    ),
    Bug(
        "an open run may use the reserve for its end",
        "stores/commit/resumption.py",
        "return limits.RUN_BYTES if body.outcome is None else",
        "return limits.RUN_BYTES if body is None else",
        ("case:runs/end-at-limit@memory",),
    ),
    Bug(
        "an import takes an open run that cannot be ended",
        "stores/soundness.py",
        "if run.outcome is None and size > limits.RUN_BYTES:",
        "if run.outcome is None and size < 0:",
        ("test:tests/imports/test_full_runs.py",),
    ),
)
