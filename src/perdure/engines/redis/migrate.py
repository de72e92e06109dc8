"""Which schema the store holds, and how it becomes the one this build declares.

One hash outside all scopes records version, digest, declaration and the order of log columns. Every scope also carries
a *mark* that each commit compares with its own. A scope is brought up to date in two steps: a mark that says *filling*
shuts out clients of older builds, which would leave rows out of an index they do not know; then a walk over the rows
fills the indexes, and the final mark is set. A client that meets a scope that is older or still filling (its client may
have died) does the walk first. The record is written last. One client at a time migrates a store, under a lock that
expires if the client dies.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.failures import escaped
from perdure.engines.redis.connections.resp import LARGEST
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.connections.scripts import MARK, REBUILD, RECORD, UNLOCK
from perdure.engines.redis.read.decode import NOTHING, onward, parts, text_of, whole
from perdure.engines.redis.schema.layout import Layout, log_columns
from perdure.engines.redis.schema.table_info import pack
from perdure.engines.shared.schema_record import Recorded, facts, missing, recorded_from, refuse_unless_usable
from perdure.errors import CorruptError, UnavailableError, UnsupportedError
from perdure.kernel.engine import Migration
from perdure.kernel.schema import Schema

_LOCK_MS = b"60000"
_BATCH = 500
_PATIENCE = 600.0
_ATTEMPTS = 8
"""How often a record may be missing or old after this client wrote it. Another client may migrate too and be a step
ahead; a server that stores nothing must not make this client loop."""
_MARK = re.compile(r"([0-9]{1,9}):[^\x00-\x1f]{0,200}")
_COLUMNS = msgspec.json.Decoder(dict[str, list[str]])


class StoreRecord(NamedTuple):
    """The recorded schema, None in an empty store, and the order in which logs store their columns."""

    schema: Recorded | None
    columns: Mapping[str, list[str]]


async def read_record(network: Network) -> StoreRecord:
    """Read the record of the store."""
    key, where = f"{network.target.prefix}:meta".encode(), network.target.display_url
    fields = await network.request(key, b"HGETALL", key, shape=reply_shapes.pairs)
    if not fields:
        return StoreRecord(None, {})
    try:
        values = {name.decode(): value.decode() for name, value in fields.items()}
        whole(values["version"])
        return StoreRecord(recorded_from(values, where), _COLUMNS.decode(values["columns"]))
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise CorruptError(f"the schema record is damaged: {escaped(str(error))[:200]}", where=where) from None


async def bring_up_to_date(network: Network, schema: Schema) -> StoreRecord:
    """Make the store hold this schema, or refuse it untouched."""
    record = await read_record(network)
    before = None if record.schema is None else record.schema.version
    waited, attempts, where = 0.0, 0, network.target.display_url
    while not is_current(record, schema, where):
        if attempts == _ATTEMPTS:
            raise UnavailableError(
                f"{where}: the schema was recorded {attempts} times and the server does not hold it",
                hint="is this a Redis server that stores data?",
            )
        if record.schema is None:
            await _write_record(network, schema, record)
            attempts += 1
        elif await _try_migrate(network, schema):
            attempts += 1
        elif waited > _PATIENCE:
            raise UnavailableError(f"{where}: another client has been migrating for too long")
        else:
            await asyncio.sleep(0.1)
            waited += 0.1
        record = await read_record(network)
    if attempts:
        network.log.migrated(before, schema.version)
    return record


async def _try_migrate(network: Network, schema: Schema) -> bool:
    """Migrate the store; False if another client is doing so."""
    key, token = f"{network.target.prefix}:lock".encode(), secrets.token_hex(8).encode()
    lock = (b"SET", key, token, b"NX", b"PX", _LOCK_MS)
    if await network.request(key, *lock, shape=reply_shapes.data_or_none) != b"OK":
        return False
    try:
        await _migrate(network, schema, token)
    finally:
        await _extend_lock(network, token, b"0")
    return True


def is_current(record: StoreRecord, schema: Schema, where: str) -> bool:
    """Whether the record is this build's; raises when it never can be."""
    if record.schema is None:
        return False
    refuse_unless_usable(record.schema, schema, where, "store")
    return record.schema.version == schema.version


async def _extend_lock(network: Network, token: bytes, milliseconds: bytes) -> bool:
    key = f"{network.target.prefix}:lock".encode()
    return bool(await network.script(UNLOCK, key, token, milliseconds, shape=reply_shapes.number))


async def _write_record(network: Network, schema: Schema, record: StoreRecord) -> None:
    """Write the record, unless another client did so first: the caller reads it again."""
    key = f"{network.target.prefix}:meta".encode()
    columns = log_columns(schema, record.columns, network.target.display_url)
    fields = {**facts(schema), "columns": msgspec.json.encode(columns).decode()}
    before = b"" if record.schema is None else b"%d" % record.schema.version
    flat = [part.encode() for item in fields.items() for part in item]
    await network.script(RECORD, key, before, *flat, shape=reply_shapes.number)


