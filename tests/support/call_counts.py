"""Counting the Python function calls of a piece of work, in every thread: a measure of cost that no noise changes.

A *call* is the start of a function or coroutine. Resuming a coroutine or a generator is none, and the hidden functions
of comprehensions and generator expressions are none either: from Python 3.12 on, most of them no longer exist. *Ours*
are functions defined in the package `perdure`; methods that a library generates (of a dataclass, for instance) are not.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import perdure

_OURS = str(Path(perdure.__file__).parent)
_HIDDEN = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_RESUMED = 3
"""The bits of a RESUME instruction's argument that say why it runs: all zero at the start of a function."""


class CallCounter:
    """Calls by function (its code object), counted while `active`."""

    def __init__(self) -> None:
        self.active = False
        self.calls: Counter[CodeType] = Counter()
        self.builtins = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Take one event of the profiler."""
        if not self.active:
            return
        if event == "c_call":
            self.builtins += 1
        elif event == "call":
            code = frame.f_code
            if code.co_name not in _HIDDEN and not code.co_code[frame.f_lasti + 1] & _RESUMED:
                self.calls[code] += 1

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside the block, from zero."""
        self.calls.clear()
        self.builtins = 0
        self.active = True
        try:
            yield
        finally:
            self.active = False

    @property
    def ours(self) -> dict[str, int]:
        """Calls of each function of ours, by `module.py:qualified name`."""
        return {
            f"{code.co_filename[len(_OURS) + 1 :]}:{code.co_qualname}": calls
            for code, calls in self.calls.items()
            if code.co_filename.startswith(_OURS)
        }


@contextlib.contextmanager
def call_counter() -> Iterator[CallCounter]:
    """A counter of this thread and of all threads that start inside the block.

    So open the store inside the block: its writer thread starts then.
    """
    counter, before = CallCounter(), sys.getprofile()
    install: Callable[[Any], None]
    for install in (threading.setprofile, sys.setprofile):
        install(counter)
    try:
        yield counter
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
