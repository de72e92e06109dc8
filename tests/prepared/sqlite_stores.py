"""Prepared SQLite files: one sound file, damaged by one statement and made whole again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from tests.audit.mutations import Mutation, update
from tests.audit.place import Place
from tests.cli.program import Done, Program
from tests.prepared.values import SHAPES, SQLITE_BODIES, SQLITE_INTEGERS, SQLITE_TEXTS, columns

from perdure.copy.engines import copy_engine
from perdure.engines.memory import open_memory
from perdure.engines.sqlite import open_sqlite
from perdure.kernel.engine import Engine
from perdure.kernel.schema import Log, Table
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store

_VALUES = {"int": SQLITE_INTEGERS, "text": SQLITE_TEXTS, "body": SQLITE_BODIES}


class SqliteStores:
    """Every damage that a column of the file can take, done one after the other."""

    engine_name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._place = Place(folder)
        self.path = folder / "store.db"

    @property
    def engine(self) -> Engine:
        return self._place.engine

    def store(self) -> Store:
        return self._place.store()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._place.run(call)

    async def _copy(self) -> None:
        source = await open_sqlite(str(self.path), SCHEMA, durability="process")
        try:
            await copy_engine(source, await open_memory(SCHEMA))
        finally:
            await source.close()

    def copy(self) -> None:
        """Copy everything to another engine, on a loop of its own."""
        asyncio.run(self._copy())

    def command(self, *arguments: str) -> Done | None:
        """How a command on this file ends."""
        return Program(self.path).run(*arguments)

    def damages(self) -> list[Mutation]:
        return [damage for shape in SHAPES for damage in self._of(shape)]

    def _of(self, shape: Table | Log) -> Iterator[Mutation]:
        key = (shape.partition, "seq") if isinstance(shape, Log) else shape.key_names
        rows = self._place.file.rows(shape.name, key)
        row = min(rows, key=lambda row: (row.get("thread", row.get("owner")) != "t", row.get("run") != "running"))
        keys = [(shape.partition, "text"), ("seq", "int")] if isinstance(shape, Log) else _types(shape)
        for column, kind in (("scope", "text"), *keys, *columns(shape)):
            for name, value in _VALUES[kind].items():
                if value != row[column]:
                    yield update(shape.name, key, row, (column, name), value)

    def prepare(self, damage: Mutation) -> bool:
        """Do the damage; False if the file does not allow it."""
        return self._place.file.damage(damage)

    def restore(self) -> None:
        self._place.file.restore()

    def close(self) -> None:
        self._place.close()


def _types(table: Table) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in table.key]
