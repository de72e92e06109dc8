"""`messages.follow` and `runs.follow` for blocking callers: an iterator that another thread can close."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, TypeVar

from perdure.errors import PerdureError
from perdure.stores import follower
from perdure.sync.driver import Driver

T = TypeVar("T")
_END: Any = object()


class Follower(Generic[T]):
    """An iterator over records as they come, from `messages.follow`, `runs.follow` or `profiles.follow`.

    `close()`, from any thread, ends the loop that reads it, even while it waits; so does leaving a `with` block. A
    follower that is dropped closes itself. One thread at a time may read it.
    """

    def __init__(self, inner: follower.Follower[T], driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    @property
    def closed(self) -> bool:
        """Whether it has ended: at the end of what it follows, closed, timed out, or failed."""
        return self._inner.closed

    def close(self) -> None:
        """End the iteration and the subscription, from any thread; may be called twice."""
        self._inner.close()

    def __iter__(self) -> Follower[T]:
        return self

    def __next__(self) -> T:
        """The next record, as soon as there is one; raises `StopIteration` at the end."""
        if self.closed:
            raise StopIteration
        try:
            record = self._driver.read(_next(self._inner))
        except PerdureError:
            raise
        except BaseException:  # Ctrl-C: a loop that was left is not entered again
            self.close()
            raise
        if record is _END:
            raise StopIteration
        return record

    def __enter__(self) -> Follower[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _next(records: follower.Follower[T]) -> T:
    """The next record, or `_END`: a coroutine may not raise `StopIteration`."""
    record: T = await anext(records, _END)
    return record
