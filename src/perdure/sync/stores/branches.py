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
from perdure.sync.driver import Driver

# fmt: off


class Branches:
    """`store.branches`, blocking."""

    def __init__(self, inner: async_branches.Branches, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

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
        """Make a new branch that continues after one message, or replaces another, and write its first messages.

        - `at`: the id of the message to continue after; None starts another root.
        - `before`: the id of the message to replace: the branch continues after the one before it. Pass either `at` or
          `before`.
        - `name`: unique within the thread; by default `branch-<number>`. A name that exists raises `AlreadyExists`.
        - `switch`: make the branch the current one. By default the current branch stays.
        - `messages`: the first messages of the branch, checked as `commit` checks them. The branch and its messages are
          made in one transaction, or neither is.
        - `fence`: the number of the caller's claim, as in `commit`.
        - `key`: makes a retry of a fork with messages safe, as in `commit`. A repeated call returns the branch that the
          first one made, as it is now.

        Raises `NotFoundError` for a thread or a message that does not exist. No message is copied.
        """
        return self._driver.run(self._inner.fork(
            thread_id, at=at, before=before, name=name, switch=switch, messages=messages, fence=fence, key=key
        ))

    def checkout(self, thread_id: str, message_id: str, *, name: str | None = None) -> Branch:
        """Make the branch that ends at a message the current one; if there is none, fork at the message and switch.

        - `message_id`: the message that the next commit continues.
        - `name`: what the fork is called if one is made; by default `branch-<number>`.

        Of several branches that end there, the current one stays, else the lowest number is chosen. The branch is
        returned as it was at that moment: a commit that another writer makes on it before the switch is noticed, and
        the search begins again. Two callers who find none may each make a fork.
        """
        return self._driver.run(self._inner.checkout(thread_id, message_id, name=name))

    def variants(self, thread_id: str, message_id: str, *, view: VariantView = "raw") -> VariantList:
        """The messages written in the same place as this one, itself included, in the order of their commits.

        Two messages are variants of each other if they follow the same message, each on a branch of its own; the first
        messages of all roots are variants too. Those that only deleted branches lead to are left out, except the
        message that was asked about. The cost follows the number of branches and variants, not the history.

        - `view`: `raw` lists all of them; `external` leaves out those whose visibility is not `all`, except the message
          that was asked about.
        """
        return self._driver.read(self._inner.variants(thread_id, message_id, view=view))

    def tree(self, thread_id: str, *, deleted: bool = False, most: int | None = limits.TREE_MESSAGES) -> Tree:
        """The whole thread as a tree of messages, which `draw()` turns into text.

        It reads every message once, in pages, and keeps one line of each.

        - `deleted`: also show messages that only deleted branches lead to.
        - `most`: a thread with more messages is refused with `InvalidError`; None reads a thread of any size.
        """
        return self._driver.read(self._inner.tree(thread_id, deleted=deleted, most=most))

    def switch(self, thread_id: str, branch: int | str) -> Branch:
        """Make a branch the current one; switching to the current one changes nothing.

        Its head is returned as this call found it, just before the change.
        """
        return self._driver.run(self._inner.switch(thread_id, branch))

    def rename(self, thread_id: str, branch: int | str, name: str) -> Branch:
        """Give a branch another name; raises `AlreadyExists` if a branch of the thread has it.

        Its head is returned as this call found it, just before the change.
        """
        return self._driver.run(self._inner.rename(thread_id, branch, name))

    def delete(self, thread_id: str, branch: int | str) -> None:
        """Remove a branch's pointer; its records and the branches forked from it stay.

        The current branch is refused, and so is one that a run which is not done is pinned to.
        """
        return self._driver.run(self._inner.delete(thread_id, branch))

    def label(self, thread_id: str, message_id: str, label: str | None) -> None:
        """Mark a message; the last label wins, None removes it. Labels never reach the model."""
        return self._driver.run(self._inner.label(thread_id, message_id, label))

    def labels(self, thread_id: str) -> LabelList:
        """Every label of a thread, in the order of the messages."""
        return self._driver.read(self._inner.labels(thread_id))
