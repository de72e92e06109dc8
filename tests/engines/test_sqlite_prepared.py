"""A file that somebody prepared: whatever its tables do besides holding rows is refused by name, before it can act."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.engines.test_sqlite_errors import opened
from tests.engines.test_sqlite_versions import digest, migrate, newer, refusal, touch
from tests.engines.toys import SCHEMA, SCOPE, do, drive, notes
from tests.fixtures.make_old_db import fixture

from perdure.engines.sqlite import open_sqlite, plan_migration
from perdure.errors import CorruptError, PerdureError, UnsupportedError
from perdure.kernel.ops import Get, Heads, Put, Read, Scan
from perdure.kernel.schema import Index, Schema, text
from perdure.stores import schema

Preparation = Callable[[sqlite3.Connection], None]
ENDLESS = "WITH RECURSIVE s(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM s)"


def run(script: str) -> Preparation:
    def prepare(connection: sqlite3.Connection) -> None:
        connection.executescript(script)

    return prepare


def rewrite(name: str, old: str, new: str) -> Preparation:
    """Change the stored text of an object, as only somebody with bad intentions or a broken tool does."""

    def prepare(connection: sqlite3.Connection) -> None:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        assert old in sql
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql.replace(old, new), name))
        connection.commit()

    return prepare


PREPARED: dict[str, tuple[Preparation, str]] = {
    "a trigger": (
        run("CREATE TRIGGER spy AFTER INSERT ON notes BEGIN UPDATE items SET owner = 'me'; END"),
        "trigger spy is not part of a Perdure store",
    ),
    "a view": (run("CREATE VIEW report AS SELECT * FROM items"), "view report is not part of"),
    "a table that became an endless view": (
        run(f"DROP TABLE plain; CREATE VIEW plain AS {ENDLESS} SELECT 'acme' scope, 't' topic, x seq FROM s"),
        "view plain is not as declared",
    ),
    "a record of the schema that became a view": (
        run(
            "CREATE TABLE kept AS SELECT * FROM perdure_meta; DROP TABLE perdure_meta;"
            "CREATE VIEW perdure_meta AS SELECT * FROM kept"
        ),
        "view perdure_meta is not as declared",
    ),
    "a foreign table": (run("CREATE TABLE mine (x)"), "table mine is not part of"),
    "a foreign index": (run("CREATE INDEX mine ON items (n)"), "index mine is not part of"),
    "an index over an expression": (run("CREATE INDEX mine ON items (abs(n))"), "index mine is not part of"),
    "a virtual table": (run("CREATE VIRTUAL TABLE box USING rtree(id, low, high)"), "table box is not part of"),
    "a name with an escape sequence": (run('CREATE TABLE "\x1b[2J" (x)'), r"table '\x1b[2J' is not part of"),
    "a missing index": (run("DROP INDEX items__due"), "index items__due is missing"),
    "a missing table": (run("DROP TABLE pairs"), "table pairs is missing; index pairs__by_n is missing"),
    "an index that is no longer unique": (
        run("DROP INDEX notes__id; CREATE INDEX notes__id ON notes (scope, id, topic)"),
        "index notes__id is not as declared",
    ),
    "an index of another order": (
        run('DROP INDEX notes__id; CREATE UNIQUE INDEX "notes__id" ON "notes" ("id", "scope", "topic")'),
        "index notes__id is not as declared",
    ),
    "an index of fewer rows": (
        run('DROP INDEX items__due; CREATE INDEX "items__due" ON "items" ("scope", "due", "id") WHERE "due" > 7'),
        "index items__due is not as declared",
    ),
    "an index on another table": (
        run('DROP INDEX items__due; CREATE INDEX "items__due" ON "pairs" ("scope", "n")'),
        "index items__due is not as declared",
    ),
    "a constraint": (rewrite("items", '"n" INTEGER', '"n" INTEGER CHECK (n < 7)'), "table items is not as declared"),
    "a default": (rewrite("items", '"n" INTEGER', '"n" INTEGER DEFAULT 7'), "table items is not as declared"),
    "another collation": (rewrite("items", '"name" TEXT', '"name" TEXT COLLATE NOCASE'), "table items is not"),
    "another type": (rewrite("items", '"n" INTEGER', '"n" BLOB'), "table items is not as declared"),
    "a column more": (rewrite("plain", '"body" TEXT', '"more" TEXT, "body" TEXT'), "table plain is not as declared"),
    "a generated column": (
        rewrite("plain", '"body" TEXT', '"more" AS (abs(seq)), "body" TEXT'),
        "table plain is not as declared",
    ),
    "a foreign key": (rewrite("plain", '"topic" TEXT', '"topic" TEXT REFERENCES items'), "table plain is not"),
    "a comment": (rewrite("plain", '"topic" TEXT', '"topic" /* hello */ TEXT'), "table plain is not as declared"),
    "text that goes on behind its end": (rewrite("plain", "NOT NULL)", "NOT NULL)\0 more"), "table plain is not"),
}


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A small sound store, closed."""
    path = tmp_path / "sound.db"
    engine = opened(path)
    drive(do(engine, Put("items", ("a",), {"name": "x", "n": 3}), notes("t", "m")))
    drive(engine.close())
    return path


