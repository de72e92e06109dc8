"""Checks one stored row or log entry in full: first its columns, then its decoded body.

Import checks every line with it, `doctor verify` every row; what must hold between rows is in `rules.soundness`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perdure import limits
from perdure.errors import CorruptError, InvalidError
from perdure.kernel import codec
from perdure.kernel.ops import LogEntry, Row
from perdure.kernel.schema import Log, Table
from perdure.model import thread as thread_model
from perdure.model.plain import check_json
from perdure.rules import checks, message_shape, run_machine
from perdure.rules.columns import body_size, column_problems, presence_problem, size_problem
from perdure.rules.expiry import expiry_problem
from perdure.rules.soundness.runs import receipt_ids, run_record_problem
from perdure.rules.soundness.stored import Problem, row_name
from perdure.stores import records

MOST_REV = 2**53


def row_problems(table: Table, row: Row) -> Iterator[Problem]:
    """What is wrong with the columns of a row."""
    record = row_name(table.name, row.key)
    named = (*zip(table.key_names, row.key, strict=True), *zip(table.column_names, row.values, strict=True))
    texts = [*column_problems(table.name, named), *_rev_problems(table.name, row.rev)]
    missing = presence_problem(table.name, row.body)
    yield from (Problem("column", record, text) for text in (*texts, *([missing] if missing else [])))


def entry_problems(log: Log, partition: str, entry: LogEntry) -> Iterator[Problem]:
    """What is wrong with the columns of a log entry."""
    seq, rev, *values, body = entry
    named = ((log.partition, partition), ("seq", seq), *zip(log.column_names, values, strict=True))
    texts = [*column_problems(log.name, named), *_rev_problems(log.name, rev)]
    missing = presence_problem(log.name, body)
    record = f"message {seq} of thread {partition!r}"
    yield from (Problem("column", record, text) for text in (*texts, *([missing] if missing else [])))


def _rev_problems(name: str, rev: Any) -> Iterator[str]:
    if type(rev) is not int or not 0 < rev < MOST_REV:
        yield f"{name}.rev is not a rev: {rev!r:.80}"


_WRAPPED = 8
"""How deep a value may sit in a body, such as the input of a block in a message; its own check comes after."""


def body_problems(name: str, row: Row) -> Iterator[Problem]:
    """What is wrong with the body of a row whose columns are sound."""
    rule = _BODIES.get(name)
    if rule is None:
        return
    check, read = rule
    record = row_name(name, row.key)
    too_long = size_problem(name, row.body)
    if too_long is not None:
        yield Problem(check, record, too_long)
        return
    try:
        check_json(codec.decode(row.body, record), "body", wrapped=_WRAPPED)
        read(row)
    except (CorruptError, InvalidError) as error:
        yield Problem(check, record, error.message)


def message_problems(thread: str, entry: LogEntry, *, is_new: bool = False) -> Iterator[Problem]:
    """What is wrong with a message whose columns are sound; one that `is_new` keeps limits that older builds lacked."""
    stored = records.MessageEntry._make(entry)
    record = f"message {stored.seq} of thread {thread!r}"
    too_long = size_problem("messages", stored.body)
    if too_long is not None:
        yield Problem("log.body", record, too_long)
        return
    try:
        check_json(codec.decode(stored.body, record), "body", wrapped=_WRAPPED)
        message = records.message_record(thread, entry, None).message
        message_shape.check_message(message, "message")
        if is_new:
            message_shape.check_block_count(message, "message")
        if message.compaction is not None:
            message_shape.check_summary_place(message.compaction, stored.seq, "message")
    except (CorruptError, InvalidError) as error:
        yield Problem("log.body", record, error.message)


def _read_thread(row: Row) -> None:
    body = records.read_body(thread_model.BODY_READER, row.body, row_name("threads", row.key))
    codec.encode_checked(body.custom, "custom", limits.CUSTOM_BYTES)


def _read_run(row: Row) -> None:
    run = records.run_from(row)
    size = body_size(row.body)
    if run.outcome is None and size > limits.RUN_BYTES:
        raise InvalidError(f"a body of {size:,} bytes, the limit of an open run is {limits.RUN_BYTES:,}")
    run_machine.check_stored(run)
    problem = run_record_problem(run)
    if problem is not None:
        raise InvalidError(problem)


def _read_pending(row: Row) -> None:
    item = records.pending_from(row)
    if item.message.id != row.key[1]:
        raise InvalidError(f"its message has the id {item.message.id!r}")
    message_shape.check_message(item.message, "message")
    size = len(records.message_entry(item.message, 0, 0)[-1])
    if size > limits.MESSAGE_BYTES:
        raise InvalidError(f"{size:,} bytes, the limit is {limits.MESSAGE_BYTES:,}")
    for name in ("boundary", "granularity"):
        checks.check_word(getattr(item.mode, name), f"mode.{name}")
    if item.mode.target_run_id is not None:
        checks.check_id(item.mode.target_run_id, "target_run_id")


def _read_receipt(row: Row) -> None:
    if receipt_ids(row.body) is None:
        raise InvalidError("its body is not a list of message ids")


def _read_profile(row: Row) -> None:
    records.profile_from(row)
    problem = expiry_problem(row)
    if problem is not None:
        raise InvalidError(problem)


_BODIES: dict[str, tuple[str, Callable[[Row], object]]] = {
    "threads": ("thread.body", _read_thread),
    "runs": ("run.body", _read_run),
    "state": ("state.body", records.state_from),
    "keys": ("key", _read_receipt),
    "pending": ("pending.body", _read_pending),
    "profiles": ("profile", _read_profile),
}
"""How the body of a table's rows is read, and the check that a failure belongs to."""
