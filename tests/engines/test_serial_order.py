"""A short serial-order run in every test run, and proof that the test sees a planted fault."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import pytest
from tests.engines import serial_order
from tests.engines.toys import SERVERS

from perdure.engines.postgres.write.take import Claims
from perdure.engines.sql.embedded.write import _WRITE, Session
from perdure.engines.sqlite.write.group_commit import Committer
from perdure.engines.sqlite.write.jobs import Job
from perdure.kernel.ops import Append, Scan, Taken, Trim


@pytest.mark.parametrize("engine", ["sqlite", *SERVERS])
def test_concurrent_transactions_equal_some_serial_order(engine: str, seed: int) -> None:
    print(f"replay: python -m tests.engines.serial_order --engine {engine} --rounds 300 --seed {seed}")
    assert serial_order.play(engine, 300, seed) == []


@pytest.mark.parametrize("engine", SERVERS)
def test_a_default_counts_only_while_its_row_is_absent(engine: str) -> None:
    """Another transaction may insert the row, and take the unique value of its default: then it is no conflict."""
    assert serial_order.play_again(engine, 100, 1238502693) is None


def keeps_what_a_refused_member_wrote(pipe: Connection, kind: str, place: str) -> None:
    """A worker whose batches do not undo a member that failed half way."""

    def together(self: Committer, batch: Sequence[Job], *, isolated: bool) -> bool:
        del isolated
        session = self._begin()
        for job in batch:
            try:
                job.result = job.run(session)
            except Exception as error:  # noqa: BLE001 - as the real one
                self._refuse(job, error)
        self._finish(batch, session)
        return True

    Committer._commit_together = together  # type: ignore[method-assign]
    serial_order.worker(pipe, kind, place)


def forgets_the_guard_of_an_append(pipe: Connection, kind: str, place: str) -> None:
    """A worker that does not look at `expect`."""
    length = Session._length
    Session._length = lambda self, position, op: length(  # type: ignore[method-assign]
        self, position, Append(op.log, op.partition, op.entries)
    )
    serial_order.worker(pipe, kind, place)


def takes_what_is_not_due(pipe: Connection, kind: str, place: str) -> None:
    """A worker whose takes have no bound."""
    take = Session.take
    Session.take = lambda self, scope, rev, scan, changes: take(  # type: ignore[method-assign]
        self, scope, rev, msgspec.structs.replace(scan, upto={"due": 2**52}), changes
    )
    serial_order.worker(pipe, kind, place)


def trims_one_entry_too_many(pipe: Connection, kind: str, place: str) -> None:
    """A worker whose trims go one entry too far."""
    _WRITE[Trim] = lambda session, position, op: Session.trim(
        session, position, Trim(op.log, op.partition, op.upto + 1)
    )
    serial_order.worker(pipe, kind, place)


def takes_the_newest_first(pipe: Connection, kind: str, place: str) -> None:
    """A worker whose takes begin at the wrong end."""
    take = Claims.take

    async def backwards(self: Claims, pool: Any, scope: str, scan: Scan, *rest: Any) -> Taken:
        return await take(self, pool, scope, msgspec.structs.replace(scan, desc=True), *rest)

    Claims.take = backwards  # type: ignore[method-assign]
    serial_order.worker(pipe, kind, place)


def test_a_fault_is_found_though_takes_may_skip_rows(seed: int) -> None:
    print(f"seed {seed}")
    assert serial_order.play("postgres", 2_000, seed, takes_the_newest_first, most=1)


@pytest.mark.parametrize(
    "fault",
    [
        keeps_what_a_refused_member_wrote,
        forgets_the_guard_of_an_append,
        takes_what_is_not_due,
        trims_one_entry_too_many,
    ],
)
def test_a_planted_fault_is_found(fault: object, seed: int) -> None:
    print(f"seed {seed}")
    # The rarest of them shows itself about once in fifty rounds.
    assert serial_order.play("sqlite", 2_000, seed, fault, most=1)  # type: ignore[arg-type]
