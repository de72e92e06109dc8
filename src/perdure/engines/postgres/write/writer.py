"""The write path: a transaction becomes one statement and one round trip, alone or together with others of its shape.

Outcomes are never guessed. What the server refused left nothing behind; a statement whose answer was lost is an
`OutcomeUnknown` for every member and is never sent again; a batch that was refused for whatever reason is run again
member by member, so that nobody fails for a neighbour. Statements for many run in tasks of their own: a caller that is
cancelled stops waiting, and the statement goes on. A lone caller's statement runs in its task: when that is cancelled
the connection is given up, and what was sent lands whole or not at all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from perdure.clock import Clock, system_clock
from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.errors import DRIVER_ERRORS, code_of, lost, translate, unknown_outcome, unreadable
from perdure.engines.postgres.schema.tables import SERVER_CLOCK, Layout, quote
from perdure.engines.postgres.write.batching import Job, Queue
from perdure.engines.postgres.write.conflicts import LOCKED, REFUSALS, RETRIED, conflict, overtaken
from perdure.engines.postgres.write.single_statement import Plans
from perdure.engines.postgres.write.stepwise import Script
from perdure.engines.postgres.write.transaction import Forms, Transaction
from perdure.engines.shared.server_answers import NONSENSE
from perdure.ids import new_rev
from perdure.kernel.ops import Applied, Op

_ATTEMPTS = 10
_LOCK_WAITS = 60
"""How often a transaction on its own waits for `lock_timeout` before it is given up."""
_KEPT_FOR_READERS = 3


class Writer:
    """Writes for one engine, on one event loop. With the system's clock the time is the server's."""

    def __init__(self, pool: Pool, layout: Layout, clock: Clock = system_clock) -> None:
        self.clock = clock
        self._pool = pool
        self._schema = layout.schema
        self._layout = layout
        self._plans = Plans(layout)
        self._forms = Forms(layout.schema)
        self._loop = asyncio.get_running_loop()
        self._queue = Queue(self._run, pool.size - _KEPT_FOR_READERS)
        self._carry_out = f'{quote(layout.place)}."carry_out"'

    async def transact(self, scope: str, ops: Sequence[Op]) -> Applied:
        """Apply all operations or none; raises `Conflict`."""
        transaction = self._forms.take_apart(scope, new_rev(), ops)
        return await self._queue.perform(Job(transaction, self._loop.create_future()))

    async def close(self) -> None:
        """Finish what was submitted."""
        await self._queue.drain()

    def now(self) -> int | None:
        """The time that a test gave, or None: the server's."""
        return None if self.clock is system_clock else self.clock()

    async def _run(self, batch: list[Job]) -> list[Job]:
        job = batch[0]
        transaction = job.transaction
        if len(batch) > 1 or (transaction.form.large and not job.refused):
            return await self._run_together(batch)
        attempts, waits = 0, 0
        while True:
            try:
                job.finish(await self._run_alone(transaction))
                return []
            except DRIVER_ERRORS as error:
                code = code_of(error)
                if code == LOCKED and not job.alone:
                    return batch
                if code == LOCKED and waits < _LOCK_WAITS:
                    waits += 1
                    continue
                attempts += 1
                if self._is_final(job, error, last=attempts == _ATTEMPTS):
                    return []
            await asyncio.sleep(random.uniform(0.0, 0.002) * 2**attempts)

    def _is_final(self, job: Job, error: BaseException, *, last: bool) -> bool:
        """Answer a job whose statement failed, unless the same again may well succeed."""
        code = code_of(error)
        if code in REFUSALS:
            refusal = conflict(error, job.transaction, self._schema)
            if overtaken(refusal) and not last:
                return False
            job.fail(refusal)
        elif lost(error):
            job.fail(unknown_outcome(error, job.transaction.rev))
        elif code in RETRIED and not last:
            return False
        else:
            raise translate(error, self._pool.where) from error
        return True

    async def _run_alone(self, transaction: Transaction) -> Applied:
        clock = self.now()
        if transaction.form.careful or transaction.form.large:
            return await self._run_steps(transaction, clock)
        plan, arguments = self._plans.alone(transaction, clock)
        rows = await self._pool.run(plan.sql, arguments)
        with _readable():
            ((now, *lasts),) = rows
            return _applied(transaction, now, plan.logs, lasts)

    async def _run_steps(self, transaction: Transaction, clock: int | None) -> Applied:
        script = Script(self._layout, self._plans.rows, transaction)
        time = "$3::bigint" if clock is not None else SERVER_CLOCK
        first = 3 if clock is None else 4
        steps = f"${first}::text::jsonb, ${first + 1}::text[]"
        sql = f"SELECT {time}, {self._carry_out}($1::text, $2::bigint, {time}, {steps})"
        given: list[Any] = [transaction.scope, transaction.rev, *([] if clock is None else [clock])]
        rows = await self._pool.run(sql, [*given, msgspec.json.encode(script.steps).decode(), script.given])
        with _readable():
            ((now, lasts),) = rows
            return _applied(transaction, now, script.appended, lasts)

    async def _run_together(self, batch: list[Job]) -> list[Job]:
        transactions = [job.transaction for job in batch]
        plan, arguments, ranks = self._plans.together(transactions, self.now())
        try:
            rows = await self._pool.run(plan.sql, arguments, tuned=True)
            with _readable():
                ((now, *heads),) = rows
                done = [
                    _applied(
                        transaction,
                        now,
                        [transaction.form.lasts[log] for log in plan.logs],
                        [lasts[ranks[log][who] - 1] for log, lasts in zip(plan.logs, heads, strict=True)],
                    )
                    for who, transaction in enumerate(transactions)
                ]
        except DRIVER_ERRORS as error:
            if not lost(error):
                return batch
            for job in batch:
                job.fail(unknown_outcome(error, job.transaction.rev))
            return []
        for job, applied in zip(batch, done, strict=True):
            job.finish(applied)
        return []


@contextmanager
def _readable() -> Iterator[None]:
    """An answer to a commit that has another shape than the question says as little as none."""
    try:
        yield
    except NONSENSE as error:
        raise unreadable(error) from error


def _applied(transaction: Transaction, now: Any, ops: Sequence[int], lasts: Sequence[Any]) -> Applied:
    """What became of a transaction: the time, and the last seq of the partition that each of `ops` appended to."""
    if not all(type(number) is int for number in (now, *lasts)):
        raise TypeError("numbers were expected")
    seqs = {_partition(transaction, at): last for at, last in zip(ops, lasts, strict=True)}
    return Applied(transaction.rev, seqs, now)


def _partition(transaction: Transaction, at: int) -> tuple[str, str]:
    op = transaction.members[at].op
    return op.log, op.partition
