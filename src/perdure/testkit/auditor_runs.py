"""Are a thread's runs, the pointers to them, and the idempotency keys of its commits what commits would have left?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.errors import CorruptError
from perdure.kernel import codec
from perdure.kernel.ops import Row
from perdure.model.run import CREATED, DONE, RUNNING, STATUSES, WAITING
from perdure.stores.records import run_from
from perdure.testkit.auditor_findings import Audit
from perdure.testkit.auditor_log import LogFacts, Produced

_COUNTERS = ("steps", "input_tokens", "output_tokens", "output_count", "created_at", "updated_at")
_POINTERS = {"active_run": (RUNNING,), "open_run": (CREATED, RUNNING, WAITING), "latest_run": STATUSES}


def run_seqs(runs: Sequence[Row]) -> Iterator[int]:
    """The seqs that runs refer to."""
    for row in runs:
        yield from (row[name] for name in ("output_first", "output_last") if row[name] is not None)


def check_runs(audit: Audit, head: Row, runs: Sequence[Row], branches: Sequence[Row], facts: LogFacts) -> None:
    """Check every run of a thread, and the pointers on its hot row."""
    numbers = {int(row.key[1]) for row in branches}
    for row in runs:
        record = f"run {row.key[0]!r}"
        known = row["status"] in STATUSES
        audit.expect(known, "run.status", record, f"its status is {row['status']!r}")
        if known:
            _check_body(audit, record, row)
            _check_times(audit, record, row)
        bad = [name for name in _COUNTERS if row[name] is None or row[name] < 0]
        audit.expect(not bad, "run.counters", record, f"{', '.join(f'{name} is {row[name]}' for name in bad)}")
        audit.expect(row["branch"] in numbers, "run.branch", record, f"it is pinned to branch {row['branch']}")
        _check_input(audit, record, row, facts.reached)
        _check_output(audit, record, row, facts)
    _check_pointers(audit, head, {str(row.key[0]): row for row in runs})


def _check_body(audit: Audit, record: str, row: Row) -> None:
    try:
        run = run_from(row)
    except CorruptError as error:
        audit.report("run.body", record, error.message)
        return
    waits, ended = run.waiting is not None, run.outcome is not None
    right = waits == (run.status == WAITING) and ended == (run.status == DONE)
    audit.expect(right, "run.body", record, f"it is {run.status}, waits: {waits}, has an outcome: {ended}")


def _check_times(audit: Audit, record: str, row: Row) -> None:
    started, finished, status = row["started_at"], row["finished_at"], row["status"]
    begun = status == DONE or (started is not None) == (status in (RUNNING, WAITING))
    right = begun and (finished is not None) == (status == DONE)
    audit.expect(right, "run.times", record, f"it is {status}, started at {started}, finished at {finished}")


def _check_input(audit: Audit, record: str, row: Row, length: int) -> None:
    first, last = row["input_first"], row["input_last"]
    right = (first is None and last is None) or (
        first is not None and last is not None and 1 <= first <= last <= length
    )
    audit.expect(right, "run.input", record, f"its input is {first} to {last}, the log ends at {length}")


def _check_output(audit: Audit, record: str, row: Row, facts: LogFacts) -> None:
    """Messages that merely name a run may be more than it counts: only those committed with a change of it count."""
    first, last, count = row["output_first"], row["output_last"], row["output_count"]
    if not count:
        audit.expect(first is None and last is None, "run.output", record, f"it produced nothing, at {first} to {last}")
        return
    made = facts.produced.get(str(row.key[0]), Produced())
    ends = [facts.places.get(seq or 0) for seq in (first, last)]
    own = all(place is not None and place.visible and place.run == row.key[0] for place in ends)
    right = own and made.first <= first <= last <= made.last and count <= made.count
    audit.expect(
        right and (count > 1) == (last > first),
        "run.output",
        record,
        f"it counts {count} from {first} to {last}, the log has {made.count} from {made.first} to {made.last}",
    )


def _check_pointers(audit: Audit, head: Row, runs: dict[str, Row]) -> None:
    record = f"thread {head.key[0]!r}"
    for name, fitting in _POINTERS.items():
        pointed = head[name]
        if pointed is None:
            continue
        run = runs.get(pointed)
        there = "which is not a run of it" if run is None else f"which is {run['status']}"
        right = run is not None and run["status"] in fitting
        audit.expect(right, "pointer", record, f"{name} names {pointed!r}, {there}")
    if runs:
        audit.expect(head["latest_run"] is not None, "pointer", record, "it has runs but no latest one")


def key_seqs(keys: Sequence[Row]) -> Iterator[int]:
    """The seqs that the receipts of keyed commits name."""
    for row in keys:
        if row["version"] is not None and row["count"]:
            yield from range(row["version"] - row["count"] + 1, row["version"] + 1)


def check_keys(audit: Audit, thread: str, keys: Sequence[Row], runs: Sequence[Row], facts: LogFacts) -> None:
    """A key and its messages were written by one transaction, at one time (an import keeps times, not revs)."""
    known = {str(row.key[0]) for row in runs}
    for row in keys:
        record = f"key {row.key[1]!r} of thread {thread!r}"
        try:
            ids = codec.decode(row.body, record)
        except CorruptError as error:
            audit.report("key", record, error.message)
            continue
        problem = _receipt_problem(row, ids, facts)
        if problem is None and row["run"] is not None and row["run"] not in known:
            problem = f"its run {row['run']!r} is not one of the thread"
        audit.expect(problem is None, "key", record, problem or "")


def _receipt_problem(row: Row, ids: object, facts: LogFacts) -> str | None:
    version, count = row["version"], row["count"]
    if not isinstance(ids, list) or len(ids) != count or (version is None) != (count == 0):
        return f"it counts {count} messages up to version {version} and names {ids!r:.80}"
    for seq, message_id in zip(key_seqs([row]), ids, strict=True):
        place = facts.places.get(seq)
        if place is None or place.id != message_id:
            return f"it names message {message_id!r} at {seq}, where {'nothing' if place is None else place.id!r} is"
        if place.at != row["at"]:
            return f"message {seq} was not written with it"
    return None