async def _migrate(network: Network, schema: Schema, token: bytes) -> None:
    record, where = await read_record(network), network.target.display_url
    if record.schema is None or is_current(record, schema, where):
        return
    layout = Layout(schema, network.target.prefix, network.target.db, record.columns)
    tables = {table.name for table, _ in missing(record.schema, schema, where).indexes}
    before = f"{record.schema.version}:{record.schema.digest}"
    for scope in await registered_scopes(network):
        mark = await mark_of(network, layout, scope)
        if mark != layout.mark:
            # A scope that is not where the store was may lack more than what is new now.
            walked = sorted(tables) if mark == before else list(schema.table)
            await bring_scope(network, layout, scope, mark, tables=walked, token=token)
    await _write_record(network, schema, record)


async def mark_of(network: Network, layout: Layout, scope: str) -> str:
    """The mark of a scope; empty if it has none."""
    base = layout.base(scope)
    mark = await network.request(base, b"GET", base + b"schema", shape=reply_shapes.data_or_none)
    return (mark or b"").decode(errors="replace")


def refuse_damaged_mark(mark: str, where: str) -> int:
    """The version in the mark of a scope; `CorruptError` if it cannot be read."""
    match = _MARK.fullmatch(mark)
    if match is None:
        raise CorruptError(f"the mark of the schema is {escaped(mark)!r:.80}", where=where)
    return int(match[1])


async def bring_scope(
    network: Network, layout: Layout, scope: str, mark: str, *, tables: Iterable[str], token: bytes | None = None
) -> None:
    """Bring a scope with this mark up to date: shut out older builds and fill the indexes of these tables."""
    newest = bool(mark) and refuse_damaged_mark(mark, "the scope") >= layout.schema.version
    if newest and mark not in (layout.mark, layout.filling):
        raise UnsupportedError(
            f"scope {scope!r} was brought to schema {mark} by another build of Perdure; this one has {layout.mark}",
            hint="upgrade Perdure; nothing was written",
        )
    base = layout.base(scope)
    if await _set_mark(network, base, mark, layout.filling, layout.mark) == layout.mark:
        return
    for name in tables:
        after = NOTHING
        while True:
            batch = pack((*layout.walk_info[name], after, _BATCH))
            (reached,) = await network.script(REBUILD, base, batch, shape=partial(parts, count=1))
            if token is not None and not await _extend_lock(network, token, _LOCK_MS):
                raise UnavailableError("the lock of this migration expired", hint="open the store again")
            if reached == NOTHING:
                break
            after = onward(after, reached, network.target.display_url)
    await _set_mark(network, base, layout.filling, layout.mark)


async def _set_mark(network: Network, base: bytes, old: str, *new: str) -> str:
    """Set the first of the new marks; another client may have set any of them first."""
    reply = await network.script(MARK, base, old.encode(), new[0].encode(), shape=reply_shapes.data)
    mark = reply.decode(errors="replace")
    if mark not in new:
        raise UnavailableError("another build is bringing the scope up to date; nothing was written", hint="try again")
    return mark


async def registered_scopes(network: Network) -> list[str]:
    """Every scope that was ever written to."""
    key = f"{network.target.prefix}:scopes".encode()
    names = await network.request(key, b"SMEMBERS", key, shape=reply_shapes.names, room=LARGEST)
    return sorted(text_of(name, network.target.display_url, "a scope") for name in names)


async def has_data(network: Network, layout: Layout, scope: str) -> bool:
    """Whether a scope holds a row or an entry."""
    base = layout.base(scope)
    names = [f"k:{name}" for name in layout.schema.table] + [f"p:{name}" for name in layout.schema.log]
    keys = [base + name.encode() for name in names]
    return bool(await network.request(base, b"EXISTS", *keys, shape=reply_shapes.number))


async def register(network: Network, scope: str) -> None:
    """Register a scope, before its first write."""
    key = f"{network.target.prefix}:scopes".encode()
    await network.request(key, b"SADD", key, scope.encode(), shape=reply_shapes.number)


async def plan(network: Network, schema: Schema) -> Migration:
    """What `bring_up_to_date` would do."""
    record, where = await read_record(network), network.target.display_url
    if record.schema is None:
        return Migration("redis", None, schema.version, (f"record schema version {schema.version}",))
    if is_current(record, schema, where):
        return Migration("redis", record.schema.version, schema.version)
    added = missing(record.schema, schema, where)
    walks = [f"fill the index {table.name}.{index.name} in every scope" for table, index in added.indexes]
    columns = [f"add the column {shape.name}.{column.name}" for shape, column in added.columns]
    shapes = [f"add {name}" for name in ([t.name for t in added.tables] + [log.name for log in added.logs])]
    steps = (*shapes, *columns, *walks, f"record schema version {schema.version}")
    return Migration("redis", record.schema.version, schema.version, steps)
