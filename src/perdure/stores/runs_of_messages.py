"""Which run a message belongs to: the one that produced it, or the first that was started with it.

A message that a run produced names the run. A question does not, because several runs may have answered it; the row of
the run that it was committed with says where the run's input begins and ends. A rerun has none of its own in its row.
"""

from __future__ import annotations

from perdure import limits
from perdure.errors import NotFoundError
from perdure.kernel.ops import Get, Read, Row, Scan
from perdure.model.run import Run
from perdure.stores.commit.run_change import LOG
from perdure.stores.context import Context, require
from perdure.stores.records import MessageEntry, run_from


async def find_run_of_message(context: Context, thread_id: str, message_id: str) -> Run | None:
    """The run that produced a message, else the first that was started with it; None if there is none.

    The first, because it stays the same when the message is answered again. Raises `NotFoundError` if the thread does
    not have the message.
    """
    heads, entries = await context.view(
        Get("thread_heads", [(thread_id,)]), Read(LOG, thread_id, where={"id": message_id})
    )
    require(heads[0], f"thread {thread_id!r}")
    if not entries:
        raise NotFoundError(f"message {message_id!r} is not in thread {thread_id!r}")
    entry = MessageEntry._make(entries[0])
    if entry.run is not None:
        (rows,) = await context.view(Get("runs", [(entry.run,)]))
        if rows[0] is not None and rows[0]["thread"] == thread_id:
            return run_from(rows[0])
    row = await _first_run_given(context, thread_id, entry.seq)
    return None if row is None else run_from(row)


async def _first_run_given(context: Context, thread_id: str, seq: int) -> Row | None:
    """The oldest run whose input has this message."""
    # Most questions are one message: the engine finds their run without sending the others.
    rows: list[Row] = (await context.view(Scan("runs", "thread", (thread_id,), None, 1, where={"input_first": seq})))[0]
    if rows:
        return rows[0]
    after = None
    while True:
        # `upto` leaves out the runs whose input begins later, and those without input.
        scan = Scan("runs", "thread", (thread_id,), after, limits.PAGE_MAX, upto={"input_first": seq})
        rows = (await context.view(scan))[0]
        for row in rows:
            if row["input_last"] >= seq:
                return row
        if len(rows) < limits.PAGE_MAX:
            return None
        after = (rows[-1]["created_at"], rows[-1].key[0])
