"""`help` of a handle describes the options themselves, and not where to look for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import perdure
import perdure.sync
from perdure.stores.handle_help import fill_help

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


@pytest.mark.parametrize("dedent", [str, inspect.cleandoc])
def test_help_is_the_same_however_python_keeps_a_docstring(dedent: Callable[[str], str]) -> None:
    """From Python 3.13 on, the compiler takes the indentation away."""

    def find(self: Any, thread_id: str, name: str) -> None: ...

    def find_here(self: Any, name: str) -> None: ...

    find.__doc__ = dedent(
        """Find it.

        It is there.

        - `thread_id`: where it must be; otherwise
          `NotFoundError`.
        - `name`: what it is called,
          and how.
        """
    )
    find_here.__doc__ = dedent(
        """Find it here.

        The options are those of `store.things.find`.
        """
    )
    handle, things = type("Handle", (), {"find": find_here}), type("Things", (), {"find": find})
    fill_help(handle, {"things": things})
    text = "Find it here.\n\nIt is there.\n\n- `name`: what it is called,\n  and how."
    assert inspect.getdoc(handle.find) == text
