"""Reader threads: a long read holds up nobody, and an idle thread is used before another is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.engines import long_views
from tests.engines.toys import SCHEMA, SCOPE, drive, notes

from perdure.engines.sqlite import open_sqlite
from perdure.kernel.ops import Heads, ReadOp


def test_a_long_read_does_not_hold_up_the_next(tmp_path: Path) -> None:
    assert asyncio.run(long_views.run(tmp_path)) == 2


def test_one_read_after_another_needs_one_thread(tmp_path: Path) -> None:
    async def main() -> int:
        engine = await open_sqlite(str(tmp_path / "calm.db"), SCHEMA)
        for _ in range(50):
            await engine.view(SCOPE, [Heads("notes", ["t"])])
        started = len(engine._database.threads._threads)
        await engine.close()
        return started

    assert asyncio.run(main()) == 1


class _Interrupted(list[ReadOp]):
    """Reads with something happening between the first and the others."""

    def __init__(self, reads: Sequence[ReadOp], between: Callable[[], object]) -> None:
        super().__init__(reads)
        self._between = between

    def __iter__(self) -> Iterator[ReadOp]:
        for number in range(len(self)):
            if number == 1:
                self._between()
            yield self[number]


def test_the_reads_of_a_view_see_one_moment(tmp_path: Path) -> None:
    engine = drive(open_sqlite(str(tmp_path / "one.db"), SCHEMA))
    heads = Heads("notes", ["t"])
    blocking = engine.blocking()
    reads = _Interrupted([heads, heads], lambda: drive(blocking.transact(SCOPE, [notes("t", "x")])))
    assert engine._database.readers.view(SCOPE, reads) == [[0], [0]]
    assert engine._database.readers.view(SCOPE, [heads]) == [[1]]
    drive(blocking.close())
