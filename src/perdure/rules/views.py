"""The views of a branch's messages: the history that reaches the model, the external view, and unfinished tool calls.

All functions take the records of one path in order and return records with their seq unchanged. A tool message with
visibility `internal` is a retraction marker: it withdraws the call it names, the call's result and itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.model.message import (
    ALL,
    INTERNAL,
    Message,
    MessageRecord,
    Text,
    ToolResult,
    ToolUse,
    UnfinishedCall,
    call_answered,
)
from perdure.rules.plain_paths import is_plain

LATE = "late"
"""The unknown field of a message that marks the real result of a call that somebody else had answered meanwhile."""
_LATER = "\nLater, the call returned this result:\n"


class Interruption(NamedTuple):
    """What a history shows as the result of a call that has none; the calls of one run are left out all the same.

    With it, a late result is shown, too, behind the one that answered its call.
    """

    text: str
    except_run: str | None = None


def history(path: Sequence[MessageRecord], interruption: Interruption | None = None) -> list[MessageRecord]:
    """What the model should see: compaction folded, tool pairs intact, markers gone, internal messages included.

    Of several results of one call, only the first is in it. A retraction holds even where a summary covers its marker.
    A call without a result is left out, unless an `interruption` says what to show as its result.
    """
    if is_plain(path, external=False):
        return list(path)
    return _strip(fold(path), _withdrawn(path), external=False, interruption=interruption)


def external(path: Sequence[MessageRecord]) -> list[MessageRecord]:
    """What an outsider should see: no internal messages, no retracted or unanswered calls, nothing folded."""
    if is_plain(path, external=True):
        return list(path)
    return _strip(path, _withdrawn(path), external=True)


def newest_of_history(view: list[MessageRecord], limit: int) -> list[MessageRecord]:
    """The end of a history, without results whose calls were cut off: providers refuse a result without its call."""
    asked: set[str] = set()
    records: list[MessageRecord] = []
    for record in view[-limit:]:
        if record.message.role != "tool" or _answered(record) in asked:
            asked.update(call.id for call in _calls(record.message))
            records.append(record)
    return records


def is_settled(end: Sequence[MessageRecord], view: Sequence[MessageRecord], limit: int, *, folded: bool) -> bool:
    """Given the end of a path and its view: are the newest `limit` shown also those of the whole path?

    Whether a call is shown is decided by what follows it, so the end knows. What lies before the end matters in two
    cases: a marker there may have retracted a call whose result is in the end, and a summary may cover records there,
    which moves it to their place.
    """
    if len(view) < limit:
        return False
    lowest = min(_lowest_position(record) if folded else record.seq for record in view[-limit:])
    return lowest >= end[0].seq and not any(result.seq >= lowest for result in _results_without_call(end))


def _lowest_position(record: MessageRecord) -> int:
    """The lowest seq at which folding may put a record."""
    interval = record.message.compaction
    return record.seq if interval is None else min(record.seq, interval.from_seq)


def _results_without_call(end: Sequence[MessageRecord]) -> list[MessageRecord]:
    """The results in the end of a path whose calls it does not show; a marker is not a result."""
    asked: set[str] = set()
    orphans: list[MessageRecord] = []
    for record in end:
        if record.message.role == "tool" and not _is_marker(record.message) and _answered(record) not in asked:
            orphans.append(record)
        asked.update(call.id for call in _calls(record.message))
    return orphans


def uses_tools(records: Sequence[MessageRecord]) -> bool:
    """Is there a call or a result, about which later records decide?"""
    return any(record.message.role == "tool" or _calls(record.message) for record in records)


def has_open_calls(path: Sequence[MessageRecord], *, upto: int) -> bool:
    """Has a call up to a seq neither been answered for all to see nor withdrawn, so that later records decide?

    A call made again under the same id can no longer be answered: the result answers the last one.
    """
    asked: dict[str, int] = {}
    for record in path:
        if record.message.role == "tool" and record.message.visibility in (ALL, INTERNAL):
            asked.pop(_answered(record), None)
        asked.update((call.id, record.seq) for call in _calls(record.message))
    return any(seq <= upto for seq in asked.values())


def positions(view: Sequence[MessageRecord], path: Sequence[MessageRecord]) -> list[int]:
    """Where each record of a history stands on its path: at its own seq, or a summary at the first that it covers."""
    seqs = [record.seq for record in path]
    return [_position(record, seqs) for record in view]


def _position(record: MessageRecord, seqs: list[int]) -> int:
    interval = record.message.compaction
    if interval is None:
        return record.seq
    first = bisect_left(seqs, interval.from_seq)
    return seqs[first] if first < len(seqs) and seqs[first] <= interval.to_seq else record.seq


def page_start(view: Sequence[MessageRecord], positions: Sequence[int], limit: int) -> int | None:
    """Where the newest page of a history begins: no call is separated from its results.

    `view` is the whole history, or more than `limit` of its newest records. The page has at most `limit` records, or
    as many as one inseparable group. None if `view` does not reach back to the beginning of that group.
    """
    # A start that leaves a call behind, or one of two records at the same position, is not allowed.
    reach = list(range(len(view) + 1))
    asked: dict[str, int] = {}
    for at, record in enumerate(view):
        if record.message.role == "tool":
            reach[at] = asked.get(_answered(record), 0)
        if at and positions[at] == positions[at - 1]:
            reach[at] = min(reach[at], at - 1)
        asked.update((call.id, at) for call in _calls(record.message))
    starts: list[int] = []
    lowest = len(view)
    for at in range(len(view) - 1, -1, -1):
        lowest = min(lowest, reach[at])
        if lowest == at:
            starts.append(at)
    if len(view) <= limit:
        return 0
    earliest = len(view) - limit
    return min((at for at in starts if at >= earliest), default=next((at for at in starts if at > 0), None))


def unfinished(path: Sequence[MessageRecord]) -> list[UnfinishedCall]:
    """Tool calls that no tool message answers (or retracts) later on the path, in order."""
    waiting: dict[int, UnfinishedCall] = {}
    asked: dict[str, list[int]] = {}
    number = 0
    for record in path:
        answered = call_answered(record.message.role, record.message.content)
        if answered is not None:
            for settled in asked.pop(answered, ()):
                del waiting[settled]
        for call in record.message.tool_calls:
            number += 1
            waiting[number] = UnfinishedCall(call, record.message_id, record.seq, record.run_id)
            asked.setdefault(call.id, []).append(number)
    return list(waiting.values())


def fold(path: Sequence[MessageRecord]) -> list[MessageRecord]:
    """Each summary replaces the path's records in its interval, at the interval's start; the widest wins."""
    marks = [record for record in path if record.message.compaction is not None]
    if not marks:
        return list(path)
    winners = _widest(marks)
    losers = {mark.seq for mark in marks} - {mark.seq for mark in winners}
    winning_seqs = {mark.seq for mark in winners}
    out: list[MessageRecord] = []
    placed: set[int] = set()
    begun = reached = 0
    for record in path:
        # Seqs rise along a path, and so do both ends of the winners' intervals: each is looked at once.
        while begun < len(winners) and _interval(winners[begun])[0] <= record.seq:
            mark, begun = winners[begun], begun + 1
            reached = _interval(mark)[1]
            if record.seq <= reached and mark.seq not in placed:
                placed.add(mark.seq)
                out.append(mark)
        if record.seq in losers:
            continue
        if record.seq in winning_seqs:
            if record.seq not in placed:
                placed.add(record.seq)
                out.append(record)
        elif record.seq > reached:
            out.append(record)
    return out


def _interval(mark: MessageRecord) -> tuple[int, int]:
    interval = mark.message.compaction
    return (0, 0) if interval is None else (interval.from_seq, interval.to_seq)


def _widest(marks: list[MessageRecord]) -> list[MessageRecord]:
    """Summaries whose interval lies in no other's; of equal intervals the newest."""
    winners: list[MessageRecord] = []
    reached = 0
    for mark in sorted(marks, key=_start_then_widest):
        interval = mark.message.compaction
        if interval is not None and interval.to_seq > reached:
            winners.append(mark)
            reached = interval.to_seq
    return winners


