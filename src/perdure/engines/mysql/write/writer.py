"""Runs transactions: two packets each, and again from the start when they lost against others.

Deadlocks, lock waits and races for an absent key certainly left nothing behind, so they are retried here, within
bounds, and callers never see them. A connection lost before the packet with the COMMIT was sent has written nothing
either; lost after that, the outcome is unknown, and is never guessed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from perdure.clock import system_clock
from perdure.engines.mysql import errors
from perdure.engines.mysql.connections.connect import LOCK_WAIT_SECONDS
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.driver import Rows
from perdure.engines.mysql.connections.literals import equal, literal
from perdure.engines.mysql.connections.permits import Use
from perdure.engines.mysql.connections.pool import RECONNECTS, Pool
from perdure.engines.mysql.read.queries import SERVER_CLOCK, Queries
from perdure.engines.mysql.schema import quote
from perdure.engines.mysql.write.transaction import Transaction
from perdure.engines.shared.decisions import Moment, updated_row
from perdure.errors import InvalidError, OutcomeUnknown, UnavailableError
from perdure.ids import new_rev
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import Applied, Op, Row, Scan, Taken
from perdure.kernel.schema import Schema, Table
from perdure.kernel.semantics import scan_at

T = TypeVar("T")
ATTEMPTS = 200
_LONGEST_PAUSE = 0.05
_PACKET_MARGIN = 64 * 1024


class Again(Exception):
    """The transaction left nothing behind and must run again."""


class _Patience:
    """How long one transaction has waited for locks, of `seconds` in total, and how many dead connections it met."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.dead = 0
        self._waits = 0
        self._deadline = asyncio.get_running_loop().time() + seconds

    def ends_with_this_wait(self) -> bool:
        """Count a wait for a lock; True when it was the last. Time in the queue for a connection counts too."""
        self._waits += 1
        waited = self._waits * LOCK_WAIT_SECONDS
        return waited >= self.seconds or asyncio.get_running_loop().time() >= self._deadline


