"""Ask pyright whether the public surface is fully typed, the way a user's own type checker will see it.

`--verifytypes` treats every module without an underscore as public. What a user or an engine author imports is a
smaller set, listed in `PUBLIC`; only findings there count. It finds the package through the `python` on the PATH, so
the environment's own is put first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "perdure"
PUBLIC = (
    "__init__.py",
    "clock.py",
    "errors.py",
    "kernel",
    "limits.py",
    "model",
    "opening.py",
    "otel.py",
    "sse.py",
    "stores",
    "sync",
    "workers",
)


def completeness() -> dict[str, Any]:
    tools = Path(sys.executable).parent
    answer = subprocess.run(
        [tools / "basedpyright", "--verifytypes", "perdure", "--ignoreexternal", "--outputjson"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    try:
        report: dict[str, Any] = json.loads(answer.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        sys.exit(f"pyright gave no report:\n{answer.stdout}{answer.stderr}")
    return report


def is_public(file: str) -> bool:
    path = Path(file)
    return path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).parts[0] in PUBLIC


def complaints(report: dict[str, Any]) -> list[str]:
    return sorted(
        f"{Path(found['file']).relative_to(ROOT)}:{found['range']['start']['line'] + 1}: {found['message']}"
        for symbol in report["symbols"]
        for found in symbol["diagnostics"]
        if found["severity"] == "error" and is_public(found["file"])
    )


def main() -> int:
    report = completeness()
    if "pyTypedPath" not in report or not report["symbols"]:
        sys.exit("pyright did not find the installed package; run make setup")
    found = complaints(report)
    print("\n".join([*found, f"{len(found)} public names without a certain type, of {len(report['symbols'])} seen"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
