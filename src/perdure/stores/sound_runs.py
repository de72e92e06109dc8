"""Runs page by page, without the damaged ones: for workers, whom one damaged run must not keep from all others.

`runs.list` raises `CorruptError` for a whole page, and does not say where to continue. Then the page is read from the
engine, and checked row by row as a store does it.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure import limits
from perdure.errors import CorruptError
from perdure.kernel.cursor import decode_cursor, encode_cursor
from perdure.kernel.ops import NOW, Get, Row, Scan
from perdure.model.page import Page
from perdure.model.run import Run
from perdure.stores.answer_checks import answer_check
from perdure.stores.records import run_from
from perdure.stores.runs import RunList
from perdure.stores.store import Store

Runs = list[Run]


async def engine_time(store: Store) -> int:
    """The engine's time, by which it stamps what it stores."""
    time: int = (await store.engine.view(store.scope, [NOW]))[0]
    return time


class RunPages:
    """The runs of a store, the oldest first, without the damaged ones; `note` is called with the error of each."""

    def __init__(self, store: Store, note: Callable[[CorruptError], None]) -> None:
        self._store = store
        self._note = note

    async def read(self, status: str, *, cursor: str | None = None, thread_id: str | None = None) -> Page[Run]:
        """A page of the runs with a status: all, or those of a thread."""
        try:
            return await self._store.runs.list(
                status=status, thread_id=thread_id, order="asc", limit=limits.PAGE_MAX, cursor=cursor
            )
        except CorruptError:
            # The list need not say which run is damaged, and there may be several.
            return await self._read_row_by_row(RunList(thread_id, status, None, None, "asc", ready=False), cursor)

    async def _read_row_by_row(self, runs: RunList, cursor: str | None) -> Page[Run]:
        after = None if cursor is None else decode_cursor(cursor, runs.query, (int, str))
        scan = runs.scan(limits.PAGE_MAX, after)
        (rows,) = await self._store.engine.view(self._store.scope, [scan])
        sound = await self._alive([run for row in rows if (run := self._checked(scan, row)) is not None])
        keysets = [(row["created_at"], row.key[0]) for row in rows if _is_time(row["created_at"])]
        more = len(rows) == limits.PAGE_MAX and keysets
        return Page(sound, encode_cursor(runs.query, keysets[-1]) if more else None)

    def _checked(self, scan: Scan, row: Row) -> Run | None:
        try:
            answer_check(self._store.engine.schema)([scan], [[row]])
            return run_from(row)
        except CorruptError as error:
            self._note(error)
            return None

    async def _alive(self, runs: Runs) -> Runs:
        """Without the runs of threads that are being erased."""
        keys = [(thread_id,) for thread_id in dict.fromkeys(run.thread_id for run in runs)]
        heads = (await self._store.engine.view(self._store.scope, [Get("thread_heads", keys)]))[0] if keys else []
        alive = {head.key[0] for head in heads if head is not None}
        return [run for run in runs if run.thread_id in alive]


def _is_time(value: object) -> bool:
    """May a cursor contain it? A damaged column may have anything."""
    return type(value) is int and 0 <= value <= limits.INTEGER_MAX
