"""`ThreadHandle`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.thread_handle`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, overload

from perdure import limits
from perdure.model.branch import Branch
from perdure.model.draft import Draft
from perdure.model.message import Message, MessageRecord
from perdure.model.message_page import MessagePage
from perdure.model.receipt import Receipt, RunReceipt, Snapshot
from perdure.model.run import NewRun, Run, RunChange
from perdure.model.thread import NewThread, Thread, ThreadOptions
from perdure.model.tree import Tree
from perdure.model.unset import UNSET, Unset
from perdure.stores import thread_handle as async_thread_handle
from perdure.stores.branches import VariantList, VariantView
from perdure.stores.following import FollowView
from perdure.stores.message_pages import View
from perdure.stores.messages import End, Records, UnfinishedCalls
from perdure.stores.options import AppendOptions, CommitOptions
from perdure.stores.runs import StartOptions
from perdure.stores.threads import Strategy
from perdure.sync.buffered import BufferedWriter
from perdure.sync.face import Face
from perdure.sync.follower import Follower

# fmt: off


class ThreadHandle(Face[async_thread_handle.ThreadHandle], of=async_thread_handle.ThreadHandle):
    """One thread of a store: its calls, without its id. Made by `store.thread`, blocking."""

    @property
    def id(self) -> str:
        """The id of the thread."""
        return self._inner.id

    @property
    def resource_id(self) -> str | None:
        """The resource that the thread must belong to, or None."""
        return self._inner.resource_id

    @overload
    def append(
        self, *messages: Message, run: Run | RunChange | NewRun, **options: Unpack[AppendOptions]
    ) -> RunReceipt: ...

    @overload
    def append(self, *messages: Message, run: None = None, **options: Unpack[AppendOptions]) -> Receipt: ...

    def append(
        self, *messages: Message, run: Run | RunChange | NewRun | None = None, **options: Unpack[AppendOptions]
    ) -> Receipt:
        """Commit these messages. `run` and the options are those of `Store.commit`."""
        return self._driver.run(self._inner.append(*messages, run=run, **options))

    def find(self, *, resource_id: str | None = None) -> Thread | None:
        """The thread, or None. With `resource_id`, only a thread that belongs to this resource."""
        return self._driver.read(self._inner.find(resource_id=resource_id))

    def ensure(self, **options: Unpack[ThreadOptions]) -> Thread:
        """The thread, created if it does not exist; of callers at the same time, one creates it."""
        return self._driver.run(self._inner.ensure(**options))

    def start(self, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A running run, with the messages it was given, in one commit."""
        return self._driver.run(self._inner.start(agent_id, **options))

    def follow_runs(self, *, branch: int | None = None, timeout: float | None = None) -> Follower[Run]:
        """Its open runs and its latest, then each run that starts or changes: `store.runs.follow(thread_id=…)`."""
        return Follower(self._inner.follow_runs(branch=branch, timeout=timeout), self._driver)

    def follow_all(
        self, *, branch: int | None = None, after_seq: int = 0, timeout: float | None = None
    ) -> Follower[Draft | MessageRecord | Run]:
        """All that a tab shows, in one follower: words as they come, messages that people may see, and runs."""
        return Follower(self._inner.follow_all(branch=branch, after_seq=after_seq, timeout=timeout), self._driver)

    def get(self, *, resource_id: str | None = None) -> Thread:
        """The thread; raises `NotFoundError`. With `resource_id`, also for a thread of another resource."""
        return self._driver.read(self._inner.get(resource_id=resource_id))

    def update(
        self, *, title: str | Unset | None = UNSET, custom: dict[str, Any] | Unset | None = UNSET,
        resource_id: str | Unset | None = UNSET, parent_thread_id: str | Unset | None = UNSET,
        if_rev: int | None = None
    ) -> Thread:
        """Change the fields that are passed and leave the rest; `custom` replaces the whole object, None clears."""
        return self._driver.run(self._inner.update(
            title=title, custom=custom, resource_id=resource_id, parent_thread_id=parent_thread_id, if_rev=if_rev
        ))

    def delete(self, *, strategy: Strategy = "detach") -> None:
        """Delete a thread and all that belongs to it."""
        return self._driver.run(self._inner.delete(strategy=strategy))

    @overload
    def commit(self, *, run: Run | RunChange | NewRun, **options: Unpack[CommitOptions]) -> RunReceipt: ...

    @overload
    def commit(self, *, run: None = None, **options: Unpack[CommitOptions]) -> Receipt: ...

    def commit(
        self, *, messages: Sequence[Message] = (), run: Run | RunChange | NewRun | None = None,
        branch: int | str | None = None, expect: int | None = None, expect_head: str | None = None,
        fence: int | None = None, state: Mapping[str, Any] | None = None, run_state: Mapping[str, Any] | None = None,
        expect_state: Mapping[str, int | None] | None = None, thread: NewThread | None = None, key: str | None = None
    ) -> Receipt:
        """Make everything from one step durable, in one transaction, or none of it."""
        return self._driver.run(self._inner.commit(
            messages=messages, run=run, branch=branch, expect=expect, expect_head=expect_head, fence=fence,
            state=state, run_state=run_state, expect_state=expect_state, thread=thread, key=key
        ))

    def load(self, *, branch: int | str | None = None) -> Snapshot:
        """A thread, its branch, history, latest run and state, all from one snapshot."""
        return self._driver.read(self._inner.load(branch=branch))

    def buffered(
        self, *, most: int = 10, every_ms: int = 1000, run: Run | None = None, branch: int | str | None = None,
        fence: int | None = None
    ) -> BufferedWriter:
        """A writer that commits messages a few at a time: `async with store.buffered("t-1") as writer: …`."""
        return BufferedWriter(self._inner.buffered(
            most=most, every_ms=every_ms, run=run, branch=branch, fence=fence
        ).buffer, self._driver)

    def history(
        self, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None,
        interrupted: str | None = None, run_id: str | None = None
    ) -> Records:
        """What the model should see: one branch's path, compaction folded, tool pairs intact."""
        return self._driver.read(self._inner.history(
            branch=branch, upto=upto, limit=limit, interrupted=interrupted, run_id=run_id
        ))

    def external(
        self, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """What an outsider may see of one branch's path: nothing internal, retracted or unanswered."""
        return self._driver.read(self._inner.external(branch=branch, upto=upto, limit=limit))

    def path(self, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None) -> Records:
        """One branch as it was written, from its root on: nothing folded, nothing left out."""
        return self._driver.read(self._inner.path(branch=branch, upto=upto, limit=limit))

    def page(
        self, *, branch: int | str | None = None, view: View = "external", before: End | None = None,
        limit: int = limits.PAGE_DEFAULT, cursor: str | None = None, variants: bool = False
    ) -> MessagePage:
        """One page of a branch, for people who scroll up: the newest page first, each page oldest first."""
        return self._driver.read(self._inner.page(
            branch=branch, view=view, before=before, limit=limit, cursor=cursor, variants=variants
        ))

    def follow(
        self, *, after_seq: int = 0, branch: int | str | None = None, view: FollowView = "raw",
        timeout: float | None = None
    ) -> Follower[MessageRecord]:
        """Records after a seq as they are committed: history first, then live, without gaps or repeats."""
        return Follower(self._inner.follow(
            after_seq=after_seq, branch=branch, view=view, timeout=timeout
        ), self._driver)

    def unfinished_calls(self, *, branch: int | str | None = None, run_id: str | None = None) -> UnfinishedCalls:
        """Tool calls on the path that no result answers: what recovery must look at (of one run, if given)."""
        return self._driver.read(self._inner.unfinished_calls(branch=branch, run_id=run_id))

    def fork(
        self, *, at: str | Unset | None = UNSET, before: str | None = None, name: str | None = None,
        switch: bool = False, messages: Sequence[Message] = (), fence: int | None = None, key: str | None = None
    ) -> Branch:
        """Make a new branch that continues after one message, or replaces another, and write its first messages."""
        return self._driver.run(self._inner.fork(
            at=at, before=before, name=name, switch=switch, messages=messages, fence=fence, key=key
        ))

    def checkout(self, message_id: str, *, name: str | None = None) -> Branch:
        """Make the branch that ends at a message the current one; if there is none, fork at the message and switch."""
        return self._driver.run(self._inner.checkout(message_id, name=name))

    def switch(self, branch: int | str) -> Branch:
        """Make a branch the current one; switching to the current one changes nothing."""
        return self._driver.run(self._inner.switch(branch))

    def variants(
        self, message_id: str | None = None, *, run_id: str | None = None, view: VariantView = "raw"
    ) -> VariantList:
        """The messages written in the same place as this one, itself included, in the order of their commits."""
        return self._driver.read(self._inner.variants(message_id, run_id=run_id, view=view))

    def tree(self, *, deleted: bool = False, most: int | None = limits.TREE_MESSAGES) -> Tree:
        """The whole thread as a tree of messages, which `draw()` turns into text."""
        return self._driver.read(self._inner.tree(deleted=deleted, most=most))

    def rerun(
        self, run_id: str | None = None, *, message_id: str | None = None, messages: Sequence[Message] | None = None,
        agent_id: str | None = None, metadata: dict[str, Any] | None = None, name: str | None = None,
        replace: bool = True, new_run_id: str | None = None, fence: int | None = None, key: str | None = None
    ) -> Run:
        """Answer again on a new branch: regenerate what a run produced, or edit what it was asked."""
        return self._driver.run(self._inner.rerun(
            run_id, message_id=message_id, messages=messages, agent_id=agent_id, metadata=metadata, name=name,
            replace=replace, new_run_id=new_run_id, fence=fence, key=key
        ))

    def cancel(
        self, run_id: str, detail: str | None = None, *, keep_draft: bool = False, answer_calls: str | None = None
    ) -> Run:
        """End a run from outside, however often its worker changes it at the same time."""
        return self._driver.run(self._inner.cancel(run_id, detail, keep_draft=keep_draft, answer_calls=answer_calls))

    def decide(self, run_id: str, ticket_id: str, value: Any) -> Run:
        """Record the decision on a ticket of a waiting run, even while others change the run."""
        return self._driver.run(self._inner.decide(run_id, ticket_id, value))

    def follow_drafts(self, *, branch: int | None = None, timeout: float | None = None) -> Follower[Draft]:
        """The words of the running runs of a thread as they come: each draft as it is now, then after each change."""
        return Follower(self._inner.follow_drafts(branch=branch, timeout=timeout), self._driver)
