"""Runs transactions: two packets each, and again from the start when the server says that others were in the way.

Deadlocks, lock waits and races for an absent key certainly left nothing behind, so they are retried here, within
bounds, and callers never see them. A connection lost before the packet with the COMMIT was sent has written nothing
either; lost after that, the outcome is unknown, and is never guessed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.clock import system_clock
from perdure.engines.mysql.connections.connection import LOCK_WAIT_SECONDS, Rows, Wire
from perdure.engines.mysql.connections.literals import equal, literal
from perdure.engines.mysql.connections.permits import Use
from perdure.engines.mysql.connections.pool import RECONNECTS, Pool
from perdure.engines.mysql.errors import (
    DRIVER_ERRORS,
    DUPLICATE,
    LOCK_WAIT,
    code_of,
    lost,
    stayed_locked,
    translate,
    undone,
    unknown_outcome,
)
from perdure.engines.mysql.read.queries import SERVER_CLOCK, Queries
from perdure.engines.mysql.schema import quote
from perdure.engines.mysql.write.transaction import Transaction
from perdure.errors import InvalidError, UnavailableError
from perdure.ids import new_rev
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Applied, Op, Row, Scan, Taken
from perdure.kernel.schema import Schema, Table
from perdure.kernel.semantics import evaluate

ATTEMPTS = 200
_LONGEST_PAUSE = 0.05
_PACKET_MARGIN = 64 * 1024


class Again(Exception):
    """The transaction left nothing behind and must be run again."""


class _Patience:
    """What one transaction has put up with: waits for locks, for `seconds` altogether, and dead connections."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.dead = 0
        self._waits = 0
        self._deadline = asyncio.get_running_loop().time() + seconds

    def ends_with_this_wait(self) -> bool:
        """Count a wait for a lock; true when it was the last. Time spent in the queue for a connection counts too."""
        self._waits += 1
        waited = self._waits * LOCK_WAIT_SECONDS
        return waited >= self.seconds or asyncio.get_running_loop().time() >= self._deadline


