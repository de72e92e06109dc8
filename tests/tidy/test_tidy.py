"""The house rules, held against every file of the repository, and the lock file against the project file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest
from tests.tidy.rules import RULES, File, Finding

ROOT = Path(__file__).resolve().parents[2]
TEXT_SUFFIXES = {"", ".cfg", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
# Written by a tool, or by somebody else; in a worktree .git is a file.
FOREIGN = {PurePosixPath("uv.lock"), PurePosixPath("LICENSE"), PurePosixPath(".git")}
BUILT = {"__pycache__", "build", "dist"}


def repository_files() -> Iterator[File]:
    """Every text file but hidden folders and build products, in a stable order."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name == ".ci" or not (name.startswith(".") or name in BUILT))
        for name in sorted(names):
            path = PurePosixPath(Path(folder, name).relative_to(ROOT))
            if path.suffix in TEXT_SUFFIXES and path not in FOREIGN:
                yield File(path, Path(folder, name).read_text(encoding="utf-8"))


FILES = list(repository_files())


def test_the_walk_sees_the_product() -> None:
    seen = {str(file.path) for file in FILES}
    assert {"Makefile", "pyproject.toml", "src/perdure/__init__.py", "src/perdure/kernel/ops.py"} <= seen


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds_everywhere(rule: Callable[[File], Iterator[Finding]]) -> None:
    findings = [f"{file.path}:{line}: {reason}" for file in FILES for line, reason in rule(file)]
    assert not findings, "\n" + "\n".join(findings)


def test_the_lock_follows_the_project_file() -> None:
    """`make setup` installs what the lock says without asking, so a stale lock must not go unnoticed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    (locked,) = (package for package in lock["package"] if package["name"] == project["project"]["name"])
    assert locked["version"] == project["project"]["version"]
    assert lock["requires-python"] == project["project"]["requires-python"]

    extras = project["project"]["optional-dependencies"]
    declared = set(project["project"]["dependencies"]).union(*extras.values())
    assert {_written(item) for item in locked["metadata"]["requires-dist"]} == declared
    groups = locked["metadata"]["requires-dev"]
    assert {name: {_written(item) for item in items} for name, items in groups.items()} == {
        name: set(items) for name, items in project["dependency-groups"].items()
    }


def _written(item: dict[str, object]) -> str:
    """A requirement of the lock in the words of the project file."""
    extras = item.get("extras")
    listed = f"[{','.join(map(str, extras))}]" if isinstance(extras, list) else ""
    return f"{item['name']}{listed}{item.get('specifier', '')}"
