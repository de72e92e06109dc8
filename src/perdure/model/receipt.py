"""What a commit gives back, and what a load gives: proof and picture."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.model.branch import Branch
from perdure.model.message import MessageRecord
from perdure.model.run import Run
from perdure.model.state import StateDoc
from perdure.model.thread import Thread


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Proof of a commit. `version` is the thread's message count after it (None if it carried no messages);
    `durable` says what the commit survives; `replayed` is True when its key had been committed before."""

    thread_id: str
    version: int | None
    message_ids: list[str]
    seqs: list[int]
    run: Run | None
    durable: Literal["none", "process", "power"]
    replayed: bool
    at: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A thread as one snapshot saw it: everything an agent needs to go on."""

    thread: Thread
    branch: Branch
    messages: list[MessageRecord]
    version: int
    run: Run | None
    state: dict[str, StateDoc]
    run_state: dict[str, StateDoc]