class Writer:
    """Applies transactions and takes."""

    def __init__(self, schema: Schema, pool: Pool, queries: Queries) -> None:
        self._schema = schema
        self._pool = pool
        self._queries = queries
        self._where = pool.target.shown
        self.retried = 0

    async def transact(self, scope: str, ops: Sequence[Op]) -> Applied:
        """Apply all or none."""
        transaction = Transaction(self._schema, scope, new_rev(), ops)

        async def once(wire: Wire) -> Applied:
            await self._prepare(wire, transaction)
            await self._commit(wire, transaction)
            return Applied(transaction.rev, transaction.seqs, transaction.now)

        applied: Applied = await self._persist(once)
        return applied

    async def _persist(self, once: Any) -> Any:
        """Run `once` on a connection until it has an outcome."""
        patience = _Patience(self._pool.target.command_timeout)
        use: Use = "write"
        for attempt in range(ATTEMPTS):
            wire = await self._pool.acquire(use)
            try:
                return await once(wire)
            except Again:
                pass
            except DRIVER_ERRORS as error:
                # Only errors that surely left nothing behind come here.
                self._judge(error, patience)
                if code_of(error) == LOCK_WAIT:
                    use = "retry"
            except UnicodeEncodeError as error:
                raise InvalidError(
                    "text with half a surrogate pair cannot be stored", hint="repair the text"
                ) from error
            finally:
                # Whatever else went wrong between the packets, a connection with an open transaction is not kept.
                self._pool.release(wire)
            self.retried += 1
            await asyncio.sleep(random.random() * min(_LONGEST_PAUSE, 0.001 * attempt))
        raise UnavailableError(f"{self._where}: a transaction lost {ATTEMPTS} races in a row", hint="retry")

    def _judge(self, error: Exception, patience: _Patience) -> None:
        """Raise what a failed attempt means to the caller, unless another may succeed."""
        if code_of(error) == LOCK_WAIT:
            if patience.ends_with_this_wait():
                raise stayed_locked(error, self._where, patience.seconds) from error
        elif lost(error):
            patience.dead += 1
            if patience.dead > RECONNECTS or isinstance(error, TimeoutError):
                raise translate(error, self._where) from error
            self._pool.forget_idle()
        elif not undone(error):
            raise translate(error, self._where) from error

    async def _prepare(self, wire: Wire, transaction: Transaction) -> None:
        """Lock, read, decide. Whatever fails here has written nothing."""
        try:
            answers, now = await self._locked(wire, transaction.locking())
            transaction.decide(answers, now)
        except (Conflict, *DRIVER_ERRORS):  # type: ignore[misc]
            await wire.undo()
            raise

    async def _locked(self, wire: Wire, sql: str) -> tuple[list[Rows], int]:
        """The answers to locking reads, and the clock after the last lock was granted."""
        clock = self._queries.clock
        if clock is not system_clock:
            return await wire.run(sql), clock()
        *answers, ((now,),) = await wire.run(f"{sql};{SERVER_CLOCK}")
        return answers, now

    async def _commit(self, wire: Wire, transaction: Transaction) -> None:
        *ahead, last = _packets(transaction.writing(), wire.packet_bytes - _PACKET_MARGIN)
        if wire.closed:
            wire.abort()
            raise Again  # hung up on before anything was written
        try:
            for packet in ahead:
                await wire.run(";".join(packet))
        except DRIVER_ERRORS as error:
            await self._refused(wire, transaction, error)
        try:
            await wire.run(";".join(last))
        except DRIVER_ERRORS as error:
            if wire.broken or (wire.answered == len(last) - 1 and not undone(error)):
                raise unknown_outcome(error, transaction.rev) from error
            await self._refused(wire, transaction, error)

    async def _refused(self, wire: Wire, transaction: Transaction, error: Exception) -> None:
        """A statement before the COMMIT failed: nothing landed. Find out whether to conflict or to try again."""
        if code_of(error) != DUPLICATE:
            await wire.undo()
            raise error
        owners = transaction.owners()
        found = await wire.run(";".join([*[sql for _, sql in owners], "ROLLBACK"]))
        for (conflict, _), rows in zip(owners, found, strict=True):
            if rows:
                raise conflict
        raise Again

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any]) -> Taken:
        """Select and update the first rows that nobody else holds."""
        rev = new_rev()
        table = self._queries.tables[scan.table]
        select = f"START TRANSACTION;{table.scan(scope, scan, scan.eq)} FOR UPDATE SKIP LOCKED"

        async def once(wire: Wire) -> Taken:
            try:
                (found,), now = await self._locked(wire, select)
                rows = table.rows(found)
                taken = [_changed(row, changes, rev, now) for row in rows]
            except DRIVER_ERRORS:
                await wire.undo()
                raise
            await self._finish_take(wire, [_update(table.table, scope, row, changes) for row in taken], rev)
            return Taken(taken, now)

        taken: Taken = await self._persist(once)
        return taken

    async def _finish_take(self, wire: Wire, updates: list[str], rev: int) -> None:
        try:
            await wire.run(";".join([*updates, "COMMIT"]))
        except DRIVER_ERRORS as error:
            if updates and (wire.broken or (wire.answered == len(updates) and not undone(error))):
                raise unknown_outcome(error, rev) from error
            await wire.undo()
            raise


def _update(table: Table, scope: str, row: Row, changes: Mapping[str, Any]) -> str:
    parts = [f"`rev` = {row.rev}", *[f"{quote(name)} = {literal(row[name])}" for name in changes]]
    where = equal(("scope", *table.key_names), (scope, *row.key))
    return f"UPDATE {quote(table.name)} SET {', '.join(parts)} WHERE {where}"


def _changed(row: Row, changes: Mapping[str, Any], rev: int, now: int) -> Row:
    columns = {**row.columns, **{name: evaluate(value, row[name], now, {}) for name, value in changes.items()}}
    return Row(row.key, tuple(columns.values()), rev, row.body, row.place)


def _packets(statements: Iterable[str], most: int) -> list[list[str]]:
    """The statements and the COMMIT in as few packets as the server's limit allows."""
    packets: list[list[str]] = [[]]
    size = 0
    for statement in statements:
        length = len(statement) if statement.isascii() else len(statement.encode())
        if packets[-1] and size + length > most:
            packets.append([])
            size = 0
        packets[-1].append(statement)
        size += length + 1
    packets[-1].append("COMMIT")
    return packets
