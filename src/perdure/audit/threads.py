"""One thread, whole: every row of it from one snapshot, and its log up to the length which that snapshot showed.

So a thread that is being written to is judged as it was at one moment. If it is deleted (or replaced by another under
the same id) while its log is read, its findings are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.audit.findings import UNREADABLE, Audit, problem_of
from perdure.audit.log import LOG, read_log
from perdure.errors import ConflictError, CorruptError, NotFoundError, UnavailableError
from perdure.kernel import codec
from perdure.kernel.ops import Get, Heads, LogEntry, Read, Ref, Row, Scan
from perdure.kernel.schema import Table
from perdure.model.message import MessageRecord
from perdure.rules.soundness.stored import ThreadRows
from perdure.rules.soundness.thread import thread_problems, wanted_seqs
from perdure.stores.ownership import owned_tables, scan_of
from perdure.stores.records import MessageEntry
from perdure.stores.soundness import body_problems, row_problems
from perdure.stores.tombstones import is_arriving, is_dispersing

COLD, HOT = "threads", "thread_heads"
HISTORIES = 20
"""How many branches of a thread have their history looked at: the current one and the newest."""

HISTORY_TAIL = 1_000


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A thread as one view saw it: its rows, the length of its log, its children and its parent."""

    thread: str
    tables: dict[str, Sequence[Row]]
    length: int
    children: Sequence[Row]
    parents: Sequence[Row]
    buried: Sequence[Row]
    """The parent's cold row: a deletion that has not reached this child yet leaves it below a tombstone."""

    def one(self, table: str) -> Row | None:
        """The thread's only row of a table, if it is there."""
        rows = self.tables[table]
        return rows[0] if rows else None


async def read_thread(audit: Audit, thread: str) -> Snapshot:
    """Every row of a thread, and its log's length, from one snapshot."""
    tables = owned_tables(audit.kernel.schema)
    head, (length,), children, parents, buried, *rows = await audit.view(
        Get(HOT, [(thread,)]),
        Heads(LOG, [thread]),
        Scan(HOT, "parent_created", (thread,)),
        Get(HOT, Ref(0, ("parent",))),
        Get(COLD, Ref(0, ("parent",))),
        *[scan_of(table, thread) for table in tables],
    )
    if type(length) is not int:
        raise CorruptError(f"the length of its log is {length!r:.80}", where=f"thread {thread!r}")
    by_table = {table.name: some for table, some in zip(tables, rows, strict=True)}
    by_table[HOT] = [row for row in head if row is not None]
    return Snapshot(thread=thread, tables=by_table, length=length, children=children, parents=parents, buried=buried)


async def check_thread(audit: Audit, thread: str) -> None:
    """Check everything of one thread."""
    before = len(audit.findings)
    try:
        snapshot = await read_thread(audit, thread)
    except UnavailableError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever reading it raises is what there is to report
        await _check_in_pieces(audit, thread, error)
        return
    head = snapshot.one(HOT)
    if head is None:
        _check_tombstone(audit, snapshot)
        return
    damaged = _check_rows(audit, snapshot, owned_tables(audit.kernel.schema))
    rows = _stored(snapshot, head)
    done = await read_log(audit, thread, snapshot.length, wanted_seqs(rows, damaged))
    if not done.sound:
        damaged.add(LOG)
    audit.collect(thread_problems(rows, done.facts, damaged))
    _check_family(audit, snapshot, head)
    await _check_pending(audit, snapshot)
    if len(audit.findings) == before:
        await _check_histories(audit, rows, head)
    elif await _is_another(audit, head):
        del audit.findings[before:]


async def _check_in_pieces(audit: Audit, thread: str, error: Exception) -> None:
    """A thread that cannot be read as a whole: each table by itself, then the log, so that one damage hides no other.

    What holds between the tables is not asked: they do not come from one moment, and one of them is not there.
    """
    before = len(audit.findings)
    for table in owned_tables(audit.kernel.schema):
        try:
            rows: list[Row] = (await audit.view(scan_of(table, thread)))[0]
        except UnavailableError:
            raise
        except Exception as damage:  # noqa: BLE001 - whatever reading it raises is what there is to report
            audit.report(UNREADABLE, f"{table.name} of thread {thread!r}", problem_of(damage))
            continue
        _check_table_rows(audit, table, rows)
    ((length,),) = await audit.view(Heads(LOG, [thread]))
    if type(length) is int:
        await read_log(audit, thread, length, set())
    if len(audit.findings) == before:
        audit.report(UNREADABLE, f"thread {thread!r}", problem_of(error))


