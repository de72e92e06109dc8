"""The command line: look at a store, its threads and their trees, move them, audit them.

Needs the extra `cli` (typer and rich). Without it, `perdure` says so instead of failing with a traceback.
"""

from __future__ import annotations

import sys

_EXTRA = frozenset({"typer", "click", "rich", "shellingham"})


def main() -> None:
    """The entry point `perdure`."""
    try:
        _run()
    except KeyboardInterrupt:
        # Whoever interrupts a program that is still starting wants silence, not a traceback.
        raise SystemExit(130) from None


def _run() -> None:
    try:
        from perdure.cli import application
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in _EXTRA:
            raise
        sys.stderr.write("error: the command line needs typer and rich (pip install typer rich)\n")
        raise SystemExit(2) from None
    application.main()
