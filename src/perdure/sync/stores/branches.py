"""`Branches`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.branches`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure import limits
from perdure.model.branch import Branch
from perdure.model.message import Message
from perdure.model.tree import Tree
from perdure.model.unset import UNSET, Unset
from perdure.stores import branches as async_branches
from perdure.stores.branches import BranchList, LabelList, VariantList, VariantView
from perdure.sync.face import Face

# fmt: off


class Branches(Face[async_branches.Branches], of=async_branches.Branches):
    """`store.branches`, blocking."""

    def list(self, thread_id: str) -> BranchList:
        """Every branch in order of creation, with a preview of its newest message."""
        return self._driver.read(self._inner.list(thread_id))

    def iter(self, thread_id: str) -> Iterator[Branch]:
        """Every branch of the list, one by one."""
        return self._driver.iterate(self._inner.iter(thread_id))

    def get(self, thread_id: str, branch: int | str) -> Branch:
        """One branch, by number or name; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(thread_id, branch))

    def current(self, thread_id: str) -> Branch:
        """The branch that commits go to when they name none."""
        return self._driver.read(self._inner.current(thread_id))

    def fork(
        self, thread_id: str, *, at: str | Unset | None = UNSET, before: str | None = None, name: str | None = None,
        switch: bool = False, messages: Sequence[Message] = (), fence: int | None = None, key: str | None = None
    ) -> Branch:
        """Make a new branch that continues after one message, or replaces another, and write its first messages."""
        return self._driver.run(self._inner.fork(
            thread_id, at=at, before=before, name=name, switch=switch, messages=messages, fence=fence, key=key
        ))

    def checkout(self, thread_id: str, message_id: str, *, name: str | None = None) -> Branch:
        """Make the branch that ends at a message the current one; if there is none, fork at the message and switch."""
        return self._driver.run(self._inner.checkout(thread_id, message_id, name=name))

    def variants(
        self, thread_id: str, message_id: str | None = None, *, run_id: str | None = None, view: VariantView = "raw"
    ) -> VariantList:
        """The messages written in the same place as this one, itself included, in the order of their commits."""
        return self._driver.read(self._inner.variants(thread_id, message_id, run_id=run_id, view=view))

    def tree(self, thread_id: str, *, deleted: bool = False, most: int | None = limits.TREE_MESSAGES) -> Tree:
        """The whole thread as a tree of messages, which `draw()` turns into text."""
        return self._driver.read(self._inner.tree(thread_id, deleted=deleted, most=most))

    def switch(self, thread_id: str, branch: int | str) -> Branch:
        """Make a branch the current one; switching to the current one changes nothing."""
        return self._driver.run(self._inner.switch(thread_id, branch))

    def rename(self, thread_id: str, branch: int | str, name: str) -> Branch:
        """Rename a branch; raises `AlreadyExists` if a branch of the thread has it."""
        return self._driver.run(self._inner.rename(thread_id, branch, name))

    def delete(self, thread_id: str, branch: int | str) -> None:
        """Remove a branch's pointer; its records and the branches forked from it stay."""
        return self._driver.run(self._inner.delete(thread_id, branch))

    def label(self, thread_id: str, message_id: str, label: str | None) -> None:
        """Mark a message; the last label wins, None removes it. Labels never reach the model."""
        return self._driver.run(self._inner.label(thread_id, message_id, label))

    def labels(self, thread_id: str) -> LabelList:
        """Every label of a thread, in the order of the messages."""
        return self._driver.read(self._inner.labels(thread_id))
