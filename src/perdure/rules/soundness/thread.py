"""All consistency rules of a stored thread, run together: rows against each other and against the log.

Nothing here reads a store: rows and log facts come in, problems come out. A rule looks only at tables whose columns are
as declared (`columns` checks that first): what follows from a damaged column is not worth reporting.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from perdure import limits
from perdure.rules.soundness.runs import key_problems, key_seqs, pointer_problems, run_problems, run_seqs
from perdure.rules.soundness.stored import Facts, Problem, Problems, ThreadRows
from perdure.rules.soundness.tree import label_problems, label_seqs, tree_problems, tree_seqs

Rule = Callable[[ThreadRows, Facts], Problems]


def wanted_seqs(rows: ThreadRows, damaged: Collection[str]) -> set[int]:
    """The messages that rows refer to; `damaged` tables are not asked."""
    sources = {"branches": tree_seqs, "labels": label_seqs, "runs": run_seqs, "keys": key_seqs}
    return {seq for table, seqs in sources.items() if table not in damaged for seq in seqs(rows)}


def thread_problems(rows: ThreadRows, facts: Facts, damaged: Collection[str] = ()) -> Iterator[Problem]:
    """Everything that contradicts itself within a thread, as far as its tables and its log are not `damaged`."""
    for tables, rule in _RULES:
        if not any(table in damaged for table in tables):
            yield from rule(rows, facts)


def _copy_problems(rows: ThreadRows, facts: Facts) -> Problems:
    record, cold = f"thread {rows.thread!r}", rows.cold
    if cold is None or cold["deleted_at"] is not None or cold["erased_at"] is not None:
        text = f"its cold row is {'missing' if cold is None else 'a tombstone'}"
        yield Problem("thread.rows", record, text)
        return
    for name in ("parent", "resource", "created_at"):
        if cold[name] != rows.head[name]:
            text = f"it has two values of {name}: {cold[name]!r} and {rows.head[name]!r}"
            yield Problem("thread.copies", record, text)
    if rows.head["child"] not in (None, int(rows.head["parent"] is not None)):
        text = f"its parent is {rows.head['parent']!r}, lists show it as a {'child' if rows.head['child'] else 'root'}"
        yield Problem("thread.copies", record, text)
    if rows.head["parent"] == rows.thread:
        yield Problem("thread.parent", record, "it is its own parent")


def _version_problems(rows: ThreadRows, facts: Facts) -> Problems:
    version, length = rows.head["version"], rows.length
    if version != length:
        text = f"it counts {version} messages, its log holds {length}"
        yield Problem("log.version", f"thread {rows.thread!r}", text)


def _state_problems(rows: ThreadRows, facts: Facts) -> Problems:
    for row in rows.state:
        _, run, name = row.key
        if run and rows.statuses.get(str(run)) is None:
            record = f"state {name!r} of thread {rows.thread!r}"
            yield Problem("state.owner", record, f"it belongs to run {run!r}, which is not there")


def _queue_problems(rows: ThreadRows, facts: Facts) -> Problems:
    record, count = f"the queue of thread {rows.thread!r}", len(rows.pending)
    written = (0, None) if rows.queue is None else (rows.queue["count"], rows.queue["waiting"])
    due = (count, rows.thread if count else None)
    if written != due:
        text = f"the queue does not count its pending messages: (count, waiting) is {written}, should be {due}"
        yield Problem("queue", record, text)
    positions = sorted(row["position"] for row in rows.pending)
    if positions != list(range(1, count + 1)):
        yield Problem("pending.place", record, f"pending messages are not at positions 1, 2, 3, …: {positions[:20]}")
    if count > limits.PENDING_PER_THREAD:
        yield Problem("queue", record, f"it holds {count} messages, the limit is {limits.PENDING_PER_THREAD}")


_RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("thread_heads", "threads"), _copy_problems),
    (("thread_heads", "messages"), _version_problems),
    (("thread_heads", "branches", "messages"), tree_problems),
    (("labels", "messages"), label_problems),
    (("runs", "branches", "messages"), run_problems),
    (("thread_heads", "runs"), pointer_problems),
    (("keys", "runs", "messages"), key_problems),
    (("state", "runs"), _state_problems),
    (("pending", "queues"), _queue_problems),
)
"""Which tables and logs a rule looks at, and the rule."""