def _start_then_widest(mark: MessageRecord) -> tuple[int, int, int]:
    interval = mark.message.compaction
    return (0, 0, 0) if interval is None else (interval.from_seq, -interval.to_seq, -mark.seq)


def _strip(
    path: Sequence[MessageRecord],
    withdrawn: _Withdrawn,
    *,
    external: bool,
    interruption: Interruption | None = None,
) -> list[MessageRecord]:
    paired = _paired(path, external=external)
    interrupted = {} if interruption is None else _interrupted(path, withdrawn.calls, paired, interruption)
    paired.update((at, result.tool_use_id) for at, results in interrupted.items() for result in results)
    out: list[MessageRecord] = []
    visible_calls: set[str] = set()
    result_index: dict[str, int] = {}
    for at, record in enumerate(path):
        message = record.message
        role = message.role
        if role == "tool":
            if message.visibility == INTERNAL or (external and message.visibility != ALL):
                continue
            if record.seq in withdrawn.results:
                continue
            if not external and _answered(record) not in visible_calls:  # a second result: providers refuse it
                if interruption is not None and message.extra.get(LATE) is True and _answered(record) in result_index:
                    out[result_index[_answered(record)]] = _with_late(out[result_index[_answered(record)]], record)
                continue
            visible_calls.discard(_answered(record))
            result_index[_answered(record)] = len(out)
        elif external and message.visibility != ALL:
            continue
        elif role == "assistant" and _calls(message):
            visible_calls.difference_update([call.id for call in _calls(message)])
            stripped = _without_open_calls(record, at, withdrawn.calls, paired)
            if stripped is None:
                continue
            record = stripped
            visible_calls.update([call.id for call in _calls(record.message)])
        out.append(record)
        for result in interrupted.get(at, ()):
            visible_calls.discard(result.tool_use_id)
            out.append(_result_record(record, result))
    return out


