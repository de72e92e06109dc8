"""What `commit` returns (`Receipt`) and what `load` returns (`Snapshot`)."""

from __future__ import annotations

from typing import Literal

from perdure.model.branch import Branch
from perdure.model.message import MessageRecord
from perdure.model.record import Record
from perdure.model.run import Run
from perdure.model.state import StateDoc
from perdure.model.thread import Thread


class Receipt(Record, frozen=True, kw_only=True, gc=False):
    """Proof of a commit."""

    thread_id: str
    """The thread that was written to."""
    version: int | None
    """The thread's message count after the commit; None if it carried no messages."""
    message_ids: list[str]
    """Ids of the committed messages, minted ones included, in order."""
    seqs: list[int]
    """Their seqs in the thread's log, in the same order."""
    run: Run | None
    """The run as this commit left it: build the next change on it. None if it named none."""
    durable: Literal["none", "process", "power"]
    """What the commit survives: `power` loss, the end of the `process`, or `none` of both."""
    replayed: bool
    """True if its key was committed before: this is the first receipt, and nothing was written now."""
    at: int
    """The engine's time of the commit, in milliseconds."""


class RunReceipt(Receipt, frozen=True, kw_only=True, gc=False):
    """The receipt of a commit that named a run: its `run` is never None."""

    run: Run
    """The run as this commit left it: build the next change on it."""


class Snapshot(Record, frozen=True, kw_only=True, gc=False):
    """Everything an agent needs to resume, from one moment."""

    thread: Thread
    """The thread."""
    branch: Branch
    """The branch that was asked for, or the current one."""
    messages: list[MessageRecord]
    """The history of that branch, as the model should see it."""
    version: int
    """The thread's version: pass it as `expect` to commit only if nothing was added since."""
    run: Run | None
    """The thread's latest run, or None."""
    state: dict[str, StateDoc]
    """The thread's state documents, by name."""
    run_state: dict[str, StateDoc]
    """The state documents of that run, by name."""
