"""Bugs in what leaves through the command line; see `bugs` for what a bug is."""

from __future__ import annotations

from tests.planted.bug import Bug

TERMINAL_BUGS = (
    Bug(
        "a screen writes text as it is",
        "cli/terminal.py",
        "return Segment(visible(text, lines=True), style)",
        "return Segment(text, style)",
        ("test:tests/cli/test_escaping.py::test_a_screen_escapes_what_its_caller_forgot",),
    ),
    Bug(
        "a status is shown as it is stored",
        "cli/command.py",
        "text = fitted_text(out.file, visible(str(cell)))",
        "text = fitted_text(out.file, str(cell))",
        ("test:tests/cli/test_tables.py::test_a_cell_is_as_wide_as_its_escapes",),
    ),
    Bug(
        "warnings go past the guard",
        "cli/terminal.py",
        "sys.stdout, sys.stderr = Guard(sys.stdout), Guard(sys.stderr)",
        "sys.stdout = Guard(sys.stdout)",
        ("test:tests/cli/test_escaping.py::test_what_is_written_past_the_screen_is_escaped_too",),
    ),
    Bug(
        "a progress bar reads markup",
        "cli/terminal.py",
        "return TextColumn(template, markup=False)",
        "return TextColumn(template)",
        ("test:tests/cli/test_maintenance.py::test_a_scope_cannot_steer_the_progress_of_a_copy",),
    ),
    Bug(
        "a hint is not quoted",
        "cli/hints.py",
        'return shlex.join(["perdure", *command.split(), *ends_options, *arguments])',
        'return " ".join(["perdure", *command.split(), *ends_options, *arguments]) if shlex else ""',
        ("test:tests/cli/test_errors.py::test_hints_quote_what_a_shell_would_read",),
    ),
    Bug(
        "JSON has a pattern of its own",
        "model/visible_text.py",
        "return _ESCAPED.sub(lambda match: escaped_in_json(match.group()), text)",
        'return re.sub("[\x7f-\x9f\u202e]", lambda match: escaped_in_json(match.group()), text)',
        ("test:tests/cli/test_escaping.py::test_hidden_text_is_escaped_alike_for_people_and_in_json",),
    ),
    Bug(
        "an export replaces a FIFO",
        "cli/destination.py",
        "return not stat.S_ISREG(path.stat().st_mode) or _names_open_file(path)",
        "return path.exists() and _names_open_file(path)",
        ("test:tests/cli/test_destination.py::test_a_fifo_is_written_into",),
    ),
    Bug(
        "an export replaces a file that appeared meanwhile",
        "cli/destination.py",
        "    if not replace:\n        try:",
        "    if not path:\n        try:",
        ("test:tests/cli/test_destination.py::test_a_file_that_appeared_meanwhile_is_not_replaced",),
    ),
    Bug(
        "no answer means yes",
        "cli/confirmation.py",
        'not in ("y", "yes")',
        'not in ("y", "yes", "")',
        ("test:tests/cli/test_run.py::test_a_person_is_asked",),
    ),
    Bug(
        "a column without room is dropped",
        "cli/tables.py",
        "        below.append(least)\n",
        "",
        ("test:tests/cli/test_tables.py::test_nothing_but_long_text_is_shortened",),
    ),
)