def _interrupted(
    path: Sequence[MessageRecord],
    withdrawn: set[tuple[int, str]],
    paired: set[tuple[int, str]],
    interruption: Interruption,
) -> dict[int, list[ToolResult]]:
    """By position, a result for each call that has none and was not withdrawn."""
    results: dict[int, list[ToolResult]] = {}
    for at, record in enumerate(path):
        if record.message.role != "assistant" or interruption.except_run == (record.run_id or ""):
            continue
        calls = [call.id for call in _calls(record.message)]
        open_ids = [name for name in calls if (at, name) not in paired and (record.seq, name) not in withdrawn]
        if open_ids:
            results[at] = [ToolResult(name, content=[Text(interruption.text)], is_error=True) for name in open_ids]
    return results


def _result_record(call: MessageRecord, result: ToolResult) -> MessageRecord:
    """A result that is not stored, as a record right after the call's."""
    message = Message(role="tool", content=[result], run_id=call.run_id)
    return msgspec.structs.replace(call, message=message, parent_id=call.message_id)


def _with_late(record: MessageRecord, late: MessageRecord) -> MessageRecord:
    """The result that answered a call first, with the late one behind it, which says whether the call failed."""
    first, real = record.message.content[0], late.message.content[0]
    if not isinstance(first, ToolResult) or not isinstance(real, ToolResult):
        return record
    result = msgspec.structs.replace(
        first, content=[*first.content, Text(_LATER), *real.content], is_error=real.is_error
    )
    return msgspec.structs.replace(record, message=msgspec.structs.replace(record.message, content=[result]))


def _calls(message: Message) -> list[ToolUse]:
    return [block for block in message.content if type(block) is ToolUse]


class _Withdrawn(NamedTuple):
    """What the markers of a path take back: calls, as (seq of their message, id), and results, as seqs."""

    calls: set[tuple[int, str]]
    results: set[int]


def _withdrawn(path: Sequence[MessageRecord]) -> _Withdrawn:
    """A marker takes back every call of its id that was made before it, and the results of those calls, early or late.

    A result whose call is not on the path goes with any marker that names it. A call made after the marker stays.
    """
    named = {_answered(record) for record in path if _is_marker(record.message)}
    calls: set[tuple[int, str]] = set()
    if not named:
        return _Withdrawn(calls, set())
    asked: dict[str, list[int]] = {}
    owner: dict[int, tuple[int, str] | None] = {}
    for record in path:
        answered = _answered(record)
        if answered in named:
            made = asked.get(answered, [])
            owner[record.seq] = (made[-1], answered) if made else None
            if _is_marker(record.message):
                calls.update((seq, answered) for seq in made)
                del made[:-1]  # withdrawn for good: many markers of one id must not count them again
        for call in _calls(record.message):
            if call.id in named:
                asked.setdefault(call.id, []).append(record.seq)
    return _Withdrawn(calls, {seq for seq, call in owner.items() if call is None or call in calls})


def _is_marker(message: Message) -> bool:
    return message.role == "tool" and message.visibility == INTERNAL


def _answered(record: MessageRecord) -> str:
    return call_answered(record.message.role, record.message.content) or ""


def _paired(path: Sequence[MessageRecord], *, external: bool) -> set[tuple[int, str]]:
    """The calls (position, id) that a result which may be seen answers later on."""
    paired: set[tuple[int, str]] = set()
    asked: dict[str, int] = {}
    for at, record in enumerate(path):
        message = record.message
        role = message.role
        if role == "assistant":
            for call in _calls(message):
                asked[call.id] = at
        elif role == "tool" and message.visibility != INTERNAL and (message.visibility == ALL or not external):
            answered = call_answered(role, message.content) or ""
            if answered in asked:
                paired.add((asked[answered], answered))
    return paired


def _without_open_calls(
    record: MessageRecord, at: int, withdrawn: set[tuple[int, str]], paired: set[tuple[int, str]]
) -> MessageRecord | None:
    content = record.message.content
    blocks = [
        block
        for block in content
        if type(block) is not ToolUse or ((at, block.id) in paired and (record.seq, block.id) not in withdrawn)
    ]
    if len(blocks) == len(content):
        return record
    if not blocks:
        return None
    message = msgspec.structs.replace(record.message, content=blocks)
    return msgspec.structs.replace(record, message=message)
