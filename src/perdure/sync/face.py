"""What all blocking classes are: a face of an async object, which it holds together with the driver that runs it.

Each method of a face drives the async method of the same name, and has its docstring. The source of a face repeats
only the first line, for editors; the rest is filled in here, so that `help` shows all of it.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from perdure.sync.driver import Driver

AsyncT = TypeVar("AsyncT")


class Face(Generic[AsyncT]):
    """The base of the blocking classes. `of` names the async class that a subclass is the face of."""

    def __init__(self, inner: AsyncT, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def __init_subclass__(cls, *, of: type, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in vars(cls).keys() & vars(of).keys():
            if not name.startswith("_"):
                vars(cls)[name].__doc__ = vars(of)[name].__doc__


def async_twin(face: Face[AsyncT]) -> AsyncT:
    """The async object behind a face, for other modules of this package."""
    return face._inner  # noqa: SLF001 - a face hides it from users only


def driver_of(face: Face[Any]) -> Driver:
    """What runs the calls of a face, for other modules of this package."""
    return face._driver  # noqa: SLF001 - a face hides it from users only
