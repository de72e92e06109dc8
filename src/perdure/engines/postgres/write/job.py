"""A transaction on its path through the writer, with the future that its caller awaits."""

from __future__ import annotations

import asyncio

from perdure.engines.postgres.write.transaction import Transaction
from perdure.kernel.ops import Applied


class Job:
    """One submitted transaction. `solo`: it does not share a statement. `retried`: it was in a statement that was
    refused. `queued`: it is in the queues of its rows, behind `blockers` other jobs."""

    __slots__ = ("blockers", "future", "queued", "retried", "solo", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.solo = False
        self.retried = False
        self.queued = False
        self.blockers = 0

    def finish(self, applied: Applied) -> None:
        """Resolve the future, unless the caller cancelled it: a statement that was sent is not undone."""
        if not self.future.done():
            self.future.set_result(applied)

    def fail(self, error: BaseException) -> None:
        """Fail the future, unless the caller cancelled it."""
        if not self.future.done():
            self.future.set_exception(error)
