"""One pass over a thread's log, a chunk at a time: what it holds, and whether it holds together.

The log only grows, so the pass may read in several snapshots up to the length that one of them showed. What others need
of the log is said beforehand (`wanted` seqs) and collected on the way: memory follows what refers to messages, not the
messages.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import CorruptError, InvalidError
from perdure.kernel.ops import LogEntry, Read
from perdure.rules import shape
from perdure.stores.records import message_record
from perdure.testkit.auditor_findings import CHUNK, Audit

LOG = "messages"


class Place(msgspec.Struct, frozen=True):
    """What one message's columns say, without its body."""

    id: str
    branch: int
    run: str | None
    visible: bool
    at: int


class Line(msgspec.Struct):
    """What the log says of one branch."""

    count: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_id: str | None = None


class Produced(msgspec.Struct):
    """How many visible assistant and tool messages name a run as their producer, and where the first and last stand."""

    count: int = 0
    first: int = 0
    last: int = 0


class LogFacts(msgspec.Struct):
    """What one pass found out."""

    wanted: set[int]
    places: dict[int, Place] = {}
    lines: dict[int, Line] = {}
    produced: dict[str, Produced] = {}
    reached: int = 0


async def read_log(audit: Audit, thread: str, length: int, wanted: set[int]) -> LogFacts:
    """Check every entry up to `length` and collect the facts."""
    facts = LogFacts(wanted)
    while facts.reached < length:
        read = Read(LOG, thread, after=facts.reached, upto=length, limit=CHUNK)
        entries: list[LogEntry] = (await audit.view(read))[0]
        if not entries:
            break
        for entry in entries:
            _check_entry(audit, thread, entry, facts)
        await _check_ids(audit, thread, entries)
    if facts.reached < length:
        audit.report("log.gap", f"thread {thread!r}", _missing(facts.reached + 1, length))
    return facts


def _check_entry(audit: Audit, thread: str, entry: LogEntry, facts: LogFacts) -> None:
    seq, _rev, message_id, role, branch, visibility, run, _step, at, _body = entry
    if seq != facts.reached + 1:
        audit.report("log.gap", f"thread {thread!r}", _missing(facts.reached + 1, seq - 1))
    facts.reached = seq
    visible = visibility == "all" and role in ("assistant", "tool")
    line = facts.lines.setdefault(branch, Line(first_seq=seq))
    line.count, line.last_seq, line.last_id = line.count + 1, seq, message_id
    if seq in facts.wanted:
        facts.places[seq] = Place(message_id, branch, run, visible, at)
    if run is not None and visible:
        made = facts.produced.setdefault(run, Produced(first=seq))
        made.count, made.last = made.count + 1, seq
    _check_body(audit, thread, entry)


def _missing(first: int, last: int) -> str:
    if last < first:
        return f"message {last + 1} stands where {first} should"
    return f"message {first} is missing" if first == last else f"messages {first} to {last} are missing"


def _check_body(audit: Audit, thread: str, entry: LogEntry) -> None:
    record = f"message {entry[0]} of thread {thread!r}"
    try:
        message = message_record(thread, entry, None).message
        shape.check_message(message, "message")
        if message.compaction is not None:
            shape.check_summary_place(message.compaction, entry[0], "message")
    except (CorruptError, InvalidError) as error:
        audit.report("log.body", record, error.message)


async def _check_ids(audit: Audit, thread: str, entries: list[LogEntry]) -> None:
    """Look every id up the way a reader would: an id that is there twice, or cannot be found, shows here."""
    ids = tuple(dict.fromkeys(entry[2] for entry in entries))
    found: list[LogEntry] = (await audit.view(Read(LOG, thread, where={"id": ids})))[0]
    seqs: dict[Any, list[int]] = {}
    for entry in found:
        seqs.setdefault(entry[2], []).append(entry[0])
    for entry in entries:
        at = seqs.get(entry[2], [])
        if at != [entry[0]]:
            problem = f"its id {entry[2]!r} leads to {' and '.join(map(str, at)) or 'nothing'}"
            audit.report("log.id", f"message {entry[0]} of thread {thread!r}", problem)