class Writer:
    """Applies transactions and takes."""

    def __init__(self, schema: Schema, pool: Pool, queries: Queries) -> None:
        self._schema = schema
        self._pool = pool
        self._queries = queries
        self._where = pool.target.display_url
        self.retried = 0

    async def transact(self, scope: str, ops: Sequence[Op]) -> Applied:
        """Apply all or none."""
        transaction = Transaction(self._schema, scope, new_rev(), ops)

        async def attempt(connection: Connection) -> Applied:
            await self._prepare(connection, transaction)
            await self._commit(connection, transaction)
            return Applied(transaction.rev, transaction.seqs, transaction.now)

        return await self._retry(attempt)

    async def _retry(self, attempt: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `attempt` on a connection until it has an outcome."""
        patience = _Patience(self._pool.target.command_timeout)
        use: Use = "write"
        for number in range(ATTEMPTS):
            connection = await self._pool.acquire(use)
            try:
                return await attempt(connection)
            except Again:
                self._pool.log.retried("lost a race for a key", number + 1)
            except OutcomeUnknown as unknown:
                self._pool.log.lost(unknown.__cause__)
                raise
            except errors.DRIVER_ERRORS as error:
                # Only errors that certainly left nothing behind come here.
                self._judge(error, patience)
                self._pool.log.retried(f"error {errors.code_of(error)}", number + 1)
                if errors.code_of(error) == errors.LOCK_WAIT:
                    use = "retry"
            except UnicodeEncodeError as error:
                raise InvalidError("text with half a surrogate pair cannot be stored", hint="fix the text") from error
            finally:
                # If anything else went wrong between the packets, `release` drops the connection with its transaction.
                self._pool.release(connection)
            self.retried += 1
            await asyncio.sleep(random.random() * min(_LONGEST_PAUSE, 0.001 * number))
        raise UnavailableError(
            f"{self._where}: a transaction lost against others {ATTEMPTS} times in a row", hint="retry"
        )

    def _judge(self, error: Exception, patience: _Patience) -> None:
        """Raise what a failed attempt means to the caller, unless another may succeed."""
        if errors.code_of(error) == errors.LOCK_WAIT:
            if patience.ends_with_this_wait():
                raise errors.stayed_locked(error, self._where, patience.seconds) from error
        elif errors.lost(error):
            self._pool.log.lost(error)
            patience.dead += 1
            if patience.dead > RECONNECTS or isinstance(error, TimeoutError):
                raise errors.translate(error, self._where) from error
            self._pool.drop_idle()
        elif not errors.undone(error):
            raise errors.translate(error, self._where) from error

    async def _prepare(self, connection: Connection, transaction: Transaction) -> None:
        """Lock, read, decide. Whatever fails here has written nothing."""
        try:
            results, now = await self._lock(connection, transaction.locking())
            transaction.decide(results, now)
        except (Conflict, *errors.DRIVER_ERRORS):  # type: ignore[misc]
            await connection.roll_back()
            raise

    async def _lock(self, connection: Connection, sql: str) -> tuple[list[Rows], int]:
        """The results of locking reads, and the time after the last lock was granted."""
        clock = self._queries.clock
        if clock is not system_clock:
            return await connection.run(sql), clock()
        *results, time = await connection.run(f"{sql};{SERVER_CLOCK}")
        return results, time[0][0]

    async def _commit(self, connection: Connection, transaction: Transaction) -> None:
        *ahead, last = _packets(transaction.writing(), connection.packet_bytes - _PACKET_MARGIN)
        if connection.closed:
            connection.abort()
            raise Again  # the server hung up before anything was written
        try:
            for packet in ahead:
                await connection.run(";".join(packet))
            await _run_last(connection, last, transaction.rev)
        except errors.DRIVER_ERRORS as error:
            await self._refuse(connection, transaction, error)

    async def _refuse(self, connection: Connection, transaction: Transaction, error: Exception) -> None:
        """A statement before the COMMIT failed, so nothing was written: raise the conflict, or `Again`."""
        if errors.code_of(error) != errors.DUPLICATE:
            await connection.roll_back()
            raise error
        owners = transaction.owners()
        results = await connection.run(";".join([*[owner.sql for owner in owners], "ROLLBACK"]))
        for owner, rows in zip(owners, results, strict=True):
            if rows:
                raise owner.conflict
        raise Again

    async def take(self, scope: str, scan: Scan, changes: Mapping[str, Any]) -> Taken:
        """Select and update the first rows that no other transaction holds."""
        rev = new_rev()
        table = self._queries.claims[scan.table]

        async def attempt(connection: Connection) -> Taken:
            try:
                result, now = await self._claim(connection, scope, scan)
                rows = [updated_row(row, changes, rev, Moment(now, {})) for row in table.rows(result)]
                if not rows:
                    await connection.run("COMMIT")
                    return Taken([], now)
                updates = [_update(table.table, scope, row, changes) for row in rows]
                await _run_last(connection, [*updates, "COMMIT"], rev)
            except errors.DRIVER_ERRORS:
                await connection.roll_back()
                raise
            return Taken(rows, now)

        return await self._retry(attempt)

    async def _claim(self, connection: Connection, scope: str, scan: Scan) -> tuple[list[tuple[Any, ...]], int]:
        """Lock the rows to take; what was read of them, and the time by which they were selected."""
        clock, claims = self._queries.clock, self._queries.claims[scan.table]
        set_time = None if clock is system_clock else clock()
        chosen = scan if set_time is None else scan_at(scan, set_time)
        locked, time = await connection.run(f"START TRANSACTION;{claims.sql_claim(scope, chosen)};{SERVER_CLOCK}")
        now = int(locked[0][-1] if locked else time[0][0])
        return [row[:-1] for row in locked], now if set_time is None else set_time


async def _run_last(connection: Connection, last: Sequence[str], rev: int) -> None:
    """Send the packet that ends with the COMMIT; raises `OutcomeUnknown` unless it certainly left nothing behind."""
    try:
        await connection.run(";".join(last))
    except errors.DRIVER_ERRORS as error:
        if connection.broken or (connection.answered == len(last) - 1 and not errors.undone(error)):
            raise errors.unknown_outcome(error, rev) from error
        raise


def _update(table: Table, scope: str, row: Row, changes: Mapping[str, Any]) -> str:
    parts = [f"`rev` = {row.rev}", *[f"{quote(name)} = {literal(row[name])}" for name in changes]]
    where = equal(("scope", *table.key_names), (scope, *row.key))
    return f"UPDATE {quote(table.stored)} SET {', '.join(parts)} WHERE {where}"


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
