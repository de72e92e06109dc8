"""One thread, whole: every row of it from one snapshot, and its log up to the length which that snapshot showed.

So a thread that is being written to is judged as it was at one moment. If it is deleted (or replaced by another under
the same id) while its log is read, what was found is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.errors import ConflictError, CorruptError, NotFoundError
from perdure.kernel import codec
from perdure.kernel.ops import Get, Heads, Read, Ref, Row, Scan
from perdure.model.message import MessageRecord
from perdure.stores.records import pending_from, thread_from
from perdure.testkit.auditor_branches import branch_seqs, check_branches, check_labels
from perdure.testkit.auditor_findings import Audit
from perdure.testkit.auditor_log import LOG, read_log
from perdure.testkit.auditor_runs import check_keys, check_runs, key_seqs, run_seqs

HISTORIES = 20
"""How many branches of a thread have their history looked at: the current one and the newest."""

HISTORY_TAIL = 1_000


class ThreadRows(msgspec.Struct, frozen=True, kw_only=True):
    """A thread as one snapshot saw it."""

    thread: str
    head: Row | None
    cold: Row | None
    length: int
    branches: Sequence[Row]
    runs: Sequence[Row]
    labels: Sequence[Row]
    state: Sequence[Row]
    keys: Sequence[Row]
    pending: Sequence[Row]
    queue: Row | None
    children: Sequence[Row]
    parents: Sequence[Row]


async def read_thread(audit: Audit, thread: str) -> ThreadRows:
    """Every row of a thread, and its log's length, from one snapshot."""
    head, cold, lengths, branches, runs, labels, state, keys, pending, queue, children, parents = await audit.view(
        Get("thread_heads", [(thread,)]),
        Get("threads", [(thread,)]),
        Heads(LOG, [thread]),
        Scan("branches", eq=(thread,)),
        Scan("runs", "thread", (thread,)),
        Scan("labels", eq=(thread,)),
        Scan("state", eq=(thread,)),
        Scan("keys", eq=(thread,)),
        Scan("pending", eq=(thread,)),
        Get("queues", [(thread,)]),
        Scan("thread_heads", "parent_created", (thread,)),
        Get("thread_heads", Ref(0, ("parent",))),
    )
    return ThreadRows(
        thread=thread,
        head=head[0],
        cold=cold[0],
        length=lengths[0],
        branches=branches,
        runs=runs,
        labels=labels,
        state=state,
        keys=keys,
        pending=pending,
        queue=queue[0],
        children=children,
        parents=parents,
    )


async def check_thread(audit: Audit, thread: str) -> None:
    """Check everything of one thread."""
    before = len(audit.findings)
    rows = await read_thread(audit, thread)
    if rows.head is None:
        _check_tombstone(audit, rows)
        return
    _check_head(audit, rows, rows.head)
    seqs = {*branch_seqs(rows.branches, rows.labels), *run_seqs(rows.runs), *key_seqs(rows.keys)}
    facts = await read_log(audit, thread, rows.length, seqs)
    check_branches(audit, rows.head, rows.branches, facts)
    check_labels(audit, thread, rows.labels, facts)
    check_runs(audit, rows.head, rows.runs, rows.branches, facts)
    check_keys(audit, thread, rows.keys, rows.runs, facts)
    _check_state(audit, rows)
    await _check_queue(audit, rows)
    if len(audit.findings) == before:
        await _check_histories(audit, rows, rows.head)
    elif await _is_another(audit, rows.head):
        del audit.findings[before:]


async def _is_another(audit: Audit, head: Row) -> bool:
    now = (await audit.view(Get("thread_heads", [head.key])))[0][0]
    return now is None or now["born"] != head["born"]


def _check_tombstone(audit: Audit, rows: ThreadRows) -> None:
    cold, record = rows.cold, f"thread {rows.thread!r}"
    if cold is None:
        return
    if not audit.expect(cold["deleted_at"] is not None, "thread.rows", record, "it has no hot row but is not deleted"):
        return
    kept = [name for name in ("parent", "resource", "title") if cold[name] is not None]
    audit.expect(not kept, "thread.tombstone", record, f"it is deleted and keeps its {', '.join(kept)}")
    if cold["erased_at"] is not None:
        audit.expect(rows.length == 0, "thread.tombstone", record, f"it is erased, {rows.length} messages are there")


