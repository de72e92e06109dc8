"""Memory does not grow with the file: not with its threads, not with the messages or the rows of one thread.

`tests/imports/big_file.py` shows it for a gigabyte. Here a file that is a megabyte longer must not take much more.
"""

from __future__ import annotations

import asyncio
import gc
import io
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.imports.big_file import lines_of

import perdure
from perdure import InvalidError
from perdure.stores.transfer.export import check_lines, export_lines, import_lines, read_lines
from perdure.stores.transfer.lines import LINE_BYTES

SMALL, LARGE = 500_000, 1_500_000
MOST_GROWTH = 500_000


def lines(kind: str, size: int) -> Iterator[bytes]:
    """The lines of a file. Python keeps thousands of dead tuples for later, which are not what we look for."""
    for number, line in enumerate(lines_of(kind, size)):
        if number % 50 == 0:
            gc.collect()
        yield line


async def peak_of(work: Callable[[], Awaitable[object]]) -> int:
    """The most memory that was in use at any moment of some work."""
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        await work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def insist_flat(what: str, small: int, large: int) -> None:
    print(f"{what}: {small:,} and {large:,} bytes")
    if large - small > MOST_GROWTH:
        raise AssertionError(f"{what}: {small:,} bytes for a file of {SMALL:,}, {large:,} for one of {LARGE:,}")


@pytest.mark.parametrize("kind", ["threads", "messages"])
def test_checking_a_file_takes_the_same_memory_whatever_its_size(kind: str) -> None:
    async def peak(size: int) -> int:
        async with perdure.open("memory://") as store:
            return await peak_of(lambda: check_lines(store, lambda: lines(kind, size)))

    async def scenario() -> None:
        insist_flat(kind, await peak(SMALL), await peak(LARGE))

    asyncio.run(scenario())


def test_importing_and_exporting_a_long_thread_takes_the_same_memory(tmp_path: Path) -> None:
    async def peaks(size: int) -> list[int]:
        url = f"sqlite:///{tmp_path / str(size)}.db"
        async with perdure.open(url, durability="process", housekeeping=False) as store:

            async def export() -> None:
                count = 0
                async for _ in export_lines(store):
                    count += 1
                    if count % 50 == 0:
                        gc.collect()

            return [await peak_of(lambda: import_lines(store, lambda: lines("rows", size))), await peak_of(export)]

    async def scenario() -> None:
        small, large = await peaks(SMALL), await peaks(LARGE)
        for what, one, other in zip(("import", "export"), small, large, strict=True):
            insist_flat(what, one, other)

    asyncio.run(scenario())


def test_a_line_without_an_end_is_not_read_to_its_end() -> None:
    """However long it is: reading stops where an import would refuse it."""

    class Endless(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            self.given += len(buffer)
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    async def scenario() -> None:
        endless = Endless()
        async with perdure.open("memory://") as store:
            with pytest.raises(InvalidError, match=f"line 1: longer than {LINE_BYTES:,} bytes"):
                await check_lines(store, lambda: read_lines(io.BufferedReader(endless)))
        if endless.given > 2 * LINE_BYTES:
            raise AssertionError(f"{endless.given:,} bytes were read")

    asyncio.run(scenario())


@pytest.mark.parametrize("field", ["key", "columns", "body"])
def test_a_line_of_brackets_is_refused_before_it_is_unfolded(field: str) -> None:
    """A list of empty lists takes thirty times the size of its text."""

    async def scenario() -> None:
        brackets = b"[" + b"[]," * 200_000 + b"[]]"
        fields = {"key": b'["t","","s"]', "columns": b'{"schema":1,"at":1}', "body": b"1", field: brackets}
        line = b'{"table":"state","key":%(key)s,"columns":%(columns)s,"body":%(body)s}'
        damaged = [
            b'{"perdure":1,"schema":2,"scope":"default"}',
            line % {name.encode(): value for name, value in fields.items()},
        ]
        async with perdure.open("memory://") as store:

            async def refused() -> None:
                with pytest.raises(InvalidError, match=r"line 2: .*bytes, the limit"):
                    await check_lines(store, lambda: damaged)

            peak = await peak_of(refused)
        if peak > 4 * len(brackets):
            raise AssertionError(f"{peak:,} bytes for a line of {len(brackets):,}")

    asyncio.run(scenario())
