"""Run `make check` and `make urls` on every CPython from 3.11 on that this machine has, and close with a table.

Interpreters are looked for on the PATH, among pyenv's versions and where systems put them. Each gets an environment of
its own below `.venvs/`, so `.venv` stays as it is. The exit status is 0 only if all were green. Versions that the
project names in `pyproject.toml` and that are not on this machine are listed, and are no failure.

    tools/pythons.py [--ends]     --ends: only the oldest and the newest
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)
TARGETS = ("check", "urls")
SYSTEM_FOLDERS = ("/usr/bin", "/usr/local/bin")
PROGRAM = re.compile(r"python3(\.\d+)?")
FACTS = """
import json, os, platform, sys
print(json.dumps({
    "maker": platform.python_implementation(),
    "version": platform.python_version(),
    "number": list(sys.version_info[:3]),
    "program": os.path.realpath(sys.executable),
    "virtual": sys.prefix != sys.base_prefix,
}))
"""


@dataclass(frozen=True, order=True)
class Python:
    """An interpreter; the oldest comes first."""

    number: tuple[int, ...]
    version: str
    program: str

    @property
    def environment(self) -> str:
        # Two interpreters may have one version; a short name keeps the first line of scripts short.
        return f".venvs/{self.version}-{zlib.crc32(self.program.encode()):08x}"


@dataclass(frozen=True)
class Outcome:
    python: Python
    seconds: dict[str, float]
    failed: tuple[str, ...]

    def line(self) -> str:
        verdict = "FAIL" if self.failed else "ok  "
        stages = "  ".join(
            f"{name} {seconds:5.1f} s{' FAILED' if name in self.failed else ''}"
            for name, seconds in self.seconds.items()
        )
        return f"  {verdict} {self.python.version:<10} {stages}  {self.python.program}"


def folders() -> Iterator[Path]:
    """Where interpreters may be."""
    yield from (Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob("versions/*/bin"))
    yield from map(Path, SYSTEM_FOLDERS)
    yield Path(sys.base_prefix) / "bin"


def find(places: Iterable[Path]) -> list[Python]:
    """Every CPython in these folders that is new enough, once each; environments do not count."""
    found: dict[str, Python] = {}
    for folder in places:
        programs = sorted(folder.iterdir()) if os.access(folder, os.R_OK | os.X_OK) and folder.is_dir() else []
        for program in programs:
            python = ask(program) if PROGRAM.fullmatch(program.name) else None
            if python is not None and python.number >= OLDEST:
                found.setdefault(python.program, python)
    return sorted(found.values())


def ask(program: Path) -> Python | None:
    """What the interpreter says of itself; None if it is none that we want, such as a shim without a version."""
    try:
        done = subprocess.run(
            [program, "-I", "-c", FACTS], check=True, capture_output=True, encoding="utf-8", timeout=60
        )
        facts = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if facts["maker"] != "CPython" or facts["virtual"]:
        return None
    return Python(tuple(facts["number"]), facts["version"], facts["program"])


def missing(pythons: Iterable[Python]) -> list[str]:
    """The minor versions that the project names and that were not found."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.\d+$", text)]
    return [version for version in named if tuple(map(int, version.split("."))) not in {p.number[:2] for p in pythons}]


def run(python: Python) -> Outcome:
    seconds: dict[str, float] = {}
    failed: list[str] = []
    environment = {**os.environ, "UV_PYTHON": python.program}
    for target in TARGETS:
        print(f"\n==== Python {python.version}: make {target} ({python.program})", flush=True)
        started = time.monotonic()
        command = ["make", "--no-print-directory", target, f"VENV={python.environment}"]
        if subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode != 0:
            failed.append(target)
        seconds[target] = time.monotonic() - started
    return Outcome(python, seconds, tuple(failed))


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--ends"]):
        print(__doc__, file=sys.stderr)
        return 2
    pythons = find(folders())
    chosen = [pythons[0], *pythons[1:][-1:]] if arguments and pythons else pythons
    print("\n".join(f"{python.version:<10} {python.program}" for python in pythons), flush=True)
    outcomes = [run(python) for python in chosen]
    print("\n==== pythons")
    for outcome in outcomes:
        print(outcome.line())
    print("".join(f"  left out  {python.version}\n" for python in pythons if python not in chosen), end="")
    print(f"  not found on this machine: {', '.join(missing(pythons)) or 'none'}")
    failed = [outcome.python.version for outcome in outcomes if outcome.failed]
    print(f"\nFAILED: {', '.join(failed)}" if failed else f"\nall green on {len(outcomes)}")
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
