"""A transaction on its path through the writer, with the future that its caller awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from perdure.engines.postgres.write.filled_transaction import FilledTransaction
from perdure.engines.postgres.write.transaction import RowName, Transaction
from perdure.kernel.ops import Applied


class Job(msgspec.Struct, eq=False):
    """One submitted transaction. `solo`: it does not share a statement. `retried`: it was in a statement that was
    refused. `queued`: it is in the queues of its rows, which `names` holds, behind `blockers` other jobs. A filled
    transaction that is spelled out as operations stays in the queues that it is in."""

    transaction: Transaction | FilledTransaction
    future: asyncio.Future[Applied]
    names: Sequence[RowName]
    solo: bool = False
    retried: bool = False
    queued: bool = False
    blockers: int = 0

    def finish(self, applied: Applied) -> None:
        """Resolve the future, unless the caller cancelled it: a statement that was sent is not undone."""
        if not self.future.done():
            self.future.set_result(applied)

    def fail(self, error: BaseException) -> None:
        """Fail the future, unless the caller cancelled it."""
        if not self.future.done():
            self.future.set_exception(error)
