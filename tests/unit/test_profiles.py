"""Profiles where the conformance cases do not reach: old files, read-only stores, copies, hostile imports, blocking."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
import perdure.sync
from perdure import InvalidError, Message, Store, limits
from perdure.audit import verify_engine
from perdure.clock import ManualClock
from perdure.copy.engines import copy_engine
from perdure.engines.memory import open_memory
from perdure.engines.sqlite import open_sqlite
from perdure.errors import UnsupportedError
from perdure.kernel.ops import Scan
from perdure.stores.schema import SCHEMA
from perdure.stores.transfer.export import export_lines, import_lines

WITHOUT_PROFILES = msgspec.structs.replace(
    SCHEMA, version=2, tables=tuple(table for table in SCHEMA.tables if table.name != "profiles")
)


def test_an_older_file_gains_the_table(tmp_path: Path) -> None:
    path = tmp_path / "old.db"

    async def main() -> None:
        old = Store(await open_sqlite(str(path), WITHOUT_PROFILES))
        await old.commit("t", messages=[Message.user("hello")])
        lines = [line async for line in export_lines(old)]
        await old.close()
        async with perdure.open(path, housekeeping=False) as store:
            made = await store.profiles.put("app", "k", 1, ttl_ms=60_000)
            assert await store.profiles.get("app", "k") == made
            assert [record.text for record in await store.messages.history("t")] == ["hello"]
            assert await verify_engine(store.engine) == []
            copy = store.scoped("copy")
            await import_lines(copy, lambda: lines)
            assert (await copy.threads.get("t")).version == 1

    asyncio.run(main())


def test_a_read_only_store_reads_and_refuses_to_write(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with perdure.sync.open(path) as store:
        made = store.profiles.put("app", "k", 1)
    with perdure.sync.open(path, read_only=True) as store:
        assert store.profiles.get("app", "k") == made
        assert store.profiles.list("app").items == [made]
        for write in (
            lambda: store.profiles.put("app", "k", 2),
            lambda: store.profiles.delete("app", "k"),
            lambda: store.profiles.clear("app"),
        ):
            with pytest.raises(UnsupportedError, match="read-only"):
                write()


def test_the_blocking_face_follows_and_can_be_closed(tmp_path: Path) -> None:
    with perdure.sync.open(tmp_path / "a.db") as store:
        store.profiles.put("app", "k", 1)
        changes = store.profiles.follow("app")
        assert next(changes).profile == store.profiles.get("app", "k")
        store.profiles.delete("app", "k")
        assert next(changes).profile is None
        assert list(store.profiles.follow("app", timeout=0)) == []
        changes.close()
        assert list(changes) == []
        assert list(store.profiles.iter("app")) == []


def test_a_copy_carries_rows_as_they_are_expired_ones_too() -> None:
    async def main() -> None:
        clock = ManualClock()
        source, target = await open_memory(SCHEMA, clock=clock), await open_memory(SCHEMA, clock=clock)
        await Store(source).profiles.put("app", "over", 1, ttl_ms=10)
        kept = await Store(source).profiles.put("app", "stays", {"é": [1]}, ttl_ms=1_000)
        clock.advance(10)
        await copy_engine(source, target)
        (rows,) = await target.view("default", [Scan("profiles")])
        assert [row.key[1] for row in rows] == ["over", "stays"]
        (copied,) = (await Store(target).profiles.list("app")).items
        assert copied.to_json() | {"rev": 0} == kept.to_json() | {"rev": 0}
        assert await verify_engine(target) == []

    asyncio.run(main())


def profile(key: str = "k", body: Any = 1, **columns: Any) -> dict[str, Any]:
    times = {"schema": 1, "created_at": 1, "updated_at": 1}
    return {"table": "profiles", "key": ["app", key], "columns": {**times, **columns}, "body": body}


def file_of(*rows: dict[str, Any]) -> list[bytes]:
    lines = [{"perdure": 1, "schema": 3, "scope": "default"}, *rows, {"end": {"threads": 0, "lines": len(rows)}}]
    return [json.dumps(line).encode() for line in lines]


async def refusal(*rows: dict[str, Any]) -> str:
    """How an import of these rows is refused; it must leave nothing behind."""
    engine = await open_memory(SCHEMA)
    with pytest.raises(InvalidError) as caught:
        await import_lines(Store(engine), lambda: file_of(*rows))
    assert await engine.view("default", [Scan("profiles")]) == [[]]
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (profile(schema=0), "profiles.schema"),
        (profile(schema=None), "profiles.schema is missing"),
        (profile(created_at=2**51), "a time to come"),
        (profile(expires_at=1), "it expires at 1"),
        (profile(expires_at=limits.PROFILE_TTL_MS + 2), "it expires at"),
        (profile(key="\x1b"), "control characters"),
        (profile(key=""), "empty"),
        (profile(body="x" * limits.PROFILE_BYTES), "the limit"),
        ({**profile(), "key": ["app"]}, "line 2"),
        ({name: value for name, value in profile().items() if name != "body"}, "body is missing"),
    ],
)
def test_a_malformed_profile_is_refused_with_its_line(row: dict[str, Any], words: str) -> None:
    message = asyncio.run(refusal(profile("first"), row))
    assert words in message.replace("line 3", "line 2")
    assert "line 3" in message


def test_a_profile_that_is_there_twice_is_refused() -> None:
    assert "line 4: profile 'a' of 'app' is in the file twice" in asyncio.run(
        refusal(profile("a"), profile("b"), profile("a"))
    )


def test_a_file_that_changes_between_the_readings_gets_nothing_past_the_check() -> None:
    files = iter([file_of(profile()), file_of(profile(expires_at=limits.PROFILE_TTL_MS + 2))])

    async def main() -> None:
        engine = await open_memory(SCHEMA)
        with pytest.raises(InvalidError, match=r"line 2.*it expires at"):
            await import_lines(Store(engine), lambda: next(files))
        assert await engine.view("default", [Scan("profiles")]) == [[]]

    asyncio.run(main())


def test_thousands_of_profiles_are_imported_in_chunks() -> None:
    async def main() -> None:
        store = Store(await open_memory(SCHEMA))
        rows = [profile(f"k{n:04}", n) for n in range(1_001)]
        done = await import_lines(store, lambda: file_of(*rows))
        assert done.records == 1_001
        assert [item.value async for item in store.profiles.iter("app")] == list(range(1_001))
        again = await import_lines(store, lambda: file_of(*rows, profile("new")), skip_existing=True)
        assert again.records == 1

    asyncio.run(main())
