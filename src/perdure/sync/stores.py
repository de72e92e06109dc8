"""The stores as blocking callers see them.

Written by tools/make_sync.py from the async stores: edit those instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack, overload

from perdure import limits
from perdure.kernel.engine import Capabilities, Engine, Health
from perdure.model.branch import Branch
from perdure.model.message import Message, MessageRecord
from perdure.model.page import Page
from perdure.model.pending import DeliveryMode, PendingMessage, PendingQueue
from perdure.model.profile import Profile, ProfileChange
from perdure.model.receipt import Receipt, RunReceipt, Snapshot
from perdure.model.run import NewRun, Run, RunChange
from perdure.model.state import StateDoc
from perdure.model.thread import NewThread, Thread, ThreadOptions
from perdure.model.tree import Tree
from perdure.model.unset import UNSET, Unset
from perdure.stores import branches as async_branches
from perdure.stores import messages as async_messages
from perdure.stores import pending as async_pending
from perdure.stores import profiles as async_profiles
from perdure.stores import runs as async_runs
from perdure.stores import state as async_state
from perdure.stores import store as async_store
from perdure.stores import threads as async_threads
from perdure.stores.branches import BranchList, LabelList, VariantList
from perdure.stores.following import FollowView
from perdure.stores.message_pages import View
from perdure.stores.messages import Direction, End, Records, UnfinishedCalls, Visibility
from perdure.stores.pending import FreezeOptions, PendingMessages, ThreadIds
from perdure.stores.runs import RunFilters, RunRecords, StartOptions
from perdure.stores.state import StateDocs
from perdure.stores.store import CommitOptions
from perdure.stores.thread_lists import Order
from perdure.stores.threads import Strategy, ThreadRecords
from perdure.sync.buffered import BufferedWriter
from perdure.sync.driver import Driver
from perdure.sync.follower import Follower

# fmt: off


class Threads:
    """`store.threads`, blocking."""

    def __init__(self, inner: async_threads.Threads, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def create(self, thread_id: str | None = None, **options: Unpack[ThreadOptions]) -> Thread:
        """Make a new thread; raises `AlreadyExists` if the id is taken, `NotFoundError` if the parent is missing.

        - `thread_id`: its id; minted if None.
        - `title`: what people call it.
        - `resource_id`: the user, account or object it belongs to.
        - `parent_thread_id`: the thread above it in the hierarchy; it must exist.
        - `custom`: your own metadata, a JSON object.
        """
        return self._driver.run(self._inner.create(thread_id, **options))

    def ensure(self, thread_id: str, **options: Unpack[ThreadOptions]) -> Thread:
        """The thread, created if it does not exist; of callers at the same time, one creates it.

        The options are those of `create`, and count only if this call creates the thread: one that exists is returned
        as it is. Raises `AlreadyExists` while a deleted thread of this id is being erased.
        """
        return self._driver.run(self._inner.ensure(thread_id, **options))

    def find(self, thread_id: str) -> Thread | None:
        """The thread, or None."""
        return self._driver.read(self._inner.find(thread_id))

    def get(self, thread_id: str) -> Thread:
        """The thread; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(thread_id))

    def update(
        self, thread_id: str, *, title: str | Unset | None = UNSET, custom: dict[str, Any] | Unset | None = UNSET,
        resource_id: str | Unset | None = UNSET, parent_thread_id: str | Unset | None = UNSET,
        if_rev: int | None = None
    ) -> Thread:
        """Change what is given and leave the rest; `custom` replaces the whole object, None clears.

        With `if_rev`, raises `VersionConflict` unless the thread still has that `rev`. What commits move (version,
        branch, runs, children) is returned as this call found it, just before the change.
        """
        return self._driver.run(self._inner.update(
            thread_id, title=title, custom=custom, resource_id=resource_id, parent_thread_id=parent_thread_id,
            if_rev=if_rev
        ))

    def delete(self, thread_id: str, *, strategy: Strategy = "detach") -> None:
        """Delete a thread and everything of it.

        Children: `reject` refuses with `HasChildren`, `detach` makes them roots, `cascade` deletes the whole subtree.
        Up to 1,000 threads change in one transaction. Of a larger set the thread goes first and the others follow in
        chunks, before the call returns; until its turn comes, a child can be read and written. If the process dies
        half way, housekeeping finishes the deletion, and so does deleting the thread again.
        """
        return self._driver.run(self._inner.delete(thread_id, strategy=strategy))

    def list(
        self, *, resource_id: str | None = None, parent_thread_id: str | None = None, root: bool = False,
        order: Order = "active", limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[Thread]:
        """Threads, newest first by activity (or creation), all or those of a resource, a parent, or the roots."""
        return self._driver.read(self._inner.list(
            resource_id=resource_id, parent_thread_id=parent_thread_id, root=root, order=order, limit=limit,
            cursor=cursor
        ))

    def iter(
        self, *, resource_id: str | None = None, parent_thread_id: str | None = None, root: bool = False,
        order: Order = "active"
    ) -> Iterator[Thread]:
        """Every thread of the list, page by page."""
        return self._driver.iterate(self._inner.iter(
            resource_id=resource_id, parent_thread_id=parent_thread_id, root=root, order=order
        ))

    def children(
        self, thread_id: str, *, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[Thread]:
        """The direct children of a thread, newest activity first; raises `NotFoundError` if it does not exist."""
        return self._driver.read(self._inner.children(thread_id, limit=limit, cursor=cursor))

    def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> ThreadRecords:
        """The threads whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200).

        A thread whose id equals the prefix comes first. Use it to look up an id that somebody abbreviated.
        """
        return self._driver.read(self._inner.with_prefix(prefix, limit=limit))

    def validate_parent(self, thread_id: str, parent_thread_id: str | None) -> None:
        """Check a parent and write nothing: raises `InvalidError` (a cycle) or `NotFoundError` (missing, damaged)."""
        return self._driver.read(self._inner.validate_parent(thread_id, parent_thread_id))


class Messages:
    """`store.messages`, blocking."""

    def __init__(self, inner: async_messages.Messages, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def list(
        self, thread_id: str, *, after_seq: int | None = None, before_seq: int | None = None,
        order: Direction = "asc", visibility: Visibility = "any", run_id: str | None = None,
        limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[MessageRecord]:
        """Raw records of all branches in seq order, filtered by seq window, visibility or producing run."""
        return self._driver.read(self._inner.list(
            thread_id, after_seq=after_seq, before_seq=before_seq, order=order, visibility=visibility, run_id=run_id,
            limit=limit, cursor=cursor
        ))

    def iter(
        self, thread_id: str, *, order: Direction = "asc", run_id: str | None = None, visibility: Visibility = "any",
        after_seq: int | None = None, before_seq: int | None = None
    ) -> Iterator[MessageRecord]:
        """Every record of the list, page by page."""
        return self._driver.iterate(self._inner.iter(
            thread_id, order=order, run_id=run_id, visibility=visibility, after_seq=after_seq, before_seq=before_seq
        ))

    def find(self, thread_id: str, message_id: str) -> MessageRecord | None:
        """The record with this message id, or None."""
        return self._driver.read(self._inner.find(thread_id, message_id))

    def get(self, thread_id: str, message_id: str) -> MessageRecord:
        """The record with this message id; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(thread_id, message_id))

    def range(self, thread_id: str, from_seq: int, to_seq: int) -> Records:
        """Raw records `from_seq` to `to_seq`, both included; what is not there yet is simply not returned."""
        return self._driver.read(self._inner.range(thread_id, from_seq, to_seq))

    def history(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """What the model should see: one branch's path, compaction folded, tool pairs intact.

        `upto` ends the path at a seq, or at a message (on that message's own branch, deleted or not). `limit` keeps
        the newest records that the view shows; what it hides does not count. Where the cut separates a call from its
        results, the results are left out as well.
        """
        return self._driver.read(self._inner.history(thread_id, branch=branch, upto=upto, limit=limit))

    def external(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """What an outsider may see of one branch's path: nothing internal, retracted or unanswered.

        `upto` and `limit` are those of `history`.
        """
        return self._driver.read(self._inner.external(thread_id, branch=branch, upto=upto, limit=limit))

    def path(
        self, thread_id: str, *, branch: int | str | None = None, upto: End | None = None, limit: int | None = None
    ) -> Records:
        """One branch as it was written, from its root on: nothing folded, nothing left out.

        Internal messages, retraction markers, unanswered calls and summaries are all there. `branch` is a number or a
        name, by default the current one; `upto` and `limit` are those of `history`. The answer holds every record
        that it names: of a long thread, ask for the newest by `limit`, or go through it with `page(view="raw")`.
        """
        return self._driver.read(self._inner.path(thread_id, branch=branch, upto=upto, limit=limit))

    def page(
        self, thread_id: str, *, branch: int | str | None = None, view: View = "external", before: End | None = None,
        limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[MessageRecord]:
        """One page of a branch, for people who scroll up: the newest page first, each in reading order (oldest first).

        `next_cursor` continues with older records; it is None exactly when the view shows none. A page is a slice of
        the view as it is now: hidden records do not count, and what is committed between two pages neither repeats
        nor skips a record.

        - `branch`: a number or a name, by default the current one. The cursor stays on it, whatever is switched.
        - `view`: `external` is what people may see, `history` what the model sees, `raw` everything.
        - `before`: begin before this seq, or before this message, which must be on the branch.
        - `limit`: 1 to 200 records. A page of `history` never separates a call from its results: it is shorter if it
          has to be, and longer only if a single such group does not fit.
        - `cursor`: the `next_cursor` of the page before, with the same other arguments; only `limit` may change.

        The cost follows the page, however long the branch is, with two exceptions. A page of `external` with tool
        calls also looks for retractions, and for missing results, among newer records. `history` is read from the
        end of the branch, because a later summary may replace what this page would show.
        """
        return self._driver.read(self._inner.page(
            thread_id, branch=branch, view=view, before=before, limit=limit, cursor=cursor
        ))

    def unfinished_calls(
        self, thread_id: str, *, branch: int | str | None = None, run_id: str | None = None
    ) -> UnfinishedCalls:
        """Tool calls on the path that no result answers: what recovery must look at (of one run, if given)."""
        return self._driver.read(self._inner.unfinished_calls(thread_id, branch=branch, run_id=run_id))

    def follow(
        self, thread_id: str, *, after_seq: int = 0, branch: int | str | None = None, view: FollowView = "raw",
        timeout: float | None = None
    ) -> Follower:
        """Records after a seq as they are committed: history first, then live, without gaps or repeats.

        Read it with `async for`. It ends when it is closed, from any task or thread, or by `timeout`. It raises
        `NotFoundError` when the thread or the branch is deleted, and `UnavailableError` when the store is closed.

        - `after_seq`: the last seq that you have; 0 begins with the first record.
        - `branch`: only records on this branch's path, those from before its fork point included. Without it, the
          records of all branches.
        - `view`: `raw` yields everything. `external` leaves out what is not for all, retraction markers included; it
          looks at each record alone, so a call comes as soon as it is committed, before its result.
        - `timeout`: end after this many seconds without a record. 0 ends with the last record that is there now.
        """
        return Follower(self._inner.follow(
            thread_id, after_seq=after_seq, branch=branch, view=view, timeout=timeout
        ), self._driver)


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

    def variants(self, thread_id: str, message_id: str) -> VariantList:
        """The messages written in the same place as this one, itself included, in the order of their commits.

        Two messages are variants of each other if they follow the same message, each on a branch of its own; the first
        messages of all roots are variants too. Those that only deleted branches lead to are left out, except the
        message that was asked about. The cost follows the number of branches and variants, not the history.
        """
        return self._driver.read(self._inner.variants(thread_id, message_id))

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


class Pending:
    """`store.pending`, blocking."""

    def __init__(self, inner: async_pending.Pending, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def list(self, thread_id: str) -> PendingQueue:
        """The pending messages in order, and the queue's revision."""
        return self._driver.read(self._inner.list(thread_id))

    def iter(self, thread_id: str) -> Iterator[PendingMessage]:
        """Every pending message of the list, one by one."""
        return self._driver.iterate(self._inner.iter(thread_id))

    def count(self, thread_id: str) -> int:
        """How many messages are pending; reads none of them."""
        return self._driver.read(self._inner.count(thread_id))

    def append(
        self, thread_id: str, messages: Sequence[Message], *, mode: DeliveryMode | None = None
    ) -> PendingMessages:
        """Add messages at the end of the queue; ids are minted when absent."""
        return self._driver.run(self._inner.append(thread_id, messages, mode=mode))

    def edit(
        self, thread_id: str, message_id: str, message: Message, *, mode: DeliveryMode | None = None,
        if_revision: int | None = None
    ) -> PendingMessage:
        """Replace a pending message (its id stays), and its mode if one is given."""
        return self._driver.run(self._inner.edit(thread_id, message_id, message, mode=mode, if_revision=if_revision))

    def retract(self, thread_id: str, message_id: str, *, if_revision: int | None = None) -> None:
        """Take a message back before it is read; the rest moves up."""
        return self._driver.run(self._inner.retract(thread_id, message_id, if_revision=if_revision))

    def reorder(self, thread_id: str, message_ids: Sequence[str], *, if_revision: int | None = None) -> PendingQueue:
        """Put the whole queue into this order: `message_ids` names every pending message once."""
        return self._driver.run(self._inner.reorder(thread_id, message_ids, if_revision=if_revision))

    @overload
    def freeze(
        self, thread_id: str, *, run: Run | RunChange | NewRun, **options: Unpack[FreezeOptions]
    ) -> RunReceipt: ...

    @overload
    def freeze(self, thread_id: str, *, run: None = None, **options: Unpack[FreezeOptions]) -> Receipt: ...

    def freeze(
        self, thread_id: str, *, boundary: str = "new_run", run: Run | RunChange | NewRun | None = None,
        messages: Sequence[Message] = (), mode: DeliveryMode | None = None, branch: int | str | None = None,
        expect: int | None = None, expect_ids: Sequence[str] | None = None, fence: int | None = None,
        key: str | None = None
    ) -> Receipt:
        """Move what this boundary takes from the queue into the log, with the run that consumes it, in one commit.

        It goes to `branch`, else to the run's, else to the current one. `messages` are appended to the queue first, in
        the same transaction. `expect_ids` are the pending ids the caller saw selected; another selection raises
        `SelectionConflict` and changes nothing. So does a new run for which nothing is selected: of two workers that
        race for one queue, the second learns that there is nothing left. A run that exists takes its step regardless.
        """
        return self._driver.run(self._inner.freeze(
            thread_id, boundary=boundary, run=run, messages=messages, mode=mode, branch=branch, expect=expect,
            expect_ids=expect_ids, fence=fence, key=key
        ))

    def threads(self, *, after: str | None = None, limit: int = limits.PAGE_DEFAULT) -> ThreadIds:
        """Ids of threads that have pending messages, ascending, after an id."""
        return self._driver.read(self._inner.threads(after=after, limit=limit))


class Runs:
    """`store.runs`, blocking."""

    def __init__(self, inner: async_runs.Runs, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def create(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A run that has not begun; takes the options of `start`. It becomes the thread's latest run."""
        return self._driver.run(self._inner.create(thread_id, agent_id, **options))

    def start(self, thread_id: str, agent_id: str, **options: Unpack[StartOptions]) -> Run:
        """A running run, with the messages it was given, in one commit.

        The options are those of `StartOptions`: `messages` is its input, `key` makes a retry safe, and so on.
        A missing thread is created, with what `thread` says of it (see `NewThread`); parent and resource come from the
        activation's trace where it says nothing. `if_idle=True` raises `ConflictError`, which names the run, if a run
        of the thread is running or waiting; of several such calls at the same time, one succeeds.
        """
        return self._driver.run(self._inner.start(thread_id, agent_id, **options))

    def find(self, run_id: str) -> Run | None:
        """The run, or None."""
        return self._driver.read(self._inner.find(run_id))

    def get(self, run_id: str) -> Run:
        """The run; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(run_id))

    def latest(self, thread_id: str) -> Run | None:
        """The thread's latest run: the one created, or changed while running, most recently; None if it has none."""
        return self._driver.read(self._inner.latest(thread_id))

    def list(
        self, *, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None, **filters: Unpack[RunFilters]
    ) -> Page[Run]:
        """Runs by creation, newest first: all, or those that every filter admits.

        - `thread_id`: runs of this thread.
        - `status`: `created`, `running`, `waiting` or `done`.
        - `agent_id`: runs of this agent.
        - `resource_id`: runs of threads that belong to this resource now. A run does not record it: the list reads the
          runs that the other filters admit and skips those of other resources, so give another filter where you can.
        - `order`: `desc`, or `asc` for oldest first.
        - `limit`, `cursor`: the size of a page, and where it begins.

        There is an index for a thread, for a thread with a status, for an agent and for a status. Other combinations
        read one of these and skip what the rest does not admit.
        """
        return self._driver.read(self._inner.list(limit=limit, cursor=cursor, **filters))

    def iter(self, **filters: Unpack[RunFilters]) -> Iterator[Run]:
        """Every run of the list, page by page; takes the filters and the order of `list`."""
        return self._driver.iterate(self._inner.iter(**filters))

    def with_prefix(self, prefix: str, *, limit: int = limits.PAGE_DEFAULT) -> RunRecords:
        """The runs whose ids start with `prefix`, in the order of their ids, at most `limit` (1 to 200).

        A run whose id equals the prefix comes first. Use it to look up an id that somebody abbreviated.
        """
        return self._driver.read(self._inner.with_prefix(prefix, limit=limit))


class State:
    """`store.state`, blocking."""

    def __init__(self, inner: async_state.State, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def find(self, thread_id: str, name: str, *, run_id: str | None = None) -> StateDoc | None:
        """The document, or None; raises `NotFoundError` if the thread does not exist."""
        return self._driver.read(self._inner.find(thread_id, name, run_id=run_id))

    def get(self, thread_id: str, name: str, *, run_id: str | None = None) -> StateDoc:
        """The document; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(thread_id, name, run_id=run_id))

    def list(self, thread_id: str, *, run_id: str | None = None) -> StateDocs:
        """Every document of the thread (or of the run), by name."""
        return self._driver.read(self._inner.list(thread_id, run_id=run_id))

    def iter(self, thread_id: str, *, run_id: str | None = None) -> Iterator[StateDoc]:
        """Every document of the list, one by one."""
        return self._driver.iterate(self._inner.iter(thread_id, run_id=run_id))

    def put(
        self, thread_id: str, name: str, value: Any, *, run_id: str | None = None, if_rev: int | None = None
    ) -> StateDoc:
        """Write a document; with `if_rev`, only over that very revision (0: only if there is none)."""
        return self._driver.run(self._inner.put(thread_id, name, value, run_id=run_id, if_rev=if_rev))

    def delete(self, thread_id: str, name: str, *, run_id: str | None = None, if_rev: int | None = None) -> None:
        """Remove a document; one that is not there is fine unless `if_rev` names it."""
        return self._driver.run(self._inner.delete(thread_id, name, run_id=run_id, if_rev=if_rev))


class Profiles:
    """`store.profiles`, blocking."""

    def __init__(self, inner: async_profiles.Profiles, driver: Driver) -> None:
        self._inner = inner
        self._driver = driver

    def find(self, owner: str, key: str) -> Profile | None:
        """The document, or None."""
        return self._driver.read(self._inner.find(owner, key))

    def get(self, owner: str, key: str) -> Profile:
        """The document; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(owner, key))

    def list(
        self, owner: str, *, prefix: str | None = None, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[Profile]:
        """The documents of an owner by key, all or those whose key begins with `prefix`.

        An owner without documents has an empty page. Keys are ordered by their UTF-8 bytes.
        """
        return self._driver.read(self._inner.list(owner, prefix=prefix, limit=limit, cursor=cursor))

    def iter(self, owner: str, *, prefix: str | None = None) -> Iterator[Profile]:
        """Every document of the list, page by page."""
        return self._driver.iterate(self._inner.iter(owner, prefix=prefix))

    def put(
        self, owner: str, key: str, value: Any, *, if_rev: int | None = None, ttl_ms: int | None = None
    ) -> Profile:
        """Write a document; the last writer wins, unless `if_rev` guards it.

        - `value`: any JSON value, or `Doc(value, schema)`.
        - `if_rev`: write only over that very revision (0: only if there is no document); else `VersionConflict`.
        - `ttl_ms`: how long the document lives from now on, by the engine's clock. Every put decides this anew: one
          without `ttl_ms` makes the document permanent.
        """
        return self._driver.run(self._inner.put(owner, key, value, if_rev=if_rev, ttl_ms=ttl_ms))

    def delete(self, owner: str, key: str, *, if_rev: int | None = None) -> None:
        """Remove a document; one that is not there is fine unless `if_rev` names it."""
        return self._driver.run(self._inner.delete(owner, key, if_rev=if_rev))

    def clear(self, owner: str) -> None:
        """Remove every document of an owner, some at a time; an owner that has none is fine.

        A document that another client writes meanwhile may stay. Interrupted, it can be called again.
        """
        return self._driver.run(self._inner.clear(owner))

    def follow(self, owner: str, *, prefix: str | None = None) -> Iterator[ProfileChange]:
        """The owner's documents, then every change of them as it happens, deletion and expiry included.

        Of several quick changes of one document only the newest may be seen; its final state always is. Each round
        reads all documents of the owner (or of the prefix), so give owners with thousands of them a prefix. It ends
        when the caller closes it.
        """
        return self._driver.iterate(self._inner.follow(owner, prefix=prefix))


class Store:
    """`perdure.Store`, blocking. Made by `perdure.sync.open`."""

    def __init__(self, inner: async_store.Store, driver: Driver, *, owner: bool = True) -> None:
        self._inner = inner
        self._driver = driver
        self._owner = owner
        self.threads: Threads = Threads(inner.threads, driver)
        self.messages: Messages = Messages(inner.messages, driver)
        self.branches: Branches = Branches(inner.branches, driver)
        self.pending: Pending = Pending(inner.pending, driver)
        self.runs: Runs = Runs(inner.runs, driver)
        self.state: State = State(inner.state, driver)
        self.profiles: Profiles = Profiles(inner.profiles, driver)

    @property
    def engine(self) -> Engine:
        """The engine below; for tools and tests."""
        return self._inner.engine

    @property
    def scope(self) -> str:
        """The tenant this store sees."""
        return self._inner.scope

    @overload
    def commit(
        self, thread_id: str, *, run: Run | RunChange | NewRun, **options: Unpack[CommitOptions]
    ) -> RunReceipt: ...

    @overload
    def commit(self, thread_id: str, *, run: None = None, **options: Unpack[CommitOptions]) -> Receipt: ...

    def commit(
        self, thread_id: str, *, messages: Sequence[Message] = (), run: Run | RunChange | NewRun | None = None,
        branch: int | str | None = None, expect: int | None = None, expect_head: str | None = None,
        fence: int | None = None, state: Mapping[str, Any] | None = None, run_state: Mapping[str, Any] | None = None,
        expect_state: Mapping[str, int | None] | None = None, thread: NewThread | None = None, key: str | None = None
    ) -> Receipt:
        """Make everything of one step durable, in one transaction, or nothing of it.

        A missing thread is created, unless the commit presumes that it exists: by an existing run, a fence, an
        `expect` above 0, an `expect_head`, a rev in `expect_state`, or a branch other than 0.

        - `messages`: appended to the branch, in order. Ids are minted where they are None.
        - `run`: `NewRun(agent_id=…)` creates a run; a change such as `run.step()` or `run.finish()` moves one; a `Run`
          as it was read only guards that it has not changed. Messages without a producer get this run.
        - `branch`: the branch to append to, by number or name. By default the run's, else the current one.
        - `expect`: the thread's version; another one raises `VersionConflict`.
        - `expect_head`: the id of the branch's last message; another one raises `VersionConflict`.
        - `fence`: the number of the caller's claim. A lower one than the thread has seen raises `StaleClaim`: another
          worker has taken over.
        - `state`: documents of the thread to write, by name: a JSON value, `Doc(value, schema)`, or `REMOVE`.
        - `run_state`: the same for documents of the run.
        - `expect_state`: the rev of each of these documents of the thread. None: the document must not exist yet, and
          this commit must write it. Another rev raises `VersionConflict`.
        - `thread`: what the thread is created with, if this commit creates it: title, resource, parent, metadata. One
          that exists is left as it is. What it says wins over the trace of a new run's activation.
        - `key`: makes a retry safe. The same key with the same content has one effect, and returns the first receipt
          for a week; with other content it raises `KeyReused`. After a timeout, a cancellation or `OutcomeUnknown`,
          repeat the call with the same key.

        Returns a `Receipt`; with `run`, a `RunReceipt`, whose `run` is never None.

        Nothing is written if it raises, except after `OutcomeUnknown`: then the commit may have been made.
        """
        return self._driver.run(self._inner.commit(
            thread_id, messages=messages, run=run, branch=branch, expect=expect, expect_head=expect_head, fence=fence,
            state=state, run_state=run_state, expect_state=expect_state, thread=thread, key=key
        ))

    def buffered(
        self, thread_id: str, *, most: int = 10, every_ms: int = 1000, run: Run | None = None,
        branch: int | str | None = None, fence: int | None = None
    ) -> BufferedWriter:
        """A writer that commits messages a few at a time: `async with store.buffered("t-1") as writer: …`.

        Its `append` returns **before the messages are durable**; `flush`, and leaving the block, make them so. It
        flushes in the background, each time as one keyed commit, and keeps the order.

        - `most`: flush when so many messages wait.
        - `every_ms`: flush so many milliseconds after the first of them was appended.
        - `run`: the run that produces the messages. It must not be moved before the last flush: a flush is then refused
          with `VersionConflict`.
        - `branch`: the branch to append to, by number or name; by default the run's, else the one that is current at
          the time of each flush.
        - `fence`: the number of the caller's claim, as in `commit`.

        A flush in the background that fails raises its error at the next `append`, `flush` or at the end of the block.
        """
        writer = self._inner.buffered(
            thread_id, most=most, every_ms=every_ms, run=run, branch=branch, fence=fence
        )
        return BufferedWriter(writer.buffer, self._driver)

    def load(self, thread_id: str, *, branch: int | str | None = None) -> Snapshot:
        """A thread, its branch, history, latest run and state, all from one snapshot."""
        return self._driver.read(self._inner.load(thread_id, branch=branch))

    def health(self) -> Health:
        """The engine's real settings, read now, and what weakens its promises."""
        return self._driver.read(self._inner.health())

    def sweep(self) -> None:
        """Do this scope's housekeeping now, and return when it is done.

        Finishes interrupted deletions, removes what abandoned imports left behind, and drops expired keys and
        tombstones. An open store does the same in the background.
        """
        return self._driver.run(self._inner.sweep())

    def capabilities(self) -> Capabilities:
        """What the engine below can do."""
        return self._inner.capabilities()

    def scoped(self, scope: str) -> Store:
        """The same connections, seen as another tenant. Closing it closes nothing."""
        return Store(self._inner.scoped(scope), self._driver, owner=False)

    def close(self) -> None:
        """Finish what was submitted and let everything go; idempotent, and nothing at all in a forked child."""
        if self._owner and self._driver.alive:
            try:
                self._driver.run(self._inner.close())
            finally:
                self._driver.close()

    def __repr__(self) -> str:
        return repr(self._inner).replace("perdure.Store", "perdure.sync.Store", 1)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
