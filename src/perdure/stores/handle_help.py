"""What `help` shows of a handle: the methods of a `ThreadHandle` with the options that the stores describe.

The source of a handle names the method that describes them; here that text takes the place of the name, without what
the handle fills in itself. So the options are described once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping

_POINTER = re.compile(r"The options are those of `(?:store\.)?(\w+)\.(\w+)`\.")
_FILLED_IN = re.compile(r"^- `(thread_id|resource_id)`:.*\n?(?: +\S.*\n?)*", re.MULTILINE)


def fill_help(handle: type, stores: Mapping[str, type]) -> None:
    """Complete the docstrings of a handle class. `stores`: the classes by the names that its docstrings use."""
    for method in vars(handle).values():
        written: object = getattr(method, "__doc__", None)
        # As Python 3.13 and later keep it: without the indentation of the source.
        text = inspect.cleandoc(written) if isinstance(written, str) else ""
        pointer = _POINTER.search(text)
        if pointer is None:
            continue
        original: str = getattr(stores[pointer[1]], pointer[2]).__doc__ or ""
        rest = inspect.cleandoc(original).partition("\n")[2].strip()
        options = _without_filled_in(rest, inspect.signature(method).parameters)
        method.__doc__ = text[: pointer.start()] + options + text[pointer.end() :]


def _without_filled_in(text: str, parameters: Collection[str]) -> str:
    """The text without what it says of an id that the handle's method does not take."""
    return _FILLED_IN.sub(lambda item: item[0] if item[1] in parameters else "", text).strip()
