"""The engine's own integrity check: everything that is kept twice is compared, in batches, by a script.

Rows against the key order, index entries and unique values, each in both directions; entries of logs against their
places. What no row accounts for is found by walking the names of all keys.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from perdure.engines.redis.layout import Layout
from perdure.engines.redis.network import Network
from perdure.engines.redis.scripts import AUDIT
from perdure.engines.redis.shapes import pack, unique_name, unpack
from perdure.engines.redis.versions import registered
from perdure.kernel.schema import Log, Table

_BATCH = 500


class Audit:
    """One walk over the whole store."""

    def __init__(self, network: Network, layout: Layout) -> None:
        self._network = network
        self._layout = layout
        self._told: list[str] = []

    async def run(self) -> list[str]:
        """Findings in words."""
        scopes = await registered(self._network)
        for scope in scopes:
            base = self._layout.base(scope)
            for table in self._layout.schema.tables:
                await self._all(base, "", lambda after, t=table: ("rows", *self._table(t), after, _BATCH))
            for log in self._layout.schema.logs:
                await self._log(base, log)
        known = {self._layout.base(scope) for scope in scopes}
        for address in await self._network.servers():
            await self._names(address, known)
        return self._told

    def _table(self, table: Table) -> tuple[Any, ...]:
        kinds = [column.type == "int" for column in table.key]
        return (table.name, kinds, self._layout.shapes.whole[table.name])

    async def _all(self, base: bytes, start: Any, ask: Any) -> None:
        """Ask batch after batch until there is nothing to go on with."""
        onward = start
        while onward is not False:
            found, onward = unpack(await self._network.script(AUDIT, base, pack(ask(onward or False))))
            self._told += found or []

    async def _log(self, base: bytes, log: Log) -> None:
        kept = self._layout.kept[log.name]
        unique = [(name, kept.index(name) + 1) for name in log.unique]
        names = await self._network.request(base, b"ZRANGE", base + f"p:{log.name}".encode(), b"0", b"-1")
        for name in names:
            partition = name.decode()
            if not await self._network.request(base, b"EXISTS", base + f"l:{log.name}:{partition}".encode()):
                self._told.append(f"{log.name} {partition} is among the partitions and has no entries")
            await self._all(base, 1, lambda first, p=partition: ("log", log.name, p, unique, first, _BATCH))

    async def _names(self, address: Any, known: set[bytes]) -> None:
        cursor = b"0"
        pattern = self._layout.prefix.encode() + b":{*"
        while True:
            cursor, names = await self._network.at(address, b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"1000")
            rows: dict[tuple[bytes, str], list[str]] = defaultdict(list)
            for name in names:
                await self._name(name, known, rows)
            for (base, table), keys in rows.items():
                await self._all(base, "", lambda _, t=table, k=keys: ("row", t, k))
            if cursor == b"0":
                return

    async def _name(self, name: bytes, known: set[bytes], rows: dict[tuple[bytes, str], list[str]]) -> None:
        end = name.find(b"}:") + 2
        base, rest = name[:end], name[end:].decode(errors="replace")
        if base not in known:
            self._told.append(f"{name.decode(errors='replace')} belongs to a scope that is not registered")
            return
        letter, _, rest = rest.partition(":")
        if letter == "t":
            table, _, key = rest.partition(":")
            rows[base, table].append(key)
        elif letter == "i":
            await self._index(base, name, rest)
        elif letter == "u":
            await self._unique(base, name)
        elif letter == "l":
            log, _, partition = rest.partition(":")
            if await self._network.request(base, b"ZSCORE", base + f"p:{log}".encode(), partition.encode()) is None:
                self._told.append(f"{log} {partition} is not among the partitions")

    async def _index(self, base: bytes, name: bytes, rest: str) -> None:
        table_name, index_name, _ = (rest + "::").split(":", 2)
        table = self._layout.schema.table.get(table_name)
        if table is None or index_name not in table.index_by_name:
            self._told.append(f"{rest!r:.200} is no index of this schema")
            return
        number = [index.name for index in table.indexes].index(index_name) + 1
        order = [table.types[column] == "int" for column in table.indexes[number - 1].order]
        about = (name.decode(), *self._table(table), number, order)
        await self._all(base, "", lambda after: ("index", *about, after, _BATCH))

    async def _unique(self, base: bytes, name: bytes) -> None:
        for table in self._layout.schema.tables:
            for number, group in enumerate(table.unique, 1):
                if name == base + unique_name(table, group).encode():
                    about = (name.decode(), *self._table(table), number)
                    await self._all(base, "", lambda _, a=about: ("unique", *a))
