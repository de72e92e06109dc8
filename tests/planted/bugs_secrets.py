"""Bugs in what may be shown of a URL; see `bugs` for what a bug is."""

from __future__ import annotations

from tests.planted.bug import Bug

SECRET_BUGS = (
    Bug(
        "every option of a URL is shown",
        "kernel/redaction.py",
        "return value if name in HARMLESS and",
        "return value if",
        ("test:tests/unit/test_redaction.py",),
    ),
    Bug(
        "a URL that does not parse is shown",
        "kernel/redaction.py",
        'return f"{scheme}://{STARS}" if rest else text',
        "return text",
        ("test:tests/unit/test_redaction.py",),
    ),
    Bug(
        "a parsed URL prints its password",
        "engines/mysql/target.py",
        "def __repr__(self)",
        "def written(self)",
        ("test:tests/unit/test_redaction.py",),
    ),
)