def prepare(path: Path, preparation: Preparation) -> None:
    with closing(sqlite3.connect(path)) as connection:
        preparation(connection)
        connection.commit()


@pytest.mark.parametrize("name", PREPARED)
def test_a_prepared_file_is_refused_by_name_and_left_as_it_is(sound: Path, name: str) -> None:
    preparation, words = PREPARED[name]
    prepare(sound, preparation)
    stamp, files = digest(sound), sorted(sound.parent.iterdir())
    for read_only in (False, True):
        message = refusal(sound, SCHEMA, CorruptError, read_only=read_only)
        assert words in message
        assert str(sound) in message
        assert "\x1b" not in message
    with pytest.raises(CorruptError, match=r"Perdure|declared|missing"):
        asyncio.run(plan_migration(str(sound), SCHEMA))
    assert (digest(sound), sorted(sound.parent.iterdir())) == (stamp, files)


@pytest.mark.parametrize(
    ("preparation", "hint"),
    [
        ("CREATE TRIGGER spy AFTER INSERT ON notes BEGIN SELECT 1; END", "DROP TRIGGER spy"),
        ('CREATE TABLE "x; .shell id" (a)', "if you added it, copy it to a file of its own, then remove it"),
        (
            "DROP INDEX items__due",
            'CREATE INDEX "items__due" ON "items" ("scope", "due", "id") WHERE "due" IS NOT NULL',
        ),
    ],
)
def test_the_refusal_says_what_to_do(sound: Path, preparation: str, hint: str) -> None:
    prepare(sound, run(preparation))
    assert hint in refusal(sound, SCHEMA, CorruptError)


