"""Which schema a database holds, and how it becomes the one this build declares.

MySQL commits every DDL statement by itself, so nothing here is one transaction. Instead each step can be run again,
all run under a named lock, and the record in `perdure_meta` is written last: killed half way, the next opening finds
the old record (or none) and goes on. The empty record table comes first of all; a database that has tables of our names
but not that one belongs to another program and is refused untouched.
"""

from __future__ import annotations

import hashlib

from perdure import failpoints
from perdure.engines.mysql.connections.connection import LONG_WORK, Wire, set_table_lock_wait
from perdure.engines.mysql.connections.literals import literal, literals
from perdure.engines.mysql.schema import CREATE_META, META, Step, addition_steps, create_all, quote, table_names
from perdure.engines.shared.schema_record import (
    Recorded,
    facts,
    missing,
    recorded_from,
    refuse_unless_current,
    refuse_unless_usable,
)
from perdure.errors import UnavailableError, UnsupportedError
from perdure.kernel.engine import Migration
from perdure.kernel.schema import Schema

LOCK_SECONDS = 60
_HINT = "run `perdure migrate` on it"


async def prepare(wire: Wire, schema: Schema, where: str) -> None:
    """Make the database hold this schema, or refuse it untouched."""
    recorded = await read_recorded(wire, schema, where)
    if recorded is not None:
        refuse_unless_usable(recorded, schema, where, "database")
        if recorded.version == schema.version:
            return
    await _lock(wire, where)
    try:
        await wire.run(set_table_lock_wait(LONG_WORK))
        # Another process may have been quicker: only what is recorded under the lock counts.
        await _bring_up_to_date(wire, schema, await read_recorded(wire, schema, where), where)
    finally:
        if not wire.broken:
            await wire.run(f"{set_table_lock_wait(wire.timeout)};DO RELEASE_LOCK({_lock_name(where)})")


async def verify(wire: Wire, schema: Schema, where: str) -> None:
    """Raise unless the database holds exactly this schema."""
    refuse_unless_current(await read_recorded(wire, schema, where), schema, where, _HINT)


async def plan(wire: Wire, schema: Schema, where: str) -> Migration:
    """What `prepare` would run."""
    recorded = await read_recorded(wire, schema, where)
    if recorded is None:
        return Migration("mysql", None, schema.version, tuple(create_all(schema)))
    refuse_unless_usable(recorded, schema, where, "database")
    steps = await _steps(wire, schema, recorded, where)
    return Migration("mysql", recorded.version, schema.version, tuple(step.sql for step in steps))


async def read_recorded(wire: Wire, schema: Schema, where: str) -> Recorded | None:
    """What the database records; None when it holds nothing of ours, or the making of it was cut short."""
    listed = literals(table_names(schema))
    ((*present,),) = await wire.run(
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({listed})"
    )
    found = {name for (name,) in present}
    if META not in found:
        if found:
            raise UnsupportedError(
                f"{where} has tables of another program under names that Perdure needs: {', '.join(sorted(found)[:5])}",
                hint="choose another database; this one was not changed",
            )
        return None
    (rows,) = await wire.run(f"SELECT `name`, `value` FROM {quote(META)}")
    return recorded_from({name: value.decode() for name, value in rows}, where) if rows else None


async def _bring_up_to_date(wire: Wire, schema: Schema, recorded: Recorded | None, where: str) -> None:
    if recorded is None:
        await wire.run(CREATE_META)
        steps = list(create_all(schema))
    else:
        refuse_unless_usable(recorded, schema, where, "database")
        steps = [step.sql for step in await _steps(wire, schema, recorded, where)]
    for sql in steps:
        failpoints.hit("mysql.in_migration")
        await wire.run(sql, timeout=LONG_WORK)
    failpoints.hit("mysql.in_migration")
    values = ", ".join(f"({literal(name)}, {literal(value)})" for name, value in facts(schema).items())
    await wire.run(f"REPLACE INTO {quote(META)} (`name`, `value`) VALUES {values}")


async def _steps(wire: Wire, schema: Schema, recorded: Recorded, where: str) -> list[Step]:
    """The steps that are still to be done."""
    if recorded.version == schema.version:
        return []
    wanted = addition_steps(missing(recorded, schema, where), schema)
    return [step for step in wanted if not await _done(wire, step)]


async def _done(wire: Wire, step: Step) -> bool:
    at = f"table_schema = DATABASE() AND table_name = {literal(step.table)}"
    if step.column is not None:
        look = f"SELECT 1 FROM information_schema.columns WHERE {at} AND column_name = {literal(step.column)}"
    elif step.index is not None:
        look = f"SELECT 1 FROM information_schema.statistics WHERE {at} AND index_name = {literal(step.index)}"
    else:
        return False
    (rows,) = await wire.run(f"{look} LIMIT 1")
    return bool(rows)


async def _lock(wire: Wire, where: str) -> None:
    get_lock = f"SELECT GET_LOCK({_lock_name(where)}, {LOCK_SECONDS})"
    (((got,),),) = await wire.run(get_lock, timeout=LOCK_SECONDS + wire.timeout)
    if got != 1:
        raise UnavailableError(f"somebody else is changing the tables of {where}", hint="wait until that is done")


def _lock_name(where: str) -> str:
    """Locks are the server's, not the database's, and their names are short."""
    database = where.rpartition("/")[2]
    return literal(f"perdure {hashlib.sha256(database.encode()).hexdigest()[:16]}")
