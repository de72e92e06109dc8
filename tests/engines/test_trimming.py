"""Logs that are trimmed, on every engine and face: what goes, what stays, and where entries start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engines.toys import EMBEDDED, SCOPE, SERVERS, do, drive, note, open_at, open_engine, refused

from perdure import limits
from perdure.clock import ManualClock
from perdure.copy import copy_engine
from perdure.errors import ConflictError, CursorExpired, InvalidError
from perdure.kernel.engine import Conflict, Engine
from perdure.kernel.ops import ABSENT, NOW, PRESENT, Append, Check, Drop, Heads, Put, Read, Segment, Trim
from perdure.kernel.validate import Kernel

EVERY = [*EMBEDDED, *SERVERS]


def feed(topic: str, *names: str | None, branch: int = 0, **options: Any) -> Append:
    return Append("feed", topic, [(name, "k", branch, NOW, b"{}") for name in names], **options)


async def numbers(engine: Engine, topic: str = "t", **options: Any) -> list[int]:
    (entries,) = await engine.view(SCOPE, [Read("feed", topic, **options)])
    return [entry[0] for entry in entries]


async def head(engine: Engine, topic: str = "t") -> int:
    ((last,),) = await engine.view(SCOPE, [Heads("feed", [topic])])
    return int(last)


def test_a_trim_removes_the_oldest_and_never_the_newest(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, Trim("feed", "t", 5))
        await do(engine, feed("t", "a", "b", "c", "d", "e"), feed("u", "a"))
        for upto, left in ((0, [1, 2, 3, 4, 5]), (2, [3, 4, 5]), (1, [3, 4, 5]), (9, [5]), (9, [5])):
            await do(engine, Trim("feed", "t", upto))
            assert (await numbers(engine), await head(engine)) == (left, 5)
        applied = await do(engine, feed("t", "f", expect=5))
        assert applied.seqs == {("feed", "t"): 6}
        assert (await numbers(engine), await numbers(engine, "u")) == ([5, 6], [1])
        await do(engine, Trim("feed", "u", 1))
        assert (await numbers(engine, "u"), await engine.check()) == ([1], [])

    on(scenario)


def test_one_trim_removes_a_limited_number(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        most = limits.TRIM_ENTRIES
        await do(engine, feed("t", *[f"n{n}" for n in range(most + 5)]))
        await do(engine, Trim("feed", "t", most + 2))
        assert await numbers(engine) == [most + n for n in (1, 2, 3, 4, 5)]
        await do(engine, feed("t", *[f"n{n}" for n in range(most)]))
        kernel = Kernel(engine)
        assert await kernel.bases(SCOPE, "feed", ["t", "none"]) == [most, 0]
        assert await kernel.trim(SCOPE, "feed", "t", 2 * most + 3) == 2 * most + 3
        assert await numbers(engine) == [2 * most + 4, 2 * most + 5]
        assert await kernel.trim(SCOPE, "feed", "t", 9 * most) == 2 * most + 4
        assert await kernel.trim(SCOPE, "feed", "t", 3) == 2 * most + 4
        assert await kernel.trim(SCOPE, "feed", "none", 3) == 0
        assert (await numbers(engine), await engine.check()) == ([2 * most + 5], [])

    on(scenario)


def test_unique_values_of_trimmed_entries_are_free(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, feed("t", "a", None, "b", "c"))
        await do(engine, Trim("feed", "t", 2))
        assert await numbers(engine, where={"id": "a"}) == []
        assert (await refused(do(engine, feed("t", "b")))).actual == {"id": "b"}
        await do(engine, feed("t", "a"))
        assert await numbers(engine, where={"id": ("a", "c")}) == [4, 5]
        assert await numbers(engine, where={"id": None}) == []
        assert (await refused(do(engine, feed("t", "a")))).kind == "unique"
        assert await engine.check() == []

    on(scenario)


def test_every_way_of_reading_a_trimmed_log(on: Any) -> None:
    """Compared with the same entries in a log that was never trimmed."""
    branches = [0, 0, 1, 1, 1, 0, 2, 2, 0, 1, 1, 1, 0]

    async def scenario(engine: Engine) -> None:
        entries = [note(f"n{n}", branch=branch, kind="xy"[n % 2]) for n, branch in enumerate(branches)]
        await do(engine, Append("feed", "t", entries), Append("notes", "t", entries))
        for base in (0, 1, 4, 5, 9, 12):
            await do(engine, Trim("feed", "t", base))
            options: list[dict[str, Any]] = [{}, {"where": {"kind": "x"}}, {"where": {"id": ("n2", "n9", "n12")}}]
            options += [{"segments": (Segment(1, 0, 5), Segment(0, 5, None))}]
            options += [{"segments": (Segment(value, 0, None),)} for value in (0, 1, 2)]
            options = [{**some, **window} for some in options for window in WINDOWS]
            trimmed = await engine.view(SCOPE, [Read("feed", "t", **some) for some in options])
            whole = await engine.view(SCOPE, [Read("notes", "t", **_from(base, some)) for some in options])
            for some, one, other in zip(options, trimmed, whole, strict=True):
                assert [entry[0] for entry in one] == [entry[0] for entry in other], (base, some)
                assert [entry[2:6] for entry in one] == [entry[2:6] for entry in other], (base, some)
            assert await engine.check() == []

    on(scenario)


WINDOWS: tuple[dict[str, Any], ...] = (
    {},
    {"desc": True},
    {"after": 3},
    {"after": 5, "upto": 9, "desc": True},
    {"upto": 8},
    {"limit": 2},
    {"limit": 2, "desc": True},
    {"after": 12},
    {"after": 20},
)


def _from(base: int, options: dict[str, Any]) -> dict[str, Any]:
    """The same read, of what is left."""
    return {**options, "after": max(base, options.get("after", 0))}


def test_a_cursor_that_was_overtaken_has_expired(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        kernel = Kernel(engine)
        await do(engine, Append("feed", "t", [note(f"n{n}", branch=n % 2) for n in range(9)]))
        await do(engine, Trim("feed", "t", 4))
        ways: list[dict[str, Any]] = [
            {},
            {"limit": 2},
            {"limit": 0},
            {"upto": 3},
            {"upto": 8},
            {"desc": True},
            {"desc": True, "limit": 9},
            {"where": {"kind": "k"}},
            {"where": {"id": "n1"}},
            {"where": {"id": "none"}},
            {"segments": (Segment(0, 0),)},
            {"segments": (Segment(5, 0),)},
        ]
        for options in ways:
            for after in (0, 3):
                if options.get("upto", 9) <= after:
                    continue
                with pytest.raises(CursorExpired):
                    await kernel.view(SCOPE, NOW, Read("feed", "t", after=after, **options), Heads("feed", ["t"]))
            for after in (4, 5, 9, 20):
                now, entries, heads = await kernel.view(
                    SCOPE, NOW, Read("feed", "t", after=after, **options), Heads("feed", ["t"])
                )
                assert (type(now), heads) == (int, [9])
                assert [entry[0] for entry in entries] == await numbers(engine, after=after, **options)
        complete: dict[tuple[Segment, ...], list[int]] = {
            (): [],
            (Segment(0, 4, 7),): [5, 7],
            (Segment(1, 5, 8), Segment(0, 8)): [6, 8, 9],
        }
        for segments, expected in complete.items():
            (entries,) = await kernel.view(SCOPE, Read("feed", "t", segments=segments))
            assert [entry[0] for entry in entries] == expected, "the segments begin after the base"
        overtaken: list[tuple[Segment, ...]] = [(Segment(0, 3, 9),), (Segment(0, 1, 2), Segment(1, 6))]
        for segments in overtaken:
            with pytest.raises(CursorExpired):
                await kernel.view(SCOPE, Read("feed", "t", segments=segments))
        (newest,) = await kernel.view(SCOPE, Read("feed", "t", limit=3, desc=True))
        assert [entry[0] for entry in newest] == [9, 8, 7], "what was asked for is all there"
        assert await kernel.view(SCOPE, Read("feed", "none"), Read("feed", "none", upto=3)) == [[], []]
        (base,) = await kernel.bases(SCOPE, "feed", ["t"])
        (entries,) = await kernel.view(SCOPE, Read("feed", "t", after=base))
        assert [entry[0] for entry in entries] == [5, 6, 7, 8, 9]

    on(scenario)


def test_entries_start_where_they_are_told(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        applied = await do(engine, feed("t", "a", "b", start=7), feed("u", "a", start=1))
        assert applied.seqs == {("feed", "t"): 8, ("feed", "u"): 1}
        assert (await numbers(engine), await head(engine)) == ([7, 8], 8)
        for start in (1, 7, 8, 10):
            conflict = await refused(do(engine, feed("t", "x", start=start)))
            assert (conflict.kind, conflict.expected, conflict.actual) == ("length", start - 1, 8)
        assert (await refused(do(engine, feed("t", "a", start=9)))).kind == "unique"
        await do(engine, feed("t", "c", start=9), Put("items", ("i",), {"n": 1}))
        await do(engine, feed("t", "d", expect=9), feed("u", "b", start=2), feed("v", *"xyz", branch=3, start=100))
        assert await numbers(engine) == [7, 8, 9, 10]
        assert await numbers(engine, "v", segments=(Segment(3, 0),)) == [100, 101, 102]
        assert await numbers(engine, "v", where={"id": ("x", "z")}, desc=True) == [102, 100]
        await do(engine, *[feed(f"p{n}", f"{n}", start=n) for n in range(1, 45)])
        assert [await head(engine, f"p{n}") for n in (1, 44)] == [1, 44]
        assert await engine.partitions(SCOPE, "feed", after="t", limit=9) == ["u", "v"]
        assert await engine.check() == []

    on(scenario)


def test_a_trimmed_log_is_dropped_in_pieces(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, feed("t", *"abcdefgh"), feed("u", *"abc", start=50))
        await do(engine, Trim("feed", "t", 4))
        await do(engine, Drop("feed", "t", 6))
        assert (await numbers(engine), await head(engine)) == ([5, 6], 6)
        assert (await refused(do(engine, feed("t", "e")))).kind == "unique"
        await do(engine, feed("t", "g", branch=1))
        await do(engine, Drop("feed", "t", 4), Drop("feed", "u", 20))
        assert [await head(engine, topic) for topic in "tu"] == [0, 0]
        assert await engine.partitions(SCOPE, "feed", limit=9) == []
        assert await engine.check() == []
        applied = await do(engine, feed("t", "e", "g", expect=0), feed("u", "a"))
        assert applied.seqs == {("feed", "t"): 2, ("feed", "u"): 1}
        await do(engine, Drop("feed", "t"), Drop("feed", "u", 1))
        assert ([await head(engine, topic) for topic in "tu"], await engine.check()) == ([0, 1], [])

    on(scenario)


def test_a_trim_makes_its_checks(on: Any) -> None:
    async def scenario(engine: Engine) -> None:
        await do(engine, feed("t", *"abc"), Put("items", ("i",), {"n": 1}, None, ABSENT))
        conflict = await refused(do(engine, Check("items", ("i",), {"n": 2}), Trim("feed", "t", 2)))
        assert (conflict.op, conflict.kind, await numbers(engine)) == (0, "condition", [1, 2, 3])
        kernel = Kernel(engine)
        with pytest.raises(Conflict):
            await kernel.trim(SCOPE, "feed", "t", 2, checks=[Check("items", ("none",), PRESENT)])
        assert await kernel.trim(SCOPE, "feed", "t", 2, checks=[Check("items", ("i",), PRESENT)]) == 2
        assert await numbers(engine) == [3]

    on(scenario)


def test_what_the_door_refuses() -> None:
    async def main() -> None:
        engine = await open_engine("memory", Path(), ManualClock())
        kernel = Kernel(engine)
        wrong: list[list[Any]] = [
            [Trim("notes", "t", 1)],
            [Trim("plain", "t", 1)],
            [Trim("none", "t", 1)],
            [Trim("feed", "t", -1)],
            [Trim("feed", "t", True)],
            [Trim("feed", "t", 2**52 + 1)],
            [Trim("feed", 5, 1)],  # type: ignore[arg-type]
            [Trim("feed", "t", 1), Trim("feed", "u", 1)],
            [Trim("feed", "t", 1), feed("u", "a")],
            [Trim("feed", "t", 1), feed("t", "a")],
            [Trim("feed", "t", 1), Put("items", ("a",), {})],
            [Trim("feed", "t", 1), Drop("notes", "t")],
            [Append("notes", "t", [note("a")], start=1)],
            [feed("t", "a", start=0)],
            [feed("t", "a", start=True)],
            [feed("t", "a", start=2**52)],
            [feed("t", "a", start=1, expect=0)],
        ]
        for ops in wrong:
            with pytest.raises(InvalidError):
                await kernel.transact(SCOPE, ops)
        with pytest.raises(InvalidError):
            await kernel.trim(SCOPE, "notes", "t", 1)
        with pytest.raises(InvalidError):
            await kernel.bases(SCOPE, "none", ["t"])
        await engine.close()

    asyncio.run(main())


async def _fill(engine: Engine) -> None:
    """Logs that were trimmed, not trimmed, and dropped, with columns and bodies of all sorts."""
    for topic, count, upto in (("a", 1_700, 1_203), ("b", 3, 9), ("c", 40, 0), ("d", 7, 3)):
        entries = [(f"{topic}{n}", None, n % 3, 1_000 + n, b'{"n":%d}' % n) for n in range(count)]
        await engine.transact(SCOPE, [Append("feed", topic, entries), Append("notes", topic, entries)])
        await Kernel(engine).trim(SCOPE, "feed", topic, upto)
    await engine.transact(SCOPE, [Drop("feed", "d"), Put("items", ("i",), {"n": 1}, b"{}")])


async def _dump(engine: Engine) -> Any:
    reads = [Read(log, topic) for log in ("feed", "notes") for topic in "abcd"]
    answers = await engine.view(SCOPE, reads)
    bodies = [[body if isinstance(body, bytes) else body.encode() for *_, body in entries] for entries in answers]
    return [[(entry[0], *entry[2:-1]) for entry in entries] for entries in answers], bodies


class _Killed(Exception):
    """The copy ends here."""


@pytest.mark.parametrize("kind", EVERY)
def test_a_trimmed_log_is_copied_as_it_is(kind: str, tmp_path: Path) -> None:
    """From memory to the engine, killed several times on the way, and from there back to memory."""

    async def main() -> None:
        source = await open_engine("memory", tmp_path, ManualClock())
        await _fill(source)
        middle = await open_engine(kind, tmp_path, ManualClock())
        for steps in (1, 30, 400, 90):
            with pytest.raises(_Killed):
                await copy_engine(source, middle, on_progress=_killer(steps))
        await copy_engine(source, middle)
        assert await _dump(middle) == await _dump(source)
        assert (await copy_engine(source, middle)).missing == 0
        last = await open_at("memory", "", ManualClock())
        await copy_engine(middle, last)
        assert await _dump(last) == await _dump(source)
        applied = await do(last, feed("a", "x"), feed("b", "x"), feed("d", "x"))
        assert list(applied.seqs.values()) == [1_701, 4, 1]
        assert [await side.check() for side in (middle, last)] == [[], []]
        for engine in (source, middle, last):
            await engine.close()

    asyncio.run(main())


def _killer(steps: int) -> Any:
    copied = 0

    def stop(progress: Any) -> None:
        nonlocal copied
        copied += progress.stage == "copying"
        if copied > steps:
            raise _Killed

    return stop


def test_a_copy_notices_that_its_source_is_trimmed(tmp_path: Path) -> None:
    async def main() -> None:
        source, target = [await open_engine("memory", tmp_path, ManualClock()) for _ in range(2)]
        await _fill(source)

        def meddle(progress: Any) -> None:
            if (progress.stage, progress.done) == ("verifying", progress.total):
                drive(do(source, Trim("feed", "c", 5)))

        with pytest.raises(ConflictError, match="after it was verified"):
            await copy_engine(source, target, on_progress=meddle)

    asyncio.run(main())