def _check_rows(audit: Audit, snapshot: Snapshot, tables: Sequence[Table]) -> set[str]:
    """Check every row by itself; the tables that have a row whose columns are not sound."""
    return {table.name for table in tables if not _check_table_rows(audit, table, snapshot.tables[table.name])}


def _check_table_rows(audit: Audit, table: Table, rows: Sequence[Row]) -> bool:
    """Check rows of one table by themselves; False if the columns of one are not sound."""
    sound = True
    for row in rows:
        if audit.collect(row_problems(table, row)):
            sound = False
        else:
            audit.collect(body_problems(table.name, row))
    return sound


def _stored(snapshot: Snapshot, head: Row) -> ThreadRows:
    return ThreadRows(
        thread=snapshot.thread,
        head=head,
        cold=snapshot.one(COLD),
        length=snapshot.length,
        statuses={str(row.key[0]): row["status"] for row in snapshot.tables["runs"]},
        branches=snapshot.tables["branches"],
        runs=snapshot.tables["runs"],
        labels=snapshot.tables["labels"],
        state=snapshot.tables["state"],
        keys=snapshot.tables["keys"],
        pending=snapshot.tables["pending"],
        queue=snapshot.one("queues"),
    )


async def _is_another(audit: Audit, head: Row) -> bool:
    now = (await audit.view(Get("thread_heads", [head.key])))[0][0]
    return now is None or now["born"] != head["born"]


def _check_tombstone(audit: Audit, snapshot: Snapshot) -> None:
    cold, record = snapshot.one(COLD), f"thread {snapshot.thread!r}"
    before = len(audit.findings)
    _check_rows(audit, snapshot, [audit.kernel.schema.table[COLD]])
    if cold is None or len(audit.findings) > before:
        return
    if not audit.expect(cold["deleted_at"] is not None, "thread.rows", record, "it has no hot row but is not deleted"):
        return
    leftovers = [name for name in ("parent", "resource", "title") if cold[name] is not None]
    if not is_arriving(cold) and not is_dispersing(cold) and codec.decode(cold.body, record) != {}:
        leftovers.append("metadata")
    audit.expect(not leftovers, "thread.tombstone", record, f"it is deleted and keeps its {', '.join(leftovers)}")
    if cold["erased_at"] is not None:
        audit.expect(
            snapshot.length == 0, "thread.tombstone", record, f"it is erased, {snapshot.length} messages are there"
        )


def _check_family(audit: Audit, snapshot: Snapshot, head: Row) -> None:
    record, count, parent = f"thread {snapshot.thread!r}", head["children"], head["parent"]
    there = len(snapshot.children)
    audit.expect(count == there, "thread.children", record, f"it counts {count} children, there are {there}")
    known = parent is None or bool(snapshot.parents) or any(map(is_dispersing, snapshot.buried))
    audit.expect(known, "thread.parent", record, f"its parent {parent!r} does not exist")


async def _check_pending(audit: Audit, snapshot: Snapshot) -> None:
    """No pending message is in the log: it would have been consumed."""
    ids = tuple(row.key[1] for row in snapshot.tables["pending"])
    if not ids:
        return
    entries: list[LogEntry] = (await audit.view(Read(LOG, snapshot.thread, where={"id": ids}, upto=snapshot.length)))[0]
    for entry in map(MessageEntry._make, entries):
        record = f"pending message {entry.id!r} of thread {snapshot.thread!r}"
        audit.report("pending.body", record, "it is in the log too")


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
            return f"message {record.seq} answers {answered!r}, a call that no earlier message makes"
        asked.update(call.id for call in record.message.tool_calls)
    return None
