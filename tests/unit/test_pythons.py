"""`make pythons` finds each interpreter once, and nothing that only looks like one."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest
from tools import pythons
from tools.pythons import Python, find, missing

REAL = Path(os.path.realpath(sys.executable))


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def said(maker: str, *number: int) -> str:
    version = ".".join(map(str, number))
    facts = f'"maker": "{maker}", "version": "{version}", "number": {list(number)}, "virtual": false'
    return f'echo \'{{{facts}, "program": "/{maker}/{version}"}}\''


def test_each_interpreter_is_found_once(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(REAL)
    (tmp_path / "python3.11").symlink_to(REAL)
    script(tmp_path / "python3.10", said("CPython", 3, 10, 9))
    script(tmp_path / "python3.12", said("PyPy", 3, 12, 1))
    script(tmp_path / "python3.13", "echo 'pyenv: version not installed' >&2; exit 127")
    script(tmp_path / "python3.14", "echo nonsense")
    script(tmp_path / "python3.99", said("CPython", 3, 99, 0))
    script(tmp_path / "python3-config", said("CPython", 3, 98, 0))
    (tmp_path / "python3.15").mkdir()
    found = find([tmp_path, tmp_path / "nowhere", tmp_path])
    assert [python.program for python in found] == [str(REAL), "/CPython/3.99.0"]
    assert found[0].number == sys.version_info[:3]


def test_an_environment_is_no_interpreter_of_its_own(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    assert find([tmp_path / "env/bin"]) == []


def test_what_the_project_names_and_is_not_here_is_told() -> None:
    here = Python((3, 12, 1), "3.12.1", "/x")
    named = missing([])
    assert named[0] == f"{pythons.OLDEST[0]}.{pythons.OLDEST[1]}"
    assert missing([here]) == [version for version in named if version != "3.12"]


@pytest.mark.parametrize(("count", "chosen"), [(1, ["3.11.0"]), (2, ["3.11.0", "3.12.0"]), (4, ["3.11.0", "3.14.0"])])
def test_the_ends_are_the_oldest_and_the_newest(
    count: int, chosen: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    present = [Python((3, minor, 0), f"3.{minor}.0", f"/{minor}") for minor in range(11, 11 + count)]
    ran: list[str] = []

    def run(python: Python) -> pythons.Outcome:
        ran.append(python.version)
        return pythons.Outcome(python, {"check": 1.0}, ("check",) if python is present[-1] else ())

    monkeypatch.setattr(pythons, "find", lambda _: present)
    monkeypatch.setattr(pythons, "run", run)
    assert pythons.main(["--ends"]) == 1
    assert ran == chosen
    assert f"FAILED: {chosen[-1]}" in capsys.readouterr().out
