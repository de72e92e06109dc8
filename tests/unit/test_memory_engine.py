"""The memory engine's own promises: indexes that are brought up to date when read, and commits that copy nothing."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import tracemalloc

import pytest

import perdure
from perdure import Message, Store
from perdure.engines.memory.schema import TableData
from perdure.kernel.ops import Row
from perdure.kernel.schema import Index, Table, integer, text

TABLE = Table(
    "things",
    key=text("id"),
    columns=text("kind", "name") + integer("at"),
    indexes=(Index("kind", by=("kind",), order=("at",)), Index("sparse", by=("kind",), order=("at",), sparse=True)),
    unique=(("name",),),
)


def _row(key: str, kind: str | None, name: str | None, at: int | None) -> Row:
    return Row((key,), (kind, name, at), 1, None, TABLE.positions)


def _expected(rows: dict[str, Row], kind: str | None, *, sparse: bool) -> list[tuple[str]]:
    if sparse and kind is None:
        return []
    matches = [(row["at"], key) for key, row in rows.items() if row["kind"] == kind and row["at"] is not None]
    return [(key,) for _, key in sorted(matches)]


@pytest.mark.parametrize("reads", [0.02, 0.5])
def test_an_index_shows_every_write_before_it(reads: float) -> None:
    chance = random.Random(f"memory {reads}")
    data, rows = TableData(TABLE), dict[str, Row]()
    for number in range(3_000):
        key = f"k{chance.randrange(40)}"
        if chance.random() < 0.3:
            data.replace((key,), None)
            rows.pop(key, None)
        else:
            kind, at = chance.choice([None, "a", "b"]), chance.choice([None, *range(20)])
            rows[key] = _row(key, kind, f"n{number}" if chance.random() < 0.5 else None, at)
            data.replace((key,), rows[key])
        if chance.random() < reads:
            for kind in (None, "a", "b"):
                for index in ("kind", "sparse"):
                    expected = _expected(rows, kind, sparse=index == "sparse")
                    assert list(data.walk(index, (kind,), None, desc=False)) == expected
                    assert list(data.walk(index, (kind,), None, desc=True)) == expected[::-1]
            assert list(data.walk(None, (), None, desc=False)) == sorted((key,) for key in rows)
    named = {(row["name"],): (key,) for key, row in rows.items() if row["name"] is not None}
    assert data.owners[("name",)] == named


def test_rows_that_come_and_go_leave_nothing_behind() -> None:
    data = TableData(TABLE)
    for number in range(100):
        data.replace((f"k{number}",), _row(f"k{number}", "a", None, number))
        data.replace((f"k{number}",), None)
    assert not data.rows
    assert not data._stale


async def _peak(store: Store, thread: str, commits: int = 15) -> float:
    """The median of the most memory that a commit held beyond what was there before."""
    peaks = []
    message = [Message.user("Hello")]
    for _ in range(commits):
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        await store.commit(thread, messages=message)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    return statistics.median(peaks)


def test_a_commit_copies_nothing_that_grows() -> None:
    """A copy of the ids of 3,000 messages, or of a list of 3,000 threads, is over 24 KB."""

    async def main() -> list[float]:
        async with perdure.open("memory://", housekeeping=False) as store:
            for number in range(3_000):
                await store.commit(f"t-{number}", messages=[Message.user("Hello")])
            for _ in range(3):
                await store.commit("long", messages=[Message.user("Hello")] * 1_000)
            await store.threads.list()
            tracemalloc.start()
            try:
                return [await _peak(store, "long"), await _peak(store, "t-7")]
            finally:
                tracemalloc.stop()

    gc.collect()
    for peak in asyncio.run(main()):
        assert peak < 20_000
