"""The receipt of a commit: built from what was sent, or from what its key remembers of the first time.

Neither reads anything back: the transaction's answer holds all that the database decided (rev, clock, seqs), and
`stores.results` applies it to the operations that were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure import limits
from perdure.errors import KeyReused, NotFoundError
from perdure.kernel.ops import Applied, Row
from perdure.model.receipt import Receipt, RunReceipt
from perdure.model.run import NewRun, Run, RunChange
from perdure.stores.commit.plan import new_run_columns
from perdure.stores.commit.request import Prepared
from perdure.stores.commit.run_change import LOG, new_body, run_after
from perdure.stores.context import Context
from perdure.stores.records import receipt_from, run_from, run_record
from perdure.stores.results import columns_after
from perdure.stores.schema import RUNS


def new_receipt(context: Context, commit: Prepared, branch: int, applied: Applied) -> Receipt:
    """The receipt of a commit that has just been applied to `branch`."""
    last, ids = applied.seqs.get((LOG, commit.thread_id)), commit.message_ids
    run = commit.run
    if isinstance(run, RunChange) and commit.effect is not None:
        after: Run | None = run_after(run.run, commit.effect, applied, last)
    elif isinstance(run, NewRun):
        after = _new_run(commit, run, branch, applied)
    else:
        after = run if isinstance(run, Run) else None
    make: Any = Receipt if after is None else RunReceipt
    receipt: Receipt = make(
        thread_id=commit.thread_id,
        version=last,
        message_ids=ids,
        seqs=[] if last is None else [*range(last - len(ids) + 1, last + 1)],
        run=after,
        durable=context.engine.capabilities.durability,
        replayed=False,
        at=applied.now,
    )
    return receipt


def with_run(receipt: Receipt) -> RunReceipt:
    """The receipt of a commit that named a run, for callers who count on the run."""
    if not isinstance(receipt, RunReceipt):
        raise TypeError("a commit that names a run has it on its receipt")
    return receipt


def _new_run(commit: Prepared, run: NewRun, branch: int, applied: Applied) -> Run:
    """The run that the commit created."""
    columns = columns_after(_NO_RUN, new_run_columns(commit, run, branch), applied)
    body = new_body(run, commit.message_ids if commit.inputs else [])
    return run_record(commit.run_id or "", columns, body, applied.rev)


_NO_RUN: Mapping[str, Any] = dict.fromkeys(RUNS.column_names)


def is_remembered(key: Row | None, head: Row | None, now: int) -> bool:
    """Is there a receipt under the key? Not of a deleted thread, even while its keys are being erased.

    `now` is the engine's time, as `at` is: a client whose clock is a week ahead must not repeat an effect.
    """
    if key is None or head is None:
        return False
    return bool(key["at"] + limits.KEY_RETENTION_MS >= now)


def replay(context: Context, commit: Prepared, key: Row | None, run: Row | None) -> Receipt:
    """The receipt of the first commit under this key; raises `KeyReused` if that asked for something else."""
    if key is None or key["digest"] != commit.digest:
        raise KeyReused(
            f"the key {commit.key!r} was used for another commit on thread {commit.thread_id!r}",
            expected=commit.digest,
            actual=None if key is None else key["digest"],
            hint="a key names one commit: use a new one for new content",
        )
    last, ids = receipt_from(key)
    known_run = _run_of_key(commit, key, run)
    if known_run is None and commit.run is not None:
        raise NotFoundError(f"the run that key {commit.key!r} started was deleted")
    make: Any = Receipt if known_run is None else RunReceipt
    receipt: Receipt = make(
        thread_id=commit.thread_id,
        version=last,
        message_ids=ids,
        seqs=[] if last is None else [*range(last - len(ids) + 1, last + 1)],
        run=known_run,
        durable=context.engine.capabilities.durability,
        replayed=True,
        at=key["at"],
    )
    return receipt


def _run_of_key(commit: Prepared, key: Row, row: Row | None) -> Run | None:
    """The run as the first commit of this key left it, if nothing has moved it since.

    A run that was moved since is returned as it is now, but with the rev it had then: a caller who builds on it is
    refused, because it was overtaken.
    """
    if isinstance(commit.run, Run) or row is None:
        return commit.run if isinstance(commit.run, Run) else None
    return msgspec.structs.replace(run_from(row), rev=key.rev)
