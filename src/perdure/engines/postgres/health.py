"""What can be said of the database right now: its real settings, what weakens its promises, and what is damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.connections.session_settings import READ_OVERRIDDEN, overridden
from perdure.engines.postgres.schema.tables import Layout, quote
from perdure.engines.shared.schema_record import META
from perdure.kernel.engine import Durability
from perdure.kernel.schema import Log
from perdure.kernel.transport import Tls, tls_level, transport_problem

_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "transaction_isolation",
    "statement_timeout",
    "lock_timeout",
)
_ADVICE = "use sslmode=verify-full with sslrootcert=FILE, the certificate of its authority"
_READ_SETTINGS = (
    "SELECT pg_catalog.current_database() AS database, "
    + ", ".join(f"pg_catalog.current_setting('{name}') AS {name}" for name in _SETTINGS)
    + ", pg_catalog.pg_is_in_recovery() AS standby, pg_catalog.current_setting('transaction_read_only') AS read_only"
    ", pg_catalog.current_setting('transaction_timeout', true) AS transaction_timeout"
)
_READ_DURABILITY = "SELECT " + ", ".join(
    f"pg_catalog.current_setting('{name}') AS {name}" for name in ("fsync", "synchronous_commit")
)
_INDEXES = """SELECT c.relname, i.indisvalid FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1"""
_TABLES = """SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')"""


async def settings(pool: Pool, layout: Layout) -> dict[str, Any]:
    """The settings that decide what the database can promise, as a session of ours sees them."""
    (row,) = await pool.ask(_READ_SETTINGS)
    found = {"url": pool.where, "schema": layout.pg_schema, **dict(row)}
    version = await pool.ask(f"""SELECT "value" FROM {layout.table(META)} WHERE "name" = 'version'""")
    found["schema_version"] = int(version[0][0]) if version else None
    found["overridden"] = overridden([setting for (setting,) in await pool.ask(READ_OVERRIDDEN)])
    found["connections"] = pool.counters()
    found["tls"] = _weakest_tls(pool)
    return found


def _weakest_tls(pool: Pool) -> Tls | None:
    """How the least protected connection is protected; None for Unix sockets, and for a caller's pool."""
    levels = {tls_level(encrypted=each.encrypted, verified=each.verified) for each in pool.transports()}
    order: tuple[Tls, ...] = ("none", "encrypted", "verified")
    return next((level for level in order if level in levels), None)


def transport_problems(pool: Pool) -> dict[str, str]:
    """By host, what is wrong with the way to it."""
    found: dict[str, str] = {}
    for each in pool.transports():
        problem = transport_problem(each.host, encrypted=each.encrypted, verified=each.verified, advice=_ADVICE)
        if problem is not None and each.host is not None:
            found[each.host] = problem
    return found


def durability(found: Mapping[str, Any]) -> Durability:
    """What a commit survives under these settings."""
    return "power" if found["fsync"] == "on" and found["synchronous_commit"] != "off" else "process"


async def durability_now(pool: Pool) -> Durability:
    """The same, for one short question."""
    (row,) = await pool.ask(_READ_DURABILITY)
    return durability(row)


def problems(found: Mapping[str, Any], *, writing: bool) -> list[str]:
    """In words, what in these settings weakens the store."""
    told = []
    if found["fsync"] != "on":
        told.append("fsync is off: a power failure may damage the whole database")
    if writing and found["synchronous_commit"] == "off":
        told.append("synchronous_commit is off: the last commits may be lost when the server or its power fails")
    if found["full_page_writes"] != "on":
        told.append("full_page_writes is off: a page half written when power fails cannot be repaired")
    if writing and found["standby"]:
        told.append("the server is a standby: it can be read, not written")
    elif writing and found["read_only"] == "on":
        told.append("transactions are read-only by default here: nothing can be written")
    if found["transaction_isolation"] != "read committed":
        told.append(f"transactions are {found['transaction_isolation']}: commits may fail with serialisation failures")
    told += [
        f"{name} is {found[name]}: statements that take longer fail"
        for name in ("statement_timeout", "transaction_timeout")
        if found[name] not in (None, "0")
    ]
    if found["schema_version"] is None:
        told.append("the record of the schema is gone")
    return told


