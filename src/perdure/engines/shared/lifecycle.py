"""The life of an open engine: who may call it, and when it may be closed.

    open ──close()──▶ closing ──drained──▶ closed
      └──fork()──▶ inherited (in the child only)

`closing` refuses new calls while calls in flight finish on the connections they hold. A forked child inherits sockets
and locks that belong to its parent, so there every call is refused and closing does nothing at all.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from enum import Enum

from perdure.errors import PerdureError
from perdure.kernel.lifecycle import closed, forked, opened_read_only, other_loop


class State(Enum):
    """Where an engine is in its life."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"
    INHERITED = "inherited"


# Python 3.11 takes 100 ns to look up a member of an enum, and every call is checked.
_OPEN, _CLOSING = State.OPEN, State.CLOSING


class Lifecycle:
    """The state of one engine, the calls in flight, and the refusals that follow from them.

    `owner` is the engine or pool that holds the connections: in a forked child it is never collected, because closing
    an inherited connection would speak on a socket of the parent. `where` names the store in refusals. With
    `one_loop` the engine belongs to the event loop that is running now. `in_child` makes the error for calls in a
    forked child, and `reset_in_child` repairs what a fork may leave locked.
    """

    def __init__(
        self,
        owner: object,
        where: str = "",
        *,
        read_only: bool = False,
        one_loop: bool = False,
        in_child: Callable[[], PerdureError] = forked,
        reset_in_child: Callable[[], None] | None = None,
    ) -> None:
        self.state = State.OPEN
        self.in_flight = 0
        self.read_only = read_only
        self._where = where
        self._loop = asyncio.get_running_loop() if one_loop else None
        self._idle = asyncio.Event()
        self._in_child = in_child
        self._reset_in_child = reset_in_child
        self._owner = weakref.ref(owner)
        _live.add(self)

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened the engine."""
        return self.state is State.INHERITED

    @property
    def is_closed(self) -> bool:
        """Whether everything was released."""
        return self.state is State.CLOSED

    def check_usable(self) -> None:
        """Raise if connections may not be used: closed, inherited, or from another event loop.

        While the engine is closing this passes: calls in flight still need their connections.
        """
        if self.state is _OPEN and self._loop is None:
            return
        if self.state is State.CLOSED:
            raise closed()
        if self.state is State.INHERITED:
            raise self._in_child()
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise other_loop()

    def check_call(self) -> None:
        """Raise if a new call may not begin."""
        if self.state is _OPEN and self._loop is None:
            return
        self.check_usable()
        if self.state is _CLOSING:
            raise closed()

    def check_write(self) -> None:
        """Raise if a new write may not begin."""
        if self.state is _OPEN and not self.read_only and self._loop is asyncio.get_running_loop():
            return  # every commit to a server comes through here
        self.check_call()
        if self.read_only:
            raise opened_read_only(self._where)

    def call(self, *, write: bool = False) -> Lifecycle:
        """Begin a call that `drain` waits for; use it with `with`, which ends it."""
        if write:
            self.check_write()
        else:
            self.check_call()
        self.in_flight += 1
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self._idle.set()

    async def drain(self) -> None:
        """Wait until no call is in flight; may be cancelled and called again."""
        while self.in_flight:
            self._idle.clear()
            await self._idle.wait()

    def begin_close(self) -> bool:
        """Refuse new calls from now on; False if there is nothing to close (closed already, or inherited).

        A close that was cancelled half way may begin again.
        """
        if self.state in (State.CLOSED, State.INHERITED):
            return False
        self.check_usable()
        self.state = State.CLOSING
        return True

    def finish_close(self) -> None:
        """Everything was released: refuse every use of a connection."""
        if self.state is not State.INHERITED:
            self.state = State.CLOSED

    def enter_child(self) -> object:
        """After a fork, in the child: refuse everything; returns the owner, which must never be collected."""
        self.state = State.INHERITED
        if self._reset_in_child is not None:
            self._reset_in_child()
        return self._owner()


_live: weakref.WeakSet[Lifecycle] = weakref.WeakSet()
_inherited: list[object] = []


def _enter_child() -> None:
    _inherited.extend([lifecycle.enter_child() for lifecycle in _live])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
