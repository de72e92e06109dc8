"""Long reads by LRANGE: which reads are fetched like this, and what happens if the log changes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from tests.engines.redis_place import empty, engine_at
from tests.engines.toys import SCOPE, note

from perdure.engines.redis.connections.resp import command
from perdure.engines.redis.read.direct import DirectRead, DirectReads, Location
from perdure.kernel.ops import Append, Now, Read, ReadOp, Segment

BASE = b"p:{s}:"


def location(*bounds: int, last: bytes = b"c") -> Location:
    return Location(msgspec.Raw(msgspec.msgpack.encode((list(bounds), msgspec.Raw(msgspec.msgpack.encode(last))))))


def test_a_whole_stretch_is_fetched_and_nothing_else() -> None:
    chosen = DirectReads().choose(BASE, [Now(), Read("notes", "t", segments=(Segment(0, 2, None),))])
    assert chosen is not None
    assert (chosen.number, chosen.low, chosen.key) == (1, 2, b"p:{s}:l:notes:t")
    assert chosen.command.endswith(b"$1\r\n2\r\n$2\r\n-1\r\n")
    bounded = DirectReads().choose(BASE, [Read("notes", "t", after=1, upto=5)])
    assert bounded is not None
    assert bounded.command.endswith(b"$1\r\n1\r\n$1\r\n4\r\n")
    others = [
        Read("notes", "t", limit=5),
        Read("notes", "t", desc=True),
        Read("notes", "t", where={"id": "a"}),
        Read("notes", "t", segments=()),
        Read("notes", "t", segments=(Segment(0, 0, 3), Segment(1, 3, None))),
        Read("notes", "t", after=3, upto=3),
    ]
    assert [DirectReads().choose(BASE, [read]) for read in others] == [None] * len(others)


def test_entries_that_are_gone_or_named_twice_are_read_again() -> None:
    reads = DirectReads()
    chosen = reads.choose(BASE, [Read("notes", "t")])
    assert chosen is not None
    fetched = ["a", "b", "c"]
    assert reads.entries(chosen, location(0, 3), fetched) == ["a", "b", "c"]
    assert reads.entries(chosen, location(0, 1, 2, 3), fetched) == ["a", "c"]
    assert reads.entries(chosen, location(), fetched) == []
    assert reads.entries(chosen, location(0, 4), fetched) is None
    assert reads.entries(chosen, location(0, 3, 0, 3), fetched) is None
    assert reads.entries(chosen, location(2, 1), fetched) is None


def test_a_log_of_which_little_is_used_is_left_to_the_script() -> None:
    reads = DirectReads()
    read = Read("notes", "t", segments=(Segment(0, 0, None),))
    chosen = reads.choose(BASE, [read])
    assert chosen is not None
    assert reads.entries(chosen, location(0, 10), ["e"] * 100) == ["e"] * 10
    assert reads.choose(BASE, [read]) is None


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_log_that_was_rewritten_between_script_and_fetch_is_read_again(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LRANGE is sent for another list, as if the log had been dropped and written anew after the script ran."""

    async def main() -> None:
        async with engine_at(await empty()) as engine:
            for partition, length in (("t", 3), ("u", count)):
                entries = [note(f"{partition}-{n}") for n in range(length)]
                await engine.transact(SCOPE, [Append("notes", partition, entries)])
            before = await engine.view(SCOPE, [Read("notes", "t")])
            choose, fetches = DirectReads.choose, []

            def misled(self: DirectReads, base: bytes, reads: Sequence[ReadOp]) -> DirectRead | None:
                chosen = choose(self, base, reads)
                if chosen is None:
                    return None
                fetches.append(chosen)
                return chosen._replace(command=command(b"LRANGE", chosen.key[:-1] + b"u", b"0", b"-1"))

            monkeypatch.setattr(DirectReads, "choose", misled)
            assert await engine.view(SCOPE, [Read("notes", "t")]) == before
            assert len(before[0]) == 3
            assert fetches

    asyncio.run(main())


def test_an_error_in_place_of_the_entries_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with engine_at(await empty()) as engine:
            await engine.transact(SCOPE, [Append("notes", "t", [note("a"), note("b")])])
            before = await engine.view(SCOPE, [Read("notes", "t")])
            choose = DirectReads.choose

            def misled(self: DirectReads, base: bytes, reads: Sequence[ReadOp]) -> DirectRead | None:
                chosen = choose(self, base, reads)
                return None if chosen is None else chosen._replace(command=command(b"LRANGE", chosen.key, b"x", b"y"))

            monkeypatch.setattr(DirectReads, "choose", misled)
            assert await engine.view(SCOPE, [Read("notes", "t")]) == before

    asyncio.run(main())
