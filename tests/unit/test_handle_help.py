"""`help` of a handle describes the options themselves, and not where to look for them."""

from __future__ import annotations

import inspect

import pytest

import perdure
import perdure.sync

METHODS = sorted(name for name in vars(perdure.ThreadHandle) if not name.startswith("_"))


@pytest.mark.parametrize("handle", [perdure.ThreadHandle, perdure.sync.ThreadHandle])
@pytest.mark.parametrize("name", METHODS)
def test_help_points_nowhere_else(handle: type, name: str) -> None:
    text = inspect.getdoc(getattr(handle, name)) or ""
    assert text
    assert "The options are those of `store." not in text
    assert "- `thread_id`:" not in text, "the handle fills it in"


@pytest.mark.parametrize("name", ["page", "rerun", "variants", "follow", "fork", "history"])
def test_help_describes_each_option(name: str) -> None:
    method = getattr(perdure.ThreadHandle, name)
    text = inspect.getdoc(method) or ""
    options = [each for each in inspect.signature(method).parameters if each not in ("self", "options")]
    assert [option for option in options if f"`{option}`" not in text] == []
    assert inspect.getdoc(getattr(perdure.sync.ThreadHandle, name)) == text
