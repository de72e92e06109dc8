"""Consistency rules for a thread's runs, the pointers to them, and the idempotency keys of its commits."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.model.run import CREATED, DONE, RUNNING, STATUSES, WAITING, Run
from perdure.rules.soundness.stored import Facts, MessageFacts, Problem, Problems, Produced, StoredRow, ThreadRows

_POINTERS = {"active_run": (RUNNING,), "open_run": (CREATED, RUNNING, WAITING), "latest_run": STATUSES}
_ENDS = ("input_first", "input_last", "output_first", "output_last")


def run_seqs(rows: ThreadRows) -> Iterator[int]:
    """The seqs that runs refer to."""
    for row in rows.runs:
        yield from (row[name] for name in _ENDS if row[name] is not None)


def run_record_problem(run: Run) -> str | None:
    """Does what a run waits for, what it was resumed from, and how it ended, fit its status?"""
    waits, ended = run.waiting is not None, run.outcome is not None
    if run.body.resumed_from is not None and run.started_at is None:
        return "it was resumed, but never started"
    if waits == (run.status == WAITING) and ended == (run.status == DONE):
        return None
    return f"it is {run.status}, waits: {waits}, has an outcome: {ended}"


def run_problems(rows: ThreadRows, facts: Facts) -> Problems:
    """Check every run of a thread."""
    branches = {row.key[1]: row["deleted_at"] is None for row in rows.branches}
    for row in rows.runs:
        record = f"run {row.key[0]!r}"
        yield from _time_problems(record, row)
        alive = branches.get(row["branch"])
        if alive is None or (not alive and row["status"] != DONE):
            there = "which is not there" if alive is None else "which is deleted"
            yield Problem("run.branch", record, f"it is pinned to branch {row['branch']}, {there}")
        yield from _input_problems(record, row, facts, rows.length)
        yield from _output_problems(record, row, facts)


def _time_problems(record: str, row: StoredRow) -> Problems:
    started, finished, status = row["started_at"], row["finished_at"], row["status"]
    begun = status == DONE or (started is not None) == (status in (RUNNING, WAITING))
    if not begun or (finished is not None) != (status == DONE):
        yield Problem("run.times", record, f"it is {status}, started at {started}, finished at {finished}")


def _input_problems(record: str, row: StoredRow, facts: Facts, length: int) -> Problems:
    """A run and the messages it was given were written by one transaction, so at one time."""
    first, last = row["input_first"], row["input_last"]
    if first is None and last is None:
        return
    if first is None or last is None or not first <= last <= length:
        yield Problem("run.input", record, f"its input is {first} to {last}, the log ends at {length}")
        return
    for seq in (first, last):
        message = facts.messages.get(seq)
        if message is not None and message.at != row["created_at"]:
            yield Problem("run.input", record, f"message {seq} of its input was not written with it")
            return


def _output_problems(record: str, row: StoredRow, facts: Facts) -> Problems:
    """Messages that merely name a run may be more than it counts: only those committed with a change of it count."""
    first, last, count = row["output_first"], row["output_last"], row["output_count"]
    if not count:
        if first is not None or last is not None:
            yield Problem("run.output", record, f"it produced nothing, at {first} to {last}")
        return
    made = facts.produced.get(str(row.key[0])) or Produced()
    own = all(_is_output(facts.messages.get(seq or 0), row.key[0]) for seq in (first, last))
    right = own and made.first <= first <= last <= made.last and count <= min(made.count, last - first + 1)
    if not right or (count > 1) != (last > first):
        text = f"it counts {count} from {first} to {last}, the log has {made.count} from {made.first} to {made.last}"
        yield Problem("run.output", record, text)


def _is_output(message: MessageFacts | None, run: str | int) -> bool:
    return message is not None and message.visible and message.run == run


def pointer_problems(rows: ThreadRows, facts: Facts) -> Problems:
    """Check the pointers on a thread's hot row."""
    record = f"thread {rows.thread!r}"
    for name, fitting in _POINTERS.items():
        run = rows.head[name]
        if run is None:
            continue
        status = rows.statuses.get(run)
        if status not in fitting:
            there = "which is not there" if status is None else f"which is {status}"
            yield Problem("pointer", record, f"{name} names {run!r}, {there}")
    if rows.head["latest_run"] is None and next(iter(rows.runs), None) is not None:
        yield Problem("pointer", record, "it has runs but no latest one")


def key_seqs(rows: ThreadRows) -> Iterator[int]:
    """The seqs that the receipts of keyed commits name."""
    for row in rows.keys:
        yield from _seqs(row, rows.length)


def _seqs(row: StoredRow, length: int) -> range:
    """A damaged count must not make a range that never ends."""
    last, count = row["version"], row["count"]
    if last is None or not 0 < count <= last <= length:
        return range(0)
    return range(last - count + 1, last + 1)


def key_problems(rows: ThreadRows, facts: Facts) -> Problems:
    """A key and its messages were written by one transaction, at one time (an import keeps times, not revs)."""
    for row in rows.keys:
        record = f"key {row.key[1]!r} of thread {rows.thread!r}"
        text = _receipt_problem(row, facts, rows.length)
        if text is None and row["run"] is not None and rows.statuses.get(row["run"]) is None:
            text = f"its run {row['run']!r} is not one of the thread"
        if text is not None:
            yield Problem("key", record, text)


def receipt_ids(body: bytes | str | None) -> list[str] | None:
    """The message ids that a key's body names; None if it is not such a list."""
    try:
        return msgspec.json.decode(body or b"", type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _receipt_problem(row: StoredRow, facts: Facts, length: int) -> str | None:
    version, count, ids = row["version"], row["count"], receipt_ids(row.body)
    if ids is None:
        return None  # a torn body was reported with the row
    if len(ids) != count or (version is None) != (count == 0):
        return f"it counts {count} messages up to version {version} and names {ids!r:.80}"
    seqs = _seqs(row, length)
    if len(seqs) != count:
        return f"it names messages that are not there: {count} up to version {version}, the log ends at {length}"
    for seq, message_id in zip(seqs, ids, strict=True):
        message = facts.messages.get(seq)
        if message is None or message.id != message_id:
            return (
                f"it names message {message_id!r} at {seq}, where {'nothing' if message is None else message.id!r} is"
            )
        if message.at != row["at"]:
            return f"message {seq} was not written with it"
    return None