def _check_head(audit: Audit, rows: ThreadRows, head: Row) -> None:
    record = f"thread {rows.thread!r}"
    audit.expect(
        head["version"] == rows.length, "log.version", record, f"version {head['version']}, log of {rows.length}"
    )
    audit.expect(
        head["children"] == len(rows.children),
        "thread.children",
        record,
        f"it counts {head['children']} children, there are {len(rows.children)}",
    )
    parent = head["parent"]
    there = parent is None or (bool(rows.parents) and parent != rows.thread)
    audit.expect(there, "thread.parent", record, f"its parent {parent!r} does not exist or is itself")
    _check_cold(audit, rows, head)


def _check_cold(audit: Audit, rows: ThreadRows, head: Row) -> None:
    cold, record = rows.cold, f"thread {rows.thread!r}"
    if cold is None or cold["deleted_at"] is not None or cold["erased_at"] is not None:
        audit.report("thread.rows", record, f"its cold row is {'missing' if cold is None else 'a tombstone'}")
        return
    for name in ("parent", "resource", "created_at"):
        audit.expect(cold[name] == head[name], "thread.copies", record, f"{name} is {cold[name]!r} and {head[name]!r}")
    try:
        thread_from(cold, head)
    except CorruptError as error:
        audit.report("thread.body", record, error.message)


def _check_state(audit: Audit, rows: ThreadRows) -> None:
    runs = {str(row.key[0]) for row in rows.runs}
    for row in rows.state:
        _, run, name = row.key
        record = f"state {name!r} of thread {rows.thread!r}"
        audit.expect(not run or run in runs, "state.owner", record, f"its run {run!r} is not one of the thread")
        try:
            codec.decode(row.body, record)
        except CorruptError as error:
            audit.report("state.body", record, error.message)
            continue
        right = row.body is not None and row["schema"] is not None and row["schema"] >= 1
        audit.expect(right, "state.body", record, f"schema {row['schema']}, body {row.body!r:.40}")


async def _check_queue(audit: Audit, rows: ThreadRows) -> None:
    record, count = f"the queue of thread {rows.thread!r}", len(rows.pending)
    written = (0, None) if rows.queue is None else (rows.queue["count"], rows.queue["waiting"])
    due = (count, rows.thread if count else None)
    audit.expect(written == due, "queue", record, f"it says (count, waiting) {written}, the messages say {due}")
    places = sorted(row["position"] or 0 for row in rows.pending)
    audit.expect(places == list(range(1, count + 1)), "pending.place", record, f"the places are {places[:20]}")
    ids = tuple(str(row.key[1]) for row in rows.pending)
    read = Read(LOG, rows.thread, where={"id": ids}, upto=rows.length) if ids else None
    consumed = {entry[2] for entry in (await audit.view(read))[0]} if read is not None else set()
    for row in rows.pending:
        record = f"pending message {row.key[1]!r} of thread {rows.thread!r}"
        audit.expect(row.key[1] not in consumed, "pending.body", record, "it is in the log too")
        try:
            item = pending_from(row)
        except CorruptError as error:
            audit.report("pending.body", record, error.message)
            continue
        audit.expect(item.message.id == row.key[1], "pending.body", record, f"its message says {item.message.id!r}")


async def _check_histories(audit: Audit, rows: ThreadRows, head: Row) -> None:
    alive = [int(row.key[1]) for row in rows.branches if row["deleted_at"] is None]
    chosen = dict.fromkeys([head["branch"], *reversed(alive[-HISTORIES:])])
    for branch in list(chosen)[:HISTORIES]:
        record = f"the history of branch {branch} of thread {rows.thread!r}"
        try:
            history = await audit.store.messages.history(rows.thread, branch=branch, limit=HISTORY_TAIL)
        except (NotFoundError, ConflictError):
            return  # deleted, or changing all the time: not as it was in the snapshot any more
        except CorruptError as error:
            audit.report("history", record, error.message)
            continue
        problem = unpaired_result(history)
        audit.expect(problem is None, "history", record, problem or "")


def unpaired_result(history: Sequence[MessageRecord]) -> str | None:
    """What breaks the pairing of calls and results in a history, if anything does."""
    asked: set[str] = set()
    for record in history:
        answered = record.message.tool_call_id
        if answered is not None and answered not in asked:
            return f"message {record.seq} answers {answered!r}, which nobody asked before"
        asked.update(call.id for call in record.message.tool_calls)
    return None
