"""`store.thread(id)`: the calls on one thread, without repeating its id.

Written by tools/make_handle.py from the stores: edit those instead. A handle holds no state: the thread need not exist,
and two handles of one thread are as good as one. With a resource, every call first checks whose thread it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from perdure import limits
from perdure.errors import InvalidError
from perdure.model.branch import Branch
from perdure.model.draft import Draft
from perdure.model.message import Message, MessageRecord
from perdure.model.message_page import MessagePage
from perdure.model.receipt import Receipt, RunReceipt, Snapshot
from perdure.model.run import NewRun, Run, RunChange
from perdure.model.thread import NewThread, Thread, ThreadOptions
from perdure.model.tree import Tree
from perdure.model.unset import UNSET, Unset
from perdure.rules import checks
from perdure.stores.branches import VariantList, VariantView
from perdure.stores.buffered import BufferedWriter
from perdure.stores.follower import Follower
from perdure.stores.following import FollowView
from perdure.stores.message_pages import View
from perdure.stores.messages import End, Records, UnfinishedCalls
from perdure.stores.options import AppendOptions, CommitOptions
from perdure.stores.runs import StartOptions
from perdure.stores.threads import Strategy

if TYPE_CHECKING:
    from perdure.stores.store import Store

# fmt: off


class ThreadHandle:
    """One thread of a store: its calls, without its id. Made by `store.thread`."""

    def __init__(self, store: Store, thread_id: str, resource_id: str | None = None) -> None:
        self._store = store
        self._id = checks.check_id(thread_id, "thread id")
        self._resource = checks.check_owner(resource_id)

    @property
    def id(self) -> str:
        """The id of the thread."""
        return self._id

    @property
    def resource_id(self) -> str | None:
        """The resource that the thread must belong to, or None."""
        return self._resource

    def __repr__(self) -> str:
        owner = "" if self._resource is None else f" resource_id={self._resource!r}"
        return f"<perdure.ThreadHandle {self._id!r}{owner} of {self._store!r}>"

    async def _check(self) -> None:
        """Raise `NotFoundError` unless the thread exists and belongs to the resource."""
        if self._resource is not None:
            await self._store.threads.get(self._id, resource_id=self._resource)

    @overload
    async def append(
        self, *messages: Message, run: Run | RunChange | NewRun, **options: Unpack[AppendOptions]
    ) -> RunReceipt: ...

    @overload
    async def append(self, *messages: Message, run: None = None, **options: Unpack[AppendOptions]) -> Receipt: ...

    async def append(
        self, *messages: Message, run: Run | RunChange | NewRun | None = None, **options: Unpack[AppendOptions]
    ) -> Receipt:
        """Commit these messages. `run` and the options are those of `Store.commit`."""
        await self._check()
        return await self._store.commit(self._id, messages=messages, run=run, **options)

    async def find(self, *, resource_id: str | None = None) -> Thread | None:
        """The thread, or None. With `resource_id`, only a thread that belongs to this resource."""
        owner = self._resource if resource_id is None else resource_id
        thread = await self._store.threads.find(self._id, resource_id=owner)
        return None if thread is None or self._resource not in (None, thread.resource_id) else thread

    async def ensure(self, **options: Unpack[ThreadOptions]) -> Thread:
        """The thread, created if it does not exist; of callers at the same time, one creates it.

        The options are those of `store.threads.ensure`.
        """
        if self._resource is not None:
            if options.setdefault("resource_id", self._resource) != self._resource:
                raise InvalidError("the handle and the call name different resources", hint="leave out resource_id")
            await self._store.threads.ensure(self._id, **options)
            return await self._store.threads.get(self._id, resource_id=self._resource)
        return await self._store.threads.ensure(self._id, **options)

    async def start(self, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A running run, with the messages it was given, in one commit.

        The options are those of `store.runs.start`.
        """
        if self._resource is not None and options.setdefault("resource_id", self._resource) != self._resource:
            raise InvalidError("the handle and the call name different resources", hint="leave out resource_id")
        return await self._store.runs.start(self._id, agent_id, **options)

    def follow_runs(self, *, branch: int | None = None, timeout: float | None = None) -> Follower[Run]:
        """Its open runs and its latest, then each run that starts or changes: `store.runs.follow(thread_id=…)`.

        `branch` is the number of a branch, such as the one that a tab shows: then the latest run is the latest on it.
        """
        return self._store.runs.follow(
            thread_id=self._id, branch=branch, timeout=timeout, resource_id=self._resource
        )

    def follow_all(
        self, *, branch: int | None = None, after_seq: int = 0, timeout: float | None = None
    ) -> Follower[Draft | MessageRecord | Run]:
        """All that a tab shows, in one follower: words as they come, messages that people may see, and runs.

        A draft ends before its answer comes, and a run is done after its answer. It is `follow_drafts`, `follow` with
        the view `external`, and `follow_runs`, merged.

        - `branch`: the number of the branch that the tab shows, such as `page.branch`; by default, all branches.
        - `after_seq`: the last seq that the tab has, such as `page.after_seq`.
        - `timeout`: end after so many seconds without a record.
        """
        messages = self.follow(branch=branch, view="external", after_seq=after_seq)
        drafts, runs = self.follow_drafts(branch=branch), self.follow_runs(branch=branch)
        return drafts.merge(messages, runs, timeout=timeout)

    async def get(self, *, resource_id: str | None = None) -> Thread:
        """The thread; raises `NotFoundError`. With `resource_id`, also for a thread of another resource.

        The options are those of `store.threads.get`.
        """
        await self._check()
        return await self._store.threads.get(self._id, resource_id=resource_id)

    async def update(
        self, *, title: str | Unset | None = UNSET, custom: dict[str, Any] | Unset | None = UNSET,
        resource_id: str | Unset | None = UNSET, parent_thread_id: str | Unset | None = UNSET,
        if_rev: int | None = None
    ) -> Thread:
        """Change the fields that are passed and leave the rest; `custom` replaces the whole object, None clears.

        The options are those of `store.threads.update`.
        """
        await self._check()
        return await self._store.threads.update(
            self._id, title=title, custom=custom, resource_id=resource_id, parent_thread_id=parent_thread_id,
            if_rev=if_rev
        )

    async def delete(self, *, strategy: Strategy = "detach") -> None:
        """Delete a thread and all that belongs to it.

        The options are those of `store.threads.delete`.
        """
        await self._check()
        await self._store.threads.delete(self._id, strategy=strategy)

    @overload
    async def commit(self, *, run: Run | RunChange | NewRun, **options: Unpack[CommitOptions]) -> RunReceipt: ...

    @overload
    async def commit(self, *, run: None = None, **options: Unpack[CommitOptions]) -> Receipt: ...

    async def commit(
        self, *, messages: Sequence[Message] = (), run: Run | RunChange | NewRun | None = None,
        branch: int | str | None = None, expect: int | None = None, expect_head: str | None = None,
        fence: int | None = None, state: Mapping[str, Any] | None = None, run_state: Mapping[str, Any] | None = None,
        expect_state: Mapping[str, int | None] | None = None, thread: NewThread | None = None, key: str | None = None
    ) -> Receipt:
        """Make everything from one step durable, in one transaction, or none of it.

        The options are those of `Store.commit`.
        """
        await self._check()
        return await self._store.commit(
            self._id, messages=messages, run=run, branch=branch, expect=expect, expect_head=expect_head, fence=fence,
            state=state, run_state=run_state, expect_state=expect_state, thread=thread, key=key
        )

    async def load(self, *, branch: int | str | None = None) -> Snapshot:
        """A thread, its branch, history, latest run and state, all from one snapshot.

        The options are those of `Store.load`.
        """
        await self._check()
        return await self._store.load(self._id, branch=branch)

    def buffered(
        self, *, most: int = 10, every_ms: int = 1000, run: Run | None = None, branch: int | str | None = None,
        fence: int | None = None
    ) -> BufferedWriter:
        """A writer that commits messages a few at a time: `async with store.buffered("t-1") as writer: …`.

        The options are those of `Store.buffered`.
        """
        if self._resource is not None:
            raise InvalidError("a handle with a resource_id has no buffered writer", hint="store.buffered(id)")
        return self._store.buffered(self._id, most=most, every_ms=every_ms, run=run, branch=branch, fence=fence)

    async def history(
        self, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None,
        interrupted: str | None = None, run_id: str | None = None
    ) -> Records:
        """What the model should see: one branch's path, compaction folded, tool pairs intact.

        The options are those of `store.messages.history`.
        """
        await self._check()
        return await self._store.messages.history(
            self._id, branch=branch, upto=upto, limit=limit, interrupted=interrupted, run_id=run_id
        )

    async def external(
        self, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """What an outsider may see of one branch's path: nothing internal, retracted or unanswered.

        The options are those of `store.messages.external`.
        """
        await self._check()
        return await self._store.messages.external(self._id, branch=branch, upto=upto, limit=limit)

    async def path(
        self, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """One branch as it was written, from its root on: nothing folded, nothing left out.

        The options are those of `store.messages.path`.
        """
        await self._check()
        return await self._store.messages.path(self._id, branch=branch, upto=upto, limit=limit)

    async def page(
        self, *, branch: int | str | None = None, view: View = "external", before: End | None = None,
        limit: int = limits.PAGE_DEFAULT, cursor: str | None = None, variants: bool = False
    ) -> MessagePage:
        """One page of a branch, for people who scroll up: the newest page first, each page oldest first.

        The options are those of `store.messages.page`.
        """
        await self._check()
        return await self._store.messages.page(
            self._id, branch=branch, view=view, before=before, limit=limit, cursor=cursor, variants=variants
        )

    def follow(
        self, *, after_seq: int = 0, branch: int | str | None = None, view: FollowView = "raw",
        timeout: float | None = None
    ) -> Follower[MessageRecord]:
        """Records after a seq as they are committed: history first, then live, without gaps or repeats.

        The options are those of `store.messages.follow`.
        """
        return self._store.messages.follow(
            self._id, after_seq=after_seq, branch=branch, view=view, timeout=timeout, resource_id=self._resource
        )

    async def unfinished_calls(
        self, *, branch: int | str | None = None, run_id: str | None = None
    ) -> UnfinishedCalls:
        """Tool calls on the path that no result answers: what recovery must look at (of one run, if given).

        The options are those of `store.messages.unfinished_calls`.
        """
        await self._check()
        return await self._store.messages.unfinished_calls(self._id, branch=branch, run_id=run_id)

    async def fork(
        self, *, at: str | Unset | None = UNSET, before: str | None = None, name: str | None = None,
        switch: bool = False, messages: Sequence[Message] = (), fence: int | None = None, key: str | None = None
    ) -> Branch:
        """Make a new branch that continues after one message, or replaces another, and write its first messages.

        The options are those of `store.branches.fork`.
        """
        await self._check()
        return await self._store.branches.fork(
            self._id, at=at, before=before, name=name, switch=switch, messages=messages, fence=fence, key=key
        )

    async def checkout(self, message_id: str, *, name: str | None = None) -> Branch:
        """Make the branch that ends at a message the current one; if there is none, fork at the message and switch.

        The options are those of `store.branches.checkout`.
        """
        await self._check()
        return await self._store.branches.checkout(self._id, message_id, name=name)

    async def switch(self, branch: int | str) -> Branch:
        """Make a branch the current one; switching to the current one changes nothing.

        The options are those of `store.branches.switch`.
        """
        await self._check()
        return await self._store.branches.switch(self._id, branch)

    async def variants(
        self, message_id: str | None = None, *, run_id: str | None = None, view: VariantView = "raw"
    ) -> VariantList:
        """The messages written in the same place as this one, itself included, in the order of their commits.

        The options are those of `store.branches.variants`.
        """
        await self._check()
        return await self._store.branches.variants(self._id, message_id, run_id=run_id, view=view)

    async def tree(self, *, deleted: bool = False, most: int | None = limits.TREE_MESSAGES) -> Tree:
        """The whole thread as a tree of messages, which `draw()` turns into text.

        The options are those of `store.branches.tree`.
        """
        await self._check()
        return await self._store.branches.tree(self._id, deleted=deleted, most=most)

    async def rerun(
        self, run_id: str | None = None, *, message_id: str | None = None, messages: Sequence[Message] | None = None,
        agent_id: str | None = None, metadata: dict[str, Any] | None = None, name: str | None = None,
        replace: bool = True, new_run_id: str | None = None, fence: int | None = None, key: str | None = None
    ) -> Run:
        """Answer again on a new branch: regenerate what a run produced, or edit what it was asked.

        The options are those of `store.runs.rerun`.
        """
        await self._check()
        return await self._store.runs.rerun(
            run_id, message_id=message_id, messages=messages, agent_id=agent_id, metadata=metadata, name=name,
            replace=replace, thread_id=self._id, new_run_id=new_run_id, fence=fence, key=key
        )

    async def cancel(
        self, run_id: str, detail: str | None = None, *, keep_draft: bool = False, answer_calls: str | None = None
    ) -> Run:
        """End a run from outside, however often its worker changes it at the same time.

        The options are those of `store.runs.cancel`.
        """
        await self._check()
        return await self._store.runs.cancel(
            run_id, detail, keep_draft=keep_draft, answer_calls=answer_calls, thread_id=self._id
        )

    async def decide(self, run_id: str, ticket_id: str, value: Any) -> Run:
        """Record the decision on a ticket of a waiting run, even while others change the run.

        The options are those of `store.runs.decide`.
        """
        await self._check()
        return await self._store.runs.decide(run_id, ticket_id, value, thread_id=self._id)

    def follow_drafts(self, *, branch: int | None = None, timeout: float | None = None) -> Follower[Draft]:
        """The words of the running runs of a thread as they come: each draft as it is now, then after each change.

        The options are those of `store.runs.follow_drafts`.
        """
        return self._store.runs.follow_drafts(self._id, branch=branch, timeout=timeout, resource_id=self._resource)
