"""What the stores of one scope share: the kernel, the scope, and guesses about current branches.

The guesses make the hot path one round trip: a commit assumes that the current branch is the one seen last and lets the
transaction check it; a history assumes the line seen last and checks it in the same snapshot. A wrong guess costs a
second trip, never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from perdure.errors import NotFoundError
from perdure.kernel.engine import Engine
from perdure.kernel.joined import Joined, Values
from perdure.kernel.ops import Applied, Heads, Op, ReadOp, Row, Scan, Segment
from perdure.kernel.validate import Kernel
from perdure.model.branch import MAIN
from perdure.rules.branch_path import Stretch
from perdure.rules.checks import check_scope
from perdure.stores.answer_checks import answer_check
from perdure.stores.patience import Patience

T = TypeVar("T")
_CACHE_MOST = 20_000


class Line(msgspec.Struct, frozen=True):
    """A branch's path as last seen, in the incarnation `born` of its thread (None: true of any)."""

    born: int | None
    branch: int
    stretches: tuple[Stretch, ...]

    def segments(self) -> tuple[Segment, ...]:
        """The path as kernel segments."""
        return tuple(Segment(branch, after, upto) for branch, after, upto in self.stretches)


MAIN_LINE = Line(None, MAIN, ((MAIN, 0, None),))


class Cleaner(Protocol):
    """Removes what has expired, in the background, for all scopes of an engine; see `stores.housekeeping`."""

    def visit(self, scope: str) -> None:
        """The scope is in use: clean it if that was not done lately. Returns at once."""
        ...

    def revisit(self, scope: str) -> None:
        """Something was left unfinished in the scope: clean it again. Returns at once."""
        ...


class Context:
    """What the stores of one scope share: the kernel, the scope, and guesses about its threads."""

    def __init__(
        self,
        engine: Engine,
        scope: str,
        cleaner: Cleaner | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.engine: Engine = engine
        self.cleaner: Cleaner | None = cleaner
        self.patience: Patience = patience or Patience(0)
        self.kernel: Kernel = Kernel(engine)
        self.scope: str = check_scope(scope)
        self._check = answer_check(engine.schema)
        self.current: dict[str, int] = {}
        self.lines: dict[tuple[str, int], Line] = {}
        self.queues: set[str] = set()
        self._path_lengths: dict[tuple[str, tuple[int, int]], tuple[int, int]] = {}

    def clean_up(self) -> None:
        """See to it that expired rows of this scope go, in the background; a look at a dictionary if they have."""
        if self.cleaner is not None:
            self.cleaner.visit(self.scope)

    def clean_up_soon(self) -> None:
        """The same, however recently it was done: there is something to finish."""
        if self.cleaner is not None:
            self.cleaner.revisit(self.scope)

    async def transact(self, ops: Sequence[Op], *topics: str) -> Applied:
        """Apply operations in this scope."""
        applied = await self.patience.repeat(partial(self.kernel.transact, self.scope, ops, topics))
        self.clean_up()
        return applied

    async def view(self, *reads: ReadOp) -> list[Any]:
        """Read in this scope, from one snapshot; raises `CorruptError` for a row that is not as its table declares."""
        if self.patience.ms:
            answers = await self.patience.repeat(partial(self.kernel.view, self.scope, *reads))
        else:
            answers = await self.kernel.view(self.scope, *reads)
        self._check(reads, answers)
        self.clean_up()
        return answers

    async def view_through(self, build: Callable[[list[Any]], T], *reads: ReadOp) -> T:
        """What `build` makes of the answers of `view`, without holding up the event loop for it if possible.

        `build` may be called in another thread: it is a function of the answers alone.
        """

        def checked(answers: list[Any]) -> T:
            self._check(reads, answers)
            return build(answers)

        if self.patience.ms:
            built: T = await self.patience.repeat(partial(self.kernel.view_through, self.scope, reads, checked))
        else:
            built = await self.kernel.view_through(self.scope, reads, checked)
        self.clean_up()
        return built

    async def view_joined(self, joined: Joined, build: Callable[[list[list[Values]]], T]) -> T | None:
        """What `build` makes of rows of two tables, read as tuples and checked; None if the engine cannot join.

        `build` is called as by `view_through`.
        """
        join = self.kernel.join
        if join is None:
            return None

        def checked(answers: list[list[Values]]) -> T:
            self._check.joined(joined, answers)
            return build(answers)

        if self.patience.ms:
            built: T = await self.patience.repeat(partial(join, self.scope, joined, checked))
        else:
            built = await join(self.scope, joined, checked)
        self.clean_up()
        return built

    async def view_keys(self, *reads: Scan | Heads) -> list[Any]:
        """Read in this scope for the keys of rows alone: their columns may be damaged."""
        answers = await self.patience.repeat(partial(self.kernel.view, self.scope, *reads))
        self._check.keys(reads, answers)
        return answers

    def remember_current(self, thread_id: str, branch: int) -> None:
        """Note the branch that is current now, as far as this process has seen."""
        if branch == MAIN:
            self.current.pop(thread_id, None)
            return
        if len(self.current) >= _CACHE_MOST:
            self.current.clear()
        self.current[thread_id] = branch

    def remember_line(self, thread_id: str, line: Line) -> None:
        """Note a branch's path; it never changes within one incarnation of a thread."""
        if len(self.lines) >= _CACHE_MOST:
            self.lines.clear()
        self.lines[thread_id, line.branch] = line

    def remember_queue(self, thread_id: str) -> None:
        """Note that the thread has a queue row; it stays as long as the thread."""
        if len(self.queues) >= _CACHE_MOST:
            self.queues.clear()
        self.queues.add(thread_id)

    def path_length(self, thread_id: str, born: int, point: tuple[int, int]) -> int | None:
        """How long the path to a message is, if this process has computed it; the message by branch and seq."""
        known = self._path_lengths.get((thread_id, point))
        return known[1] if known is not None and known[0] == born else None

    def remember_path_length(self, thread_id: str, born: int, point: tuple[int, int], length: int) -> None:
        """Note the length of a path to a message; it never changes within one incarnation of a thread."""
        if len(self._path_lengths) >= _CACHE_MOST:
            self._path_lengths.clear()
        self._path_lengths[thread_id, point] = (born, length)

    def forget(self, thread_id: str) -> None:
        """Drop every guess about a thread."""
        self.current.pop(thread_id, None)
        for key in [key for key in list(self.lines) if key[0] == thread_id]:
            self.lines.pop(key, None)


thread_topic: Callable[[str], str] = "thread:{}".format
"""The topic on which changes of a thread are hinted. Every commit names it, so it is no function of ours."""


def require(row: Row | None, what: str) -> Row:
    """The row, or `NotFoundError`."""
    if row is None:
        raise NotFoundError(f"{what} does not exist")
    return row


def check_resource(head: Row | None, resource: str | None) -> None:
    """Raise `NotFoundError` if a thread that exists belongs to another resource than this one; None is any."""
    if head is not None and resource not in (None, head["resource"]):
        raise NotFoundError(f"thread {head.key[0]!r} does not exist")
