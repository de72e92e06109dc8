"""The version has one place, the package's metadata, and whoever does not ask for it does not pay for the look."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import perdure

IMPORT = "import sys, perdure; print('importlib.metadata' in sys.modules, perdure.__version__)"


def test_the_version_is_looked_up_when_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", version("perdure")]


def test_other_names_are_refused_as_ever() -> None:
    with pytest.raises(AttributeError, match=r"module 'perdure' has no attribute 'nothing'"):
        _ = perdure.nothing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
