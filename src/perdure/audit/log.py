"""One pass over a thread's log, a chunk at a time: what it holds, and whether it holds together.

The log only grows, so the pass may read in several snapshots up to the length that one of them showed. What other
checks need of the log is known beforehand (`seqs`) and collected during the pass, so memory grows with what refers to
messages, not with the messages.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.audit.findings import CHUNK, UNREADABLE, Audit, problem_of
from perdure.errors import UnavailableError
from perdure.kernel.ops import LogEntry, Read
from perdure.rules.soundness.stored import LogFacts
from perdure.stores.records import MessageEntry
from perdure.stores.soundness import entry_problems, message_problems

LOG = "messages"


class LogPass(msgspec.Struct):
    """How far a pass got, the facts it collected, and whether the columns of every entry were sound."""

    facts: LogFacts
    reached: int = 0
    sound: bool = True


async def read_log(audit: Audit, thread: str, length: int, seqs: set[int]) -> LogPass:
    """Check every entry up to `length` and collect the facts."""
    done, size = LogPass(LogFacts(seqs)), CHUNK
    while done.reached < length:
        try:
            entries = await _chunk(audit, thread, Read(LOG, thread, after=done.reached, upto=length, limit=size))
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever reading it raises is what there is to report
            if size == 1:
                done.reached, done.sound = done.reached + 1, False
                audit.report(UNREADABLE, f"message {done.reached} of thread {thread!r}", problem_of(error))
            size = max(1, size // 8)
            continue
        if not entries:
            break
        for entry in entries:
            _check_entry(audit, thread, entry, done)
    if done.reached < length:
        audit.report("log.gap", f"thread {thread!r}", _missing(done.reached + 1, length))
    return done


async def _chunk(audit: Audit, thread: str, read: Read) -> list[LogEntry]:
    """Some entries, each looked up by its id as well."""
    entries: list[LogEntry] = (await audit.view(read))[0]
    await _check_ids(audit, thread, entries)
    return entries


def _check_entry(audit: Audit, thread: str, entry: LogEntry, done: LogPass) -> None:
    seq = entry[0]
    if type(seq) is not int:
        audit.collect(entry_problems(audit.kernel.schema.log[LOG], thread, entry))
        done.reached, done.sound = done.reached + 1, False
        return
    if seq != done.reached + 1:
        audit.report("log.gap", f"thread {thread!r}", _missing(done.reached + 1, seq - 1))
    done.reached = seq
    if audit.collect(entry_problems(audit.kernel.schema.log[LOG], thread, entry)):
        done.sound = False
        return
    done.facts.add(seq, entry[2:-1])
    audit.collect(message_problems(thread, entry))


def _missing(first: int, last: int) -> str:
    if last < first:
        return f"message {last + 1} is where {first} should be"
    return f"message {first} is missing" if first == last else f"messages {first} to {last} are missing"


async def _check_ids(audit: Audit, thread: str, entries: list[LogEntry]) -> None:
    """Look up every id as a reader would: finds ids that occur twice or that lead nowhere."""
    named = [entry for entry in map(MessageEntry._make, entries) if type(entry.id) is str]
    ids = tuple(dict.fromkeys(entry.id for entry in named))
    matches: list[LogEntry] = (await audit.view(Read(LOG, thread, where={"id": ids})))[0]
    by_id: dict[Any, list[int]] = {}
    for entry in map(MessageEntry._make, matches):
        by_id.setdefault(entry.id, []).append(entry.seq)
    for entry in named:
        seqs = by_id.get(entry.id, [])
        if seqs != [entry.seq]:
            problem = f"its id {entry.id!r} leads to {' and '.join(map(str, seqs)) or 'nothing'}"
            audit.report("log.id", f"message {entry.seq} of thread {thread!r}", problem)
