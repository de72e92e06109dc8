"""Which schema the store holds, and how it becomes the one this build declares.

One hash outside all scopes records version, digest, declaration and the order of log columns. Beside it every scope
carries a *mark* that each commit compares with its own. A scope is brought up to date in two steps: a mark that says
*filling* shuts out clients of older builds, which would leave rows out of an index they do not know; then a walk over
the rows fills the indexes, and the final mark is set. Whoever meets a scope that is older or still filling (its client
may have died) does the walk first. The record is written last. One client at a time migrates a store, under a lock that
expires if it dies.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from perdure.engines.redis.connections import answers
from perdure.engines.redis.connections.failures import escaped
from perdure.engines.redis.connections.resp import LARGEST
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.connections.scripts import MARK, REBUILD, RECORD, UNLOCK
from perdure.engines.redis.read.decode import NOTHING, onward, parts, text_of, whole
from perdure.engines.redis.schema.layout import Layout, keep_columns
from perdure.engines.redis.schema.table_info import pack
from perdure.engines.shared.schema_record import Recorded, facts, missing, recorded_from, refuse_unless_usable
from perdure.errors import CorruptError, UnavailableError, UnsupportedError
from perdure.kernel.engine import Migration
from perdure.kernel.schema import Schema

_LOCK_MS = b"60000"
_BATCH = 500
_PATIENCE = 600.0
_ATTEMPTS = 8
"""How often a record that this client wrote may be missing or old afterwards. Another client may be at it too, and is
then a step ahead; a server that keeps nothing would go on for ever."""
_MARK = re.compile(r"([0-9]{1,9}):[^\x00-\x1f]{0,200}")
_COLUMNS = msgspec.json.Decoder(dict[str, list[str]])


class Found:
    """What the store says about itself: the recorded schema, and the order in which logs keep their columns."""

    def __init__(self, recorded: Recorded | None, kept: Mapping[str, list[str]]) -> None:
        self.recorded = recorded
        self.kept = kept


async def look(network: Network, where: str) -> Found:
    """Read the record."""
    key = f"{network.target.prefix}:meta".encode()
    told = await network.request(key, b"HGETALL", key, shape=answers.pairs)
    if not told:
        return Found(None, {})
    try:
        values = {name.decode(): value.decode() for name, value in told.items()}
        whole(values["version"])
        return Found(recorded_from(values, where), _COLUMNS.decode(values["columns"]))
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise CorruptError(f"the schema record is damaged: {escaped(str(error))[:200]}", where=where) from None


async def bring_up_to_date(network: Network, schema: Schema, where: str) -> Found:
    """Make the store hold this schema, or refuse it untouched."""
    found = await look(network, where)
    waited, attempts = 0.0, 0
    while not steps_done(found, schema, where):
        if attempts == _ATTEMPTS:
            raise UnavailableError(
                f"{where}: the schema was recorded {attempts} times and the server does not hold it",
                hint="is this a Redis server that keeps what it is given?",
            )
        if found.recorded is None:
            await _record(network, schema, found)
            attempts += 1
        elif await _migrated(network, schema, where):
            attempts += 1
        elif waited > _PATIENCE:
            raise UnavailableError(f"{where}: another client has been migrating for too long")
        else:
            await asyncio.sleep(0.1)
            waited += 0.1
        found = await look(network, where)
    return found


async def _migrated(network: Network, schema: Schema, where: str) -> bool:
    """Migrate the store; False if another client is at it."""
    token = secrets.token_hex(8).encode()
    if not await _locked(network, token):
        return False
    try:
        await _migrate(network, schema, where, token)
    finally:
        await _lock_script(network, token, b"0")
    return True


def steps_done(found: Found, schema: Schema, where: str) -> bool:
    """Whether the record is this build's; raises when it never can be."""
    if found.recorded is None:
        return False
    refuse_unless_usable(found.recorded, schema, where, "store")
    return found.recorded.version == schema.version


async def _locked(network: Network, token: bytes) -> bool:
    key = f"{network.target.prefix}:lock".encode()
    set_it = (b"SET", key, token, b"NX", b"PX", _LOCK_MS)
    return await network.request(key, *set_it, shape=answers.data_or_nothing) == b"OK"


async def _lock_script(network: Network, token: bytes, milliseconds: bytes) -> bool:
    key = f"{network.target.prefix}:lock".encode()
    return bool(await network.script(UNLOCK, key, token, milliseconds, shape=answers.number))


async def _record(network: Network, schema: Schema, found: Found) -> None:
    """Write the record, unless somebody was quicker: then it is read again."""
    key = f"{network.target.prefix}:meta".encode()
    told = {
        **facts(schema),
        "columns": msgspec.json.encode(keep_columns(schema, found.kept, network.target.shown)).decode(),
    }
    before = b"" if found.recorded is None else b"%d" % found.recorded.version
    flat = [part.encode() for item in told.items() for part in item]
    await network.script(RECORD, key, before, *flat, shape=answers.number)


