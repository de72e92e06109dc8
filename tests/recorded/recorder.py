"""The recorder: makes one call after another, and writes down what became of each.

A step names a call of the store as a path (`threads.create`, `commit`), or brings a function of its own. The clock
moves by a second before each. What a call returns is handed to the workload, so that later steps build on it; an error
is written down and handed over as well, for a refusal is an outcome like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from tests.recorded.plain import START, Normaliser, plain, plain_error
from tests.recorded.support import Clock

import perdure

Line = dict[str, Any]


class Recorder:
    """What a workload holds in its hands: a store, a clock, a folder, and the outcomes so far."""

    def __init__(self, store: perdure.Store, clock: Clock, folder: Path) -> None:
        self.store = store
        self.clock = clock
        self.folder = folder
        self.lines: list[Line] = []
        self.chapter = ""
        self._normalise = Normaliser({str(folder): "<folder>"})

    async def do(
        self, call: str | Callable[..., Any], *args: Any, on: Any = None, label: str = "", **options: Any
    ) -> Any:
        """Make a call; returns its result, or the error it raised."""
        self.clock.now += 1_000
        name = call if isinstance(call, str) else label
        subject = next((" " + self._named(arg) for arg in args[:1] if isinstance(arg, str)), "")
        try:
            result = await _settled(_method(on or self.store, call), args, options)
        except (perdure.PerdureError, TypeError) as error:
            self._write(name + subject, {"error": plain_error(error)})
            return error
        self._write(name + subject, {"returns": plain(result)})
        return result

    def _named(self, text: str) -> str:
        return text.replace(str(self.folder), "<folder>")[:60]

    def note(self, name: str, value: Any) -> None:
        """Write down a value that is no call's result."""
        self._write(name, {"returns": plain(value)})

    def _write(self, step: str, outcome: Line) -> None:
        line = {"n": len(self.lines) + 1, "chapter": self.chapter, "step": step, **outcome}
        self.lines.append(self._normalise(line))


def _method(subject: Any, call: str | Callable[..., Any]) -> Callable[..., Any]:
    return reduce(getattr, call.split("."), subject) if isinstance(call, str) else call


async def _settled(method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    result = method(*args, **options)
    if inspect.isasyncgen(result):
        return [item async for item in result]
    return await result if inspect.isawaitable(result) else result


def start_clock() -> Clock:
    """A clock at the workload's first moment."""
    return Clock(START)
