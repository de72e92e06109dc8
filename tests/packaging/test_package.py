"""What users install: files and metadata of the wheel and the sdist. `make dist` also installs and uses them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools.dist import ROOT, differences, sdist_problems, wheel_problems
from tools.long_description import long_description


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert list(wheel_problems(wheel)) == []
    names = zipfile.ZipFile(wheel).namelist()
    assert "perdure/py.typed" in names
    assert "perdure/testkit/fixtures.py" in names
    assert not [name for name in names if "tests/" in name or "support" in name]


def test_the_sdist_has_the_sources_and_nothing_else(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    assert list(sdist_problems(sdist)) == []


def test_the_checks_bite(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    spoiled = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(spoiled, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("METADATA"):
                content = content.replace(b"Provides-Extra: otel\n", b"") + b"\n[a link](docs/api.md)\n"
                content = content.replace(b"Requires-Dist: msgspec", b"Requires-Dist: requests\nRequires-Dist: msgspec")
            if name.endswith("py.typed"):
                name = "tests/support/servers.py"
            target.writestr(name, content)
    problems = list(wheel_problems(spoiled))
    assert "perdure/py.typed is missing" in problems
    assert "tests/support/servers.py does not belong there" in problems
    assert "the long description has links into the repository" in problems
    assert any(problem.startswith("the extras are ") for problem in problems)
    assert any(problem.startswith("it needs requests, msgspec") for problem in problems)
    assert {name.rpartition("/")[2] for name in differences(wheel, spoiled)} == {"METADATA", "py.typed", "servers.py"}


def test_links_into_the_repository_become_words() -> None:
    text = "![A tree](docs/tree.svg)\n\nSee [`x` here](docs/x.md#y), [them](https://example.org).\n```\na[0](b)\n```\n"
    assert long_description(text) == "See `x` here, [them](https://example.org).\n```\na[0](b)\n```\n"