async def _migrate(network: Network, schema: Schema, where: str, token: bytes) -> None:
    found = await look(network, where)
    if found.recorded is None or steps_done(found, schema, where):
        return
    layout = Layout(schema, network.target.prefix, network.target.db, found.kept)
    tables = {table.name for table, _ in missing(found.recorded, schema, where).indexes}
    before = f"{found.recorded.version}:{found.recorded.digest}"
    for scope in await registered(network):
        mark = await mark_of(network, layout, scope)
        if mark != layout.mark:
            # A scope that is not where the store was may lack more than what is new now.
            walked = sorted(tables) if mark == before else list(schema.table)
            await bring_scope(network, layout, scope, mark, tables=walked, token=token)
    await _record(network, schema, found)


async def mark_of(network: Network, layout: Layout, scope: str) -> str:
    """The mark of a scope; empty if it has none."""
    base = layout.base(scope)
    mark = await network.request(base, b"GET", base + b"schema", shape=answers.data_or_nothing)
    return (mark or b"").decode(errors="replace")


def refuse_damaged_mark(mark: str, where: str) -> int:
    """The version in the mark of a scope; `CorruptError` if it is no mark."""
    found = _MARK.fullmatch(mark)
    if found is None:
        raise CorruptError(f"the mark of the schema is {escaped(mark)!r:.80}", where=where)
    return int(found[1])


def is_newer(mark: str, layout: Layout) -> bool:
    """Whether another build, not older than this one, has marked a scope."""
    version = refuse_damaged_mark(mark, "the scope")
    return version >= layout.schema.version and mark not in (layout.mark, layout.filling)


async def bring_scope(
    network: Network, layout: Layout, scope: str, mark: str, *, tables: Iterable[str], token: bytes | None = None
) -> None:
    """Bring a scope with this mark up to date: fill the indexes of these tables, with older builds shut out."""
    if mark and is_newer(mark, layout):
        raise UnsupportedError(
            f"scope {scope!r} was brought to schema {mark} by another build of Perdure; this one has {layout.mark}",
            hint="upgrade Perdure; nothing was written",
        )
    base = layout.base(scope)
    if await _marked(network, base, mark, layout.filling, layout.mark) == layout.mark:
        return
    for name in tables:
        table = layout.schema.table[name]
        kinds = [column.type == "int" for column in table.key]
        after = NOTHING
        while True:
            asked = (name, kinds, layout.shapes.whole[name], after, _BATCH)
            (reached,) = await network.script(REBUILD, base, pack(asked), shape=partial(parts, count=1))
            if token is not None and not await _lock_script(network, token, _LOCK_MS):
                raise UnavailableError("the lock of this migration expired", hint="open the store again")
            if reached == NOTHING:
                break
            after = onward(after, reached, network.target.shown)
    await _marked(network, base, layout.filling, layout.mark)


async def _marked(network: Network, base: bytes, old: str, *wanted: str) -> str:
    """Set the first of the wanted marks; another client may have been quicker, with it or with another of them."""
    told = await network.script(MARK, base, old.encode(), wanted[0].encode(), shape=answers.data)
    mark = told.decode(errors="replace")
    if mark not in wanted:
        raise UnavailableError("another build is bringing the scope up to date; nothing was written", hint="try again")
    return mark


async def registered(network: Network) -> list[str]:
    """Every scope that was ever written to."""
    key = f"{network.target.prefix}:scopes".encode()
    found = await network.request(key, b"SMEMBERS", key, shape=answers.names, room=LARGEST)
    return sorted(text_of(name, network.target.shown, "a scope") for name in found)


async def holds_anything(network: Network, layout: Layout, scope: str) -> bool:
    """Whether a scope holds a row or an entry."""
    base = layout.base(scope)
    names = [f"k:{name}" for name in layout.schema.table] + [f"p:{name}" for name in layout.schema.log]
    keys = [base + name.encode() for name in names]
    return bool(await network.request(base, b"EXISTS", *keys, shape=answers.number))


async def register(network: Network, scope: str) -> None:
    """Enter a scope, before its first write."""
    key = f"{network.target.prefix}:scopes".encode()
    await network.request(key, b"SADD", key, scope.encode(), shape=answers.number)


async def plan(network: Network, schema: Schema, where: str) -> Migration:
    """What `bring_up_to_date` would do."""
    found = await look(network, where)
    if found.recorded is None:
        return Migration("redis", None, schema.version, (f"record schema version {schema.version}",))
    if steps_done(found, schema, where):
        return Migration("redis", found.recorded.version, schema.version)
    added = missing(found.recorded, schema, where)
    walks = [f"fill the index {table.name}.{index.name} in every scope" for table, index in added.indexes]
    columns = [f"add the column {shape}.{column.name}" for shape, column in added.columns]
    shapes = [f"add {name}" for name in ([t.name for t in added.tables] + [log.name for log in added.logs])]
    steps = (*shapes, *columns, *walks, f"record schema version {schema.version}")
    return Migration("redis", found.recorded.version, schema.version, steps)
