"""A short serial-order run in every test run, and proof that the test sees a planted fault."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection

import pytest
from tests.engines import serial_order
from tests.engines.toys import SERVERS

from perdure.engines.sql.embedded.write import _WRITE, Session
from perdure.engines.sqlite.write.group_commit import Committer
from perdure.engines.sqlite.write.jobs import Job
from perdure.kernel.ops import Append, Trim


@pytest.mark.parametrize("engine", ["sqlite", *SERVERS])
def test_concurrent_transactions_equal_some_serial_order(engine: str, seed: int) -> None:
    print(f"replay: python -m tests.engines.serial_order --engine {engine} --rounds 300 --seed {seed}")
    assert serial_order.play(engine, 300, seed) == []


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


def trims_one_entry_too_many(pipe: Connection, kind: str, place: str) -> None:
    """A worker whose trims go one entry too far."""
    _WRITE[Trim] = lambda session, position, op: Session.trim(
        session, position, Trim(op.log, op.partition, op.upto + 1)
    )
    serial_order.worker(pipe, kind, place)


@pytest.mark.parametrize(
    "fault", [keeps_what_a_refused_member_wrote, forgets_the_guard_of_an_append, trims_one_entry_too_many]
)
def test_a_planted_fault_is_found(fault: object, seed: int) -> None:
    print(f"seed {seed}")
    # The rarest of them shows itself about once in fifty rounds.
    assert serial_order.play("sqlite", 2_000, seed, fault, most=1)  # type: ignore[arg-type]