async def findings(pool: Pool, layout: Layout) -> list[str]:
    """Damage: tables or indexes that are missing or invalid, logs with gaps, heads that contradict their log."""
    tables = {name for (name,) in await pool.ask(_TABLES, [layout.pg_schema])}
    indexes: dict[str, bool] = dict(map(tuple, await pool.ask(_INDEXES, [layout.pg_schema])))
    told = [f"table {name} is missing" for name in layout.tables() if name not in tables]
    for name in layout.indexes():
        if name not in indexes:
            told.append(f"index {name} is missing")
        elif not indexes[name]:
            told.append(f"index {name} is not valid")
    if told:
        return told
    for log in layout.schema.logs:
        told += await _gaps(pool, layout, log)
    return told


async def _gaps(pool: Pool, layout: Layout, log: Log) -> list[str]:
    """One statement, so that entries and heads are seen at the same moment."""
    partition = quote(log.partition)
    rows = await pool.ask(
        f'WITH e AS (SELECT "scope", {partition}, count(*) AS entries, min("seq") AS first, max("seq") AS last'
        f' FROM {layout.table(log.name)} GROUP BY "scope", {partition})'
        f' SELECT coalesce(e."scope", h."scope"), coalesce(e.{partition}, h.{partition}),'
        " coalesce(e.entries, 0), coalesce(e.first, 1), coalesce(e.last, 0), coalesce(h.last, 0)"
        f' FROM e FULL JOIN {layout.heads(log.name)} h ON h."scope" = e."scope" AND h.{partition} = e.{partition}'
        " WHERE coalesce(e.entries, 0) <> coalesce(h.last, 0) OR coalesce(e.last, 0) <> coalesce(h.last, 0)"
        " OR coalesce(e.first, 1) <> 1"
    )
    told = []
    for scope, name, entries, first, last, head in rows:
        where = f"{log.name} {name!r} of scope {scope!r}"
        if entries != last or first != 1:
            told.append(f"{where} has {entries} entries but ends at {last}")
        if head != last:
            told.append(f"{where} ends at {last}, its head says {head}")
    return told


async def scopes(pool: Pool, layout: Layout) -> list[str]:
    """Every scope that holds a row: one look per scope and table, not one per row."""
    found: set[str] = set()
    for name in map(layout.table, (*layout.schema.table, *layout.schema.log)):
        rows = await pool.ask(
            f'WITH RECURSIVE s(x) AS ((SELECT min("scope") FROM {name}) UNION ALL'
            f' SELECT (SELECT min("scope") FROM {name} WHERE "scope" > s.x) FROM s WHERE s.x IS NOT NULL)'
            " SELECT x FROM s WHERE x IS NOT NULL"
        )
        found.update(scope for (scope,) in rows)
    return sorted(found, key=str.encode)


async def partitions(pool: Pool, layout: Layout, log: Log, scope: str, *, after: str | None, limit: int) -> list[str]:
    """Partitions with entries, in byte order: one look per partition, not one per entry."""
    name, column = layout.table(log.name), quote(log.partition)
    beyond = f'SELECT min({column}) FROM {name} WHERE "scope" = $1 AND {column} >'
    rows = await pool.ask(
        f"WITH RECURSIVE p(x) AS (({beyond} $2) UNION ALL SELECT ({beyond} p.x) FROM p WHERE p.x IS NOT NULL)"
        " SELECT x FROM p WHERE x IS NOT NULL LIMIT $3",
        [scope, after or "", limit],
    )
    return [partition for (partition,) in rows]
