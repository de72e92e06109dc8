"""Runs jobs on a connection: one statement and one round trip for a batch or for a single transaction.

Outcomes are never guessed. A refused statement left nothing behind. A statement whose answer was lost is an
`OutcomeUnknown` for each of its jobs and is never sent again. A batch that was refused for any reason is handed back,
and its jobs run again one by one, so that no job fails because of another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.errors import (
    DRIVER_ERRORS,
    code_of,
    lost,
    readable,
    translate,
    unknown_outcome,
    unreadable,
)
from perdure.engines.postgres.schema.clock import StampClock
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.postgres.write.batch_statement import BatchStatements
from perdure.engines.postgres.write.conflicts import LOCKED, REFUSALS, RETRIED, conflict, observed_time, overtaken
from perdure.engines.postgres.write.filled_transaction import FilledTransaction, Plans
from perdure.engines.postgres.write.job import Job
from perdure.engines.postgres.write.operation_sql import OperationSql
from perdure.engines.postgres.write.solo_statement import solo_statement
from perdure.engines.postgres.write.stepwise import stepwise_statement
from perdure.engines.postgres.write.transaction import Transaction
from perdure.engines.shared.server_answers import NONSENSE
from perdure.kernel.ops import Applied

_ATTEMPTS = 10
_LOCK_WAITS = 60
"""How often a solo transaction waits for `lock_timeout` before it fails."""


class Executor:
    """Executes batches of jobs and resolves their futures."""

    def __init__(self, pool: Pool, layout: Layout, clock: StampClock, plans: Plans) -> None:
        self._pool = pool
        self._schema = layout.schema
        self._clock = clock
        self._plans = plans
        self._sql = OperationSql(layout)
        self._batches = BatchStatements(self._sql)

    async def run(self, batch: list[Job]) -> list[Job]:
        """Run jobs in one statement; returns those that have to run again, each solo."""
        job = batch[0]
        if len(batch) > 1 or (job.transaction.form.bulk and not job.retried):
            return await self._run_batch(batch)
        attempts, waits = 0, 0
        while True:
            try:
                transaction = job.transaction
                if isinstance(transaction, FilledTransaction):
                    job.finish(await self._run_filled(transaction))
                else:
                    job.finish(await self._run_solo(transaction))
                return []
            except DRIVER_ERRORS as error:
                self._spell_out(batch)
                code = code_of(error)
                if code == LOCKED and not job.solo:
                    return batch
                if code == LOCKED and waits < _LOCK_WAITS:
                    waits += 1
                    self._pool.log.retried("lock wait", waits)
                    continue
                attempts += 1
                if self._is_final(job, error, last=attempts == _ATTEMPTS):
                    return []
                self._pool.log.retried(type(error).__name__, attempts)
            await asyncio.sleep(random.uniform(0.0, 0.002) * 2**attempts)

    def _spell_out(self, batch: list[Job]) -> None:
        """Continue with the operations of filled transactions: they say what was refused."""
        for job in batch:
            if isinstance(job.transaction, FilledTransaction):
                job.transaction = self._plans.as_operations(job.transaction)

    def _is_final(self, job: Job, error: BaseException, *, last: bool) -> bool:
        """Fail a job whose statement failed, unless the same statement may well succeed."""
        code = code_of(error)
        if code in REFUSALS and isinstance(job.transaction, Transaction):
            refusal = conflict(error, job.transaction, self._schema)
            now = self._clock.now()
            if overtaken(refusal, observed_time(error) if now is None else now) and not last:
                return False
            job.fail(refusal)
        elif lost(error):
            job.fail(unknown_outcome(error, job.transaction.rev))
        elif code in RETRIED and not last:
            return False
        else:
            raise translate(error, self._pool.where) from error
        return True

    async def _run_solo(self, transaction: Transaction) -> Applied:
        steps = transaction.form.stepwise or transaction.form.bulk
        statement = stepwise_statement if steps else solo_statement
        rows = await self._pool.run(*statement(self._sql, transaction, self._clock.now()))
        with readable():
            ((now, *lasts),) = rows
            if steps:
                (lasts,) = lasts  # the function returns all of them as one array
            return _applied(transaction, now, lasts)

    async def _run_filled(self, transaction: FilledTransaction) -> Applied:
        clock = self._clock.now()
        head = [transaction.scope, transaction.rev] if clock is None else [transaction.scope, transaction.rev, clock]
        sql, arguments = transaction.plan.solo(self._sql, transaction.filled, head, bound_clock=clock is not None)
        rows = await self._pool.run(sql, arguments)
        try:
            ((now, *lasts),) = rows
            return applied_filled(transaction, now, lasts[0] if lasts else None)
        except NONSENSE as error:
            raise unreadable(error) from error

    async def _run_batch(self, batch: list[Job]) -> list[Job]:
        # All of a batch are filled, or none is.
        if isinstance(batch[0].transaction, FilledTransaction):
            batch.sort(key=_partition)
        filled = [job.transaction for job in batch if isinstance(job.transaction, FilledTransaction)]
        try:
            if filled:
                results = await self._run_filled_batch(filled)
            else:
                results = await self._run_operations([job.transaction for job in batch])
        except DRIVER_ERRORS as error:
            if not lost(error):
                self._spell_out(batch)
                return batch
            for job in batch:
                job.fail(unknown_outcome(error, job.transaction.rev))
            return []
        for job, applied in zip(batch, results, strict=True):
            job.finish(applied)
        return []

    async def _run_operations(self, transactions: list[Any]) -> list[Applied]:
        sql, arguments, ranks = self._batches.build(transactions, self._clock.now())
        rows = await self._pool.run(sql, arguments, tuned=True)
        with readable():
            ((now, *heads),) = rows
            results = []
            for number, transaction in enumerate(transactions):
                lasts = [seqs[ranks[log][number] - 1] for log, seqs in zip(ranks, heads, strict=True)]
                results.append(_applied(transaction, now, lasts))
            return results

    async def _run_filled_batch(self, transactions: list[FilledTransaction]) -> list[Applied]:
        statement = self._batches.build_filled(transactions, self._clock.now())
        if statement is None:
            return await self._run_operations([self._plans.as_operations(each) for each in transactions])
        rows = await self._pool.run(*statement, tuned=True)
        with readable():
            ((now, *heads),) = rows
            lasts = heads[0] if heads else [None] * len(transactions)
            return [applied_filled(each, now, last) for each, last in zip(transactions, lasts, strict=True)]


def _partition(job: Job) -> Any:
    transaction: Any = job.transaction
    return transaction.scope, transaction.filled.values[transaction.plan.partition]


def applied_filled(transaction: FilledTransaction, now: Any, last: Any) -> Applied:
    """The result of a filled transaction; `last` is the last seq of its append."""
    plan = transaction.plan
    append = plan.append
    if type(now) is not int or (append is not None and type(last) is not int):
        raise TypeError("numbers were expected")
    if append is None:
        return Applied(transaction.rev, {}, now)
    return Applied(transaction.rev, {(append.owner, transaction.filled.values[plan.partition]): last}, now)


def _applied(transaction: Transaction, now: Any, lasts: Sequence[Any]) -> Applied:
    """The result of a transaction; `lasts` are the last seqs of its appends."""
    if set(map(type, (now, *lasts))) != {int}:
        raise TypeError("numbers were expected")
    ops = [transaction.members[position].op for position in transaction.form.appends]
    return Applied(transaction.rev, {(op.log, op.partition): last for op, last in zip(ops, lasts, strict=True)}, now)