def test_an_older_file_is_compared_with_its_own_declaration(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(fixture(1), path)
    prepare(path, run("CREATE TRIGGER spy AFTER UPDATE ON threads BEGIN DELETE FROM messages; END"))
    stamp = digest(path)
    assert "trigger spy" in refusal(path, schema.SCHEMA, CorruptError)
    with pytest.raises(CorruptError, match="trigger spy"):
        asyncio.run(plan_migration(str(path), schema.SCHEMA))
    assert digest(path) == stamp
    prepare(path, run("DROP TRIGGER spy"))
    migrate(str(path))
    migrate(str(path))  # the column that was added stands last, and is accepted there


def test_columns_added_by_one_version_after_another_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "grown.db"
    versions: list[Schema] = [SCHEMA]
    for name in ("first", "second", "third"):
        items, pairs = versions[-1].tables
        columns, indexes = (*text(name), *items.columns), (*items.indexes, Index(f"by_{name}", (name,), ("rank",)))
        larger = msgspec.structs.replace(items, columns=columns, indexes=indexes)
        versions.append(newer(versions[-1], tables=(larger, pairs)))
    for version in versions:
        touch(path, version)
        touch(path, version)
    engine = drive(open_sqlite(str(path), versions[-1], read_only=True)).blocking()
    assert engine is not None
    assert drive(engine.check()) == []
    drive(engine.close())


def dump_and_restore(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        script = "\n".join(connection.iterdump())
    path.unlink()
    prepare(path, run(script))


def back_up_and_restore(path: Path) -> None:
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    copy.replace(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: prepare(path, run("ANALYZE")),
        lambda path: prepare(path, run("VACUUM")),
        lambda path: prepare(path, run("PRAGMA user_version=-1; PRAGMA application_id=-1")),
        lambda path: prepare(
            path,
            run(
                "CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);"
                "CREATE TABLE IF NOT EXISTS _litestream_lock (id INTEGER)"
            ),
        ),
        lambda path: prepare(path, run("CREATE TABLE x (a INTEGER PRIMARY KEY AUTOINCREMENT); DROP TABLE x")),
        dump_and_restore,
        back_up_and_restore,
    ],
    ids=["analyze", "vacuum", "header", "litestream", "sequence", "dump", "backup"],
)
def test_what_sqlite_and_backups_do_to_a_file_is_accepted(sound: Path, change: Callable[[Path], None]) -> None:
    change(sound)
    for read_only in (True, False):
        engine = opened(sound, read_only=read_only)
        rows, heads = drive(engine.view(SCOPE, [Get("items", [("a",)]), Heads("notes", ["t"])]))
        assert (rows[0]["n"], heads) == (3, [1])
        assert drive(engine.check()) == []
        drive(engine.close())


def test_a_trigger_added_while_the_store_is_open_stops_the_commit(sound: Path) -> None:
    engine = opened(sound)
    prepare(sound, run("CREATE TRIGGER spy AFTER INSERT ON notes BEGIN UPDATE items SET owner = 'me'; END"))
    with pytest.raises(CorruptError, match="trigger was added"):
        drive(do(engine, notes("t", "n")))
    with pytest.raises(CorruptError, match="trigger spy"):
        drive(engine.view(SCOPE, [Heads("notes", ["t"])]))
    assert any("trigger spy" in finding for finding in drive(engine.check()))
    prepare(sound, run("DROP TRIGGER spy"))
    drive(do(engine, notes("t", "o")))
    assert drive(engine.view(SCOPE, [Heads("notes", ["t"])])) == [[2]]
    drive(engine.close())


def test_a_new_connection_refuses_a_file_that_was_changed_meanwhile(sound: Path) -> None:
    for read_only in (False, True):
        engine = opened(sound, read_only=read_only)
        prepare(sound, run("CREATE VIEW late AS SELECT * FROM items"))
        with pytest.raises(CorruptError, match="view late"):
            drive(engine.view(SCOPE, [Heads("notes", ["t"])]))
        assert any("view late" in finding for finding in drive(engine.check()))
        prepare(sound, run("DROP VIEW late"))
        assert drive(engine.view(SCOPE, [Heads("notes", ["t"])])) == [[1]]
        drive(engine.close())


def test_an_open_store_keeps_reading_when_a_newer_build_adds_to_the_file(sound: Path) -> None:
    engine = opened(sound)
    items, pairs = SCHEMA.tables
    larger = newer(SCHEMA, tables=(msgspec.structs.replace(items, columns=(*items.columns, *text("more"))), pairs))
    touch(sound, larger)
    drive(do(engine, notes("t", "n")))
    assert drive(engine.view(SCOPE, [Heads("notes", ["t"])])) == [[2]]  # on a connection made after the change
    drive(engine.close())
    assert "knows version 1" in refusal(sound, SCHEMA, UnsupportedError)


@pytest.mark.parametrize("name", ["version", "digest", "declaration"])
@pytest.mark.parametrize("value", ["x'00'", "7", "9e99", "x'ff'", "replace(hex(zeroblob(40000)), '0', '[')"])
def test_a_record_of_the_wrong_type_is_refused(sound: Path, name: str, value: str) -> None:
    prepare(sound, rewrite("perdure_meta", '"value" TEXT NOT NULL', '"value" BLOB'))
    prepare(sound, run(f"UPDATE perdure_meta SET value = {value} WHERE name = '{name}'"))
    prepare(sound, rewrite("perdure_meta", '"value" BLOB', '"value" TEXT NOT NULL'))
    schema = SCHEMA if name == "digest" else newer(SCHEMA)  # a declaration is read only if it is an older one
    for read_only in (False, True):
        message = refusal(sound, schema, PerdureError, read_only=read_only)
        assert len(message) < 1000


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA encoding='UTF-16'; CREATE TABLE x (a); DROP TABLE x")
    stamp = digest(path)
    assert "UTF-16" in refusal(path, SCHEMA, CorruptError)
    assert digest(path) == stamp


def use(path: Path, *, read_only: bool) -> None:
    """Open, read everything, examine, and close."""
    engine = opened(path, read_only=read_only)
    try:
        for read in (Scan("items"), Read("notes", "t"), Read("plain", "t"), Heads("notes", ["t"])):
            drive(engine.view(SCOPE, [read]))
        drive(engine.scopes())
    finally:
        drive(engine.check())
        drive(engine.close())


def overwritten(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:offset] + value + data[offset + len(value) :]


def flipped(seed: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        chance = random.Random(seed)
        changed = bytearray(data)
        for _ in range(20):
            changed[chance.randrange(min(len(changed), 8 * 2048))] = chance.randrange(256)
        return bytes(changed)

    return flip


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    **{f"cut to {size} bytes": lambda data, size=size: data[:size] for size in (100, 512, 1000, 2048, 2049, 20_000)},
    "page size 65536": overwritten(16, b"\x00\x01"),
    "page size 65535": overwritten(16, b"\xff\xff"),
    "page size 512": overwritten(16, b"\x02\x00"),
    "page size 0": overwritten(16, b"\x00\x00"),
    "written by the future": overwritten(18, b"\x09"),
    "all of a page reserved": overwritten(20, b"\xff"),
    "a count of pages beyond the file": overwritten(28, b"\xff\xff\xff\xff"),
    "a free list beyond the file": overwritten(32, b"\xff" * 8),
    "an unknown schema format": overwritten(44, b"\x00\x00\x00\x63"),
    "an unknown encoding": overwritten(56, b"\x00\x00\x00\x09"),
    "text in UTF-16": overwritten(56, b"\x00\x00\x00\x02"),
    "a version and an id from elsewhere": overwritten(60, b"\xff" * 12),
    "a first page of nonsense": overwritten(100, b"\xff" * 400),
    **{f"flipped bytes {seed}": flipped(seed) for seed in range(20)},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_raises_our_own_errors_only(sound: Path, name: str) -> None:
    data = DAMAGED[name](sound.read_bytes())
    for read_only in (True, False):
        sound.write_bytes(data)
        try:
            use(sound, read_only=read_only)
        except PerdureError as error:
            assert len(str(error)) < 2000  # noqa: PT017 - some of these files can still be read, and may
        for side in ("-wal", "-shm"):
            sound.with_name(sound.name + side).unlink(missing_ok=True)
