"""Bugs of import and export that the suite must find; what a bug is, and what `watch` names, is told in `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

IMPORT_BUGS = (
    Bug(
        "an import writes whatever the second reading finds",
        "stores/transfer/importing.py",
        "if noted is None or noted[1] != item.digest:",
        "if noted is None:",
        ("case:lifecycle/import-refuses@memory", "test:tests/imports/test_changing.py"),
    ),
    Bug(
        "an import finds out about a run of another thread while it writes",
        "stores/transfer/checks.py",
        'if name == "runs" and not self._file.scratch.add_run(str(line.key[0])):',
        'if name == "run" and not self._file.scratch.add_run(str(line.key[0])):',
        ("case:lifecycle/import-refuses@memory",),
    ),
    Bug(
        "an import takes a hierarchy of any depth",
        "stores/transfer/survey.py",
        "if depth > limits.ANCESTORS:",
        "if depth < 0:",
        ("test:tests/imports/test_hostile.py::test_files_that_are_wrong_only_as_a_whole",),
    ),
    Bug(
        "an import believes any time",
        "rules/columns.py",
        "if (values.get(name) or 0) > latest:",
        "if (values.get(name) or 0) < 0:",
        ("case:lifecycle/import-refuses@memory",),
    ),
    Bug(
        "an import unfolds a body before it looks at its size",
        "stores/transfer/lines.py",
        "if size > most + most // 4 + 4_096:",
        "if size < 0:",
        ("test:tests/imports/test_memory.py::test_a_line_of_brackets_is_refused_before_it_is_unfolded",),
    ),
    Bug(
        "an export mixes the pages of two moments",
        "stores/transfer/rows.py",
        "if _revs(hot, cold, queue) != self._revs:",
        "if not self._revs:",
        ("test:tests/imports/test_exporting.py::test_pages_of_two_moments_are_never_mixed",),
    ),
)
