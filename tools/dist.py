"""Build the wheel and the sdist into dist/, and prove that each of them works where there is nothing else.

`make dist` runs this. The wheel is built from the sdist, and must have the same content as one built from the
repository. Then each of the two is installed into an empty environment, first alone, then with the extra `cli`, and
used from an empty folder. Each line of the output is one thing that was checked; the first that fails ends the program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SDIST_FILES = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
RELATIVE_LINK = re.compile(r"\]\((?!https?://)")
COMMIT = """
import perdure, perdure.sync
from perdure import Message
with perdure.sync.open("sqlite:///agents.db") as store:
    store.commit("trip", messages=[Message.user("Hello")])
    print(perdure.__version__, store.load("trip").version)
"""


class CheckFailed(Exception):
    """Something of what was built is wrong."""


def wheel_problems(wheel: Path) -> Iterator[str]:
    """What is wrong with the files or the metadata of a wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = _wheel_files(wheel)
    product = {f"perdure/{path.relative_to(ROOT / 'src/perdure').as_posix()}" for path in _product()}
    packed = {name for name in files if ".dist-info/" not in name}
    yield from (f"{name} is missing" for name in sorted(product - packed))
    yield from (f"{name} does not belong there" for name in sorted(packed - product))
    info = f"perdure-{project['version']}.dist-info"
    if "perdure/py.typed" not in files:
        yield "py.typed is missing, so type checkers ignore the types"
    if not any(name.startswith(f"{info}/licenses/") for name in files):
        yield "the license is missing"
    if b"perdure = perdure.cli:main" not in files.get(f"{info}/entry_points.txt", b""):
        yield "the command perdure is missing"
    yield from _metadata_problems(message_from_bytes(files[f"{info}/METADATA"]), project)


def _metadata_problems(metadata: Message, project: dict[str, object]) -> Iterator[str]:
    extras, declared = metadata.get_all("Provides-Extra") or [], project["optional-dependencies"]
    if not isinstance(declared, dict) or set(extras) != set(declared):
        yield f"the extras are {', '.join(sorted(extras))}"
    needed = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    if [re.split(r"[<>=~! ]", line)[0] for line in needed] != ["msgspec"]:
        yield f"it needs {', '.join(needed)}"
    text = str(metadata.get_payload())
    if "# Perdure" not in text or metadata["Description-Content-Type"] != "text/markdown":
        yield "the long description is not the README"
    if RELATIVE_LINK.search(text):
        yield "the long description has links into the repository"
    yield from (f"{name} is missing" for name in ("Summary", "Keywords", "Requires-Python") if not metadata[name])


def sdist_problems(sdist: Path) -> Iterator[str]:
    """What is wrong with the files of an sdist."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    expected = {path.relative_to(ROOT).as_posix() for path in _product()} | SDIST_FILES | {"tools/long_description.py"}
    yield from (f"{name} is missing" for name in sorted(expected - names))
    yield from (f"{name} does not belong there" for name in sorted(names - expected))


def differences(one: Path, other: Path) -> list[str]:
    """The files that two wheels do not share byte for byte."""
    left, right = _wheel_files(one), _wheel_files(other)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def _product() -> list[Path]:
    files = (path for path in (ROOT / "src/perdure").rglob("*") if path.is_file())
    return [path for path in files if "__pycache__" not in path.parts]


def _wheel_files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _run(*command: str | Path, folder: Path = ROOT, status: int = 0) -> str:
    """What a program prints; raises unless it ends as expected. Settings of Python do not leak into it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != status:
        command_line = " ".join(map(str, command))
        raise CheckFailed(f"{command_line} ended with {done.returncode}:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout.strip() or done.stderr.strip()


def _uv(*arguments: str | Path) -> str:
    return _run(ROOT / "tools/uv.sh", *arguments)


def _check(what: str, problems: list[str]) -> None:
    if problems:
        raise CheckFailed(f"{what}:\n  " + "\n  ".join(problems))
    print(f"ok  {what}", flush=True)


def _try_out(artifact: Path, folder: Path) -> None:
    """Install into an empty environment and use it from an empty folder."""
    environment, version = folder / "environment", artifact.name.split("-")[1].removesuffix(".tar.gz")
    python, command = environment / "bin/python", environment / "bin/perdure"
    _uv("venv", "--quiet", "--python", sys.executable, environment)
    _uv("pip", "install", "--quiet", "--python", python, artifact)
    installed = _uv("pip", "list", "--format", "freeze", "--python", python).split()
    names = sorted(line.partition("==")[0] for line in installed)
    _check(f"{artifact.name} alone installs {', '.join(installed)}", [] if names == ["msgspec", "perdure"] else names)
    output = _run(python, "-c", COMMIT, folder=folder)
    _check(f"{artifact.name} alone commits to SQLite: {output}", [] if output == f"{version} 1" else [output])
    output = _run(command, "--version", folder=folder, status=2)
    _check(f"{artifact.name} alone, the command says: {output}", [] if "pip install typer rich" in output else [output])

    _uv("pip", "install", "--quiet", "--python", python, f"{artifact}[cli]")
    output = _run(command, "--version", folder=folder)
    _check(f"{artifact.name}[cli] runs perdure --version: {output}", [] if version in output else [output])
    output = _run(command, "threads", "--store", "sqlite:///agents.db", "--json", folder=folder)
    _check(f"{artifact.name}[cli] runs perdure threads", [] if '"trip"' in output else [output])
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    everything = f"{artifact}[{','.join(extras)}]"
    _uv("pip", "install", "--quiet", "--dry-run", "--python", python, everything)
    _check(f"{artifact.name}: all extras can be installed: {', '.join(extras)}", [])


def main() -> int:
    """Build and prove."""
    shutil.rmtree(DIST, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(prefix="perdure-dist-") as name:
            scratch = Path(name)
            _uv("build", "--quiet", "--out-dir", DIST)
            (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
            _check(f"{sdist.name} has the sources and nothing else", list(sdist_problems(sdist)))
            _check(f"{wheel.name} has the package, its types and its metadata", list(wheel_problems(wheel)))
            _uv("build", "--quiet", "--wheel", "--out-dir", scratch / "direct")
            direct = scratch / "direct" / wheel.name
            _check("the wheels from the sdist and from the repository are the same", differences(wheel, direct))
            for artifact in (wheel, sdist):
                folder = scratch / artifact.name
                folder.mkdir()
                _try_out(artifact, folder)
    except CheckFailed as failed:
        print(f"FAILED {failed}", file=sys.stderr)
        return 1
    print(f"\nboth are in {DIST.relative_to(ROOT)}/: {wheel.name}, {sdist.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
