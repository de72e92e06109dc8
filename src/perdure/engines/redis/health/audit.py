"""The engine's own integrity check: a script compares, in batches, everything that is stored twice.

Rows are compared with the key order, index entries and unique values, each in both directions; entries of logs with
their seqs. A walk over the names of all keys finds what belongs to no row. Damage is reported and the walk goes on; it
always ends, whatever the server answers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec

from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.failures import escaped
from perdure.engines.redis.connections.resp import LARGEST
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.connections.scripts import AUDIT
from perdure.engines.redis.migrate import has_data, mark_of, refuse_damaged_mark, registered_scopes
from perdure.engines.redis.read.decode import NOTHING, lossy, onward, parts, text_of
from perdure.engines.redis.schema.layout import Layout
from perdure.engines.redis.schema.table_info import pack, unique_name
from perdure.errors import CorruptError
from perdure.kernel.schema import Log

_BATCH = 500
_MOST_STEPS = 1_000_000
"""A walk that takes more batches than this is treated as endless."""
_MOST_FINDINGS = 10_000
_TEXTS = msgspec.msgpack.Decoder(list[msgspec.Raw] | dict[str, str])
_GLOB = re.compile(rb"[*?\[\]\\]")


class _TooMany(Exception):
    """The limit of findings is reached."""


def literal(text: bytes) -> bytes:
    """A pattern that matches this text and nothing else."""
    return _GLOB.sub(rb"\\\g<0>", text)


class Audit:
    """One walk over the whole store."""

    def __init__(self, network: Network, layout: Layout) -> None:
        self._network = network
        self._layout = layout
        self._where = network.target.display_url
        self._findings: list[str] = []

    async def run(self) -> list[str]:
        """Every problem in the store, as text."""
        scopes: list[str] = []
        try:
            scopes = await registered_scopes(self._network)
            for scope in scopes:
                await self._scope(scope)
            known = {self._layout.base(scope) for scope in scopes}
            for address in await self._network.servers():
                await self._continuing(self._keys(address, known))
        except _TooMany:
            self._findings.append(f"the check stopped after {_MOST_FINDINGS} findings")
        except CorruptError as error:
            self._findings.append(str(error))
        return self._findings

    def _report(self, finding: str) -> None:
        if len(self._findings) >= _MOST_FINDINGS:
            raise _TooMany
        self._findings.append(escaped(finding))

    async def _continuing(self, work: Awaitable[object]) -> None:
        """Report damage that ends one part of the check, and go on with the others."""
        try:
            await work
        except CorruptError as error:
            self._report(str(error))

    async def _scope(self, scope: str) -> None:
        base = self._layout.base(scope)
        await self._continuing(self._mark(scope))
        for info in self._layout.walk_info.values():
            await self._continuing(self._all(base, "rows", *info))
        for log in self._layout.schema.logs:
            await self._continuing(self._log(base, log))

    async def _mark(self, scope: str) -> None:
        if mark := await mark_of(self._network, self._layout, scope):
            refuse_damaged_mark(mark, f"scope {scope!r}")
        elif await has_data(self._network, self._layout, scope):
            self._report(f"scope {scope!r} has lost the mark of its schema")

    async def _all(self, base: bytes, *request: Any) -> None:
        """Check batch after batch until the walk ends."""
        after = NOTHING
        for _ in range(_MOST_STEPS):
            reached = await self._batch(base, *request, after, _BATCH)
            if reached == NOTHING:
                return
            after = onward(after, reached, self._where)
        raise CorruptError("the server's walk over the keys does not end", where=self._where)

    async def _batch(self, base: bytes, *request: Any) -> msgspec.Raw:
        """Report the findings of one batch; returns where the next one begins."""
        packed, reached = await self._network.script(AUDIT, base, pack(request), shape=partial(parts, count=2))
        try:
            findings = _TEXTS.decode(packed)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CorruptError(f"the findings of the check cannot be read: {error}", where=self._where) from None
        # A script packs an empty list as it packs an empty map.
        for finding in findings:
            self._report(finding if isinstance(finding, str) else lossy(finding))
        return reached

    async def _log(self, base: bytes, log: Log) -> None:
        columns = self._layout.columns[log.name]
        unique = [(name, columns.index(name) + 1) for name in log.unique]
        segment = False if log.segment is None else columns.index(log.segment) + 1
        members = (b"ZRANGE", base + f"p:{log.name}".encode(), b"0", b"-1")
        for name in await self._network.request(base, *members, shape=reply_shapes.names, room=LARGEST):
            await self._continuing(self._partition(base, log, name, (unique, segment, log.trim)))

    async def _partition(self, base: bytes, log: Log, name: bytes, about: tuple[Any, Any, bool]) -> None:
        partition = text_of(name, self._where, f"a partition of {log.name}")
        entries = base + f"l:{log.name}:{partition}".encode()
        if not await self._network.request(base, b"EXISTS", entries, shape=reply_shapes.number):
            self._report(f"{log.name} {partition} is among the partitions and has no entries")
        for step in range(_MOST_STEPS):
            if await self._batch(base, "log", log.name, partition, *about, step * _BATCH + 1, _BATCH) == NOTHING:
                return
        raise CorruptError(f"{log.name} {partition} does not end", where=self._where)

    async def _keys(self, address: Any, known: set[bytes]) -> None:
        cursor, cursors = b"0", set[bytes]()
        pattern = literal(self._layout.prefix.encode()) + b":{*"
        for _ in range(_MOST_STEPS):
            scan = (b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"1000")
            cursor, names = await self._network.at(address, *scan, shape=reply_shapes.page)
            rows: dict[tuple[bytes, str], list[str]] = defaultdict(list)
            for name in names:
                await self._continuing(self._key(name, known, rows))
            for (base, table), keys in rows.items():
                await self._continuing(self._batch(base, "row", table, keys))
            if cursor == b"0":
                return
            if cursor in cursors:
                break
            cursors.add(cursor)
        raise CorruptError("the server's list of keys does not end", where=self._where)

    async def _key(self, name: bytes, known: set[bytes], rows: dict[tuple[bytes, str], list[str]]) -> None:
        end = name.find(b"}:") + 2
        base, whole = name[:end], text_of(name, self._where, "a key")
        if base not in known:
            self._report(f"{whole} belongs to a scope that is not registered")
            return
        letter, _, rest = name[end:].decode().partition(":")
        if letter == "t":
            table, _, key = rest.partition(":")
            rows[base, table].append(key)
        elif letter == "i":
            await self._index(base, whole, rest)
        elif letter == "u":
            await self._unique(base, whole)
        elif letter == "l":
            log, _, partition = rest.partition(":")
            score = (b"ZSCORE", base + f"p:{log}".encode(), partition.encode())
            if await self._network.request(base, *score, shape=reply_shapes.data_or_none) is None:
                self._report(f"{log} {partition} is not among the partitions")

    async def _index(self, base: bytes, name: str, rest: str) -> None:
        table_name, index_name, _ = (rest + "::").split(":", 2)
        table = self._layout.schema.table.get(table_name)
        if table is None or index_name not in table.index_by_name:
            self._report(f"{rest!r:.200} is not an index of this schema")
            return
        number = [index.name for index in table.indexes].index(index_name) + 1
        order = [table.types[column] == "int" for column in table.indexes[number - 1].order]
        await self._all(base, "index", name, *self._layout.walk_info[table.name], number, order)

    async def _unique(self, base: bytes, name: str) -> None:
        for table in self._layout.schema.tables:
            for number, group in enumerate(table.unique, 1):
                if name.encode() == base + unique_name(table, group).encode():
                    await self._batch(base, "unique", name, *self._layout.walk_info[table.name], number)
