"""The state of an open database: its actual settings, problems with them, damage, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.engines.postgres.connections.pool import Pool
from perdure.engines.postgres.connections.session_settings import READ_OVERRIDDEN, overridden
from perdure.engines.postgres.schema.tables import Layout
from perdure.engines.shared.schema_record import META
from perdure.engines.sql.ddl import index_names, quote
from perdure.engines.sql.inspection import gap_problem, partitions_sql, scopes_sql
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
    """The settings that decide what the database can promise, as our sessions see them."""
    (row,) = await pool.query(_READ_SETTINGS)
    version = await pool.query(f"""SELECT "value" FROM {layout.table(META)} WHERE "name" = 'version'""")
    return {
        "url": pool.where,
        "schema": layout.pg_schema,
        **dict(row),
        "schema_version": int(version[0][0]) if version else None,
        "overridden": overridden([setting for (setting,) in await pool.query(READ_OVERRIDDEN)]),
        "connections": pool.counters(),
        "tls": _weakest_tls(pool),
    }


def _weakest_tls(pool: Pool) -> Tls | None:
    """The protection of the least protected connection; None for Unix sockets, and for a caller's pool."""
    levels = {tls_level(encrypted=each.encrypted, verified=each.verified) for each in pool.transports()}
    order: tuple[Tls, ...] = ("none", "encrypted", "verified")
    return next((level for level in order if level in levels), None)


def transport_problems(pool: Pool) -> dict[str, str]:
    """By host, what is insecure about the connection to it."""
    problems_by_host: dict[str, str] = {}
    for each in pool.transports():
        problem = transport_problem(each.host, encrypted=each.encrypted, verified=each.verified, advice=_ADVICE)
        if problem is not None and each.host is not None:
            problems_by_host[each.host] = problem
    return problems_by_host


def durability(settings: Mapping[str, Any]) -> Durability:
    """What a commit survives under these settings."""
    return "power" if settings["fsync"] == "on" and settings["synchronous_commit"] != "off" else "process"


async def durability_now(pool: Pool) -> Durability:
    """What a commit survives now; one short statement."""
    (row,) = await pool.query(_READ_DURABILITY)
    return durability(row)


def problems(settings: Mapping[str, Any], *, writing: bool) -> list[str]:
    """Human-readable problems with these settings."""
    messages = []
    if settings["fsync"] != "on":
        messages.append("fsync is off: a power failure may damage the whole database")
    if writing and settings["synchronous_commit"] == "off":
        messages.append("synchronous_commit is off: the last commits may be lost when the server or its power fails")
    if settings["full_page_writes"] != "on":
        messages.append("full_page_writes is off: a page half written when power fails cannot be repaired")
    if writing and settings["standby"]:
        messages.append("the server is a standby: it can be read, not written")
    elif writing and settings["read_only"] == "on":
        messages.append("transactions are read-only by default here: nothing can be written")
    isolation = settings["transaction_isolation"]
    if isolation != "read committed":
        messages.append(f"transactions are {isolation}: commits may fail with serialisation failures")
    messages += [
        f"{name} is {settings[name]}: statements that take longer fail"
        for name in ("statement_timeout", "transaction_timeout")
        if settings[name] not in (None, "0")
    ]
    if settings["schema_version"] is None:
        messages.append("the record of the schema is gone")
    return messages


async def findings(pool: Pool, layout: Layout) -> list[str]:
    """Damage: tables or indexes that are missing or invalid, logs with gaps, heads that contradict their log."""
    tables = {name for (name,) in await pool.query(_TABLES, [layout.pg_schema])}
    indexes: dict[str, bool] = dict(map(tuple, await pool.query(_INDEXES, [layout.pg_schema])))
    damage = [f"table {name} is missing" for name in layout.tables() if name not in tables]
    damage += [
        f"index {name} is {'not valid' if name in indexes else 'missing'}"
        for name in index_names(layout.schema)
        if not indexes.get(name)
    ]
    if damage:
        return damage
    for log in layout.schema.logs:
        damage += await _gaps(pool, layout, log)
    return damage


async def _gaps(pool: Pool, layout: Layout, log: Log) -> list[str]:
    """One statement, so that entries and heads come from the same snapshot."""
    partition = quote(log.partition)
    # What was trimmed is not missing: the entries then follow each other from any seq on.
    begin = "coalesce(e.first - 1, 0)" if log.trim else "0"
    rows = await pool.query(
        f'WITH e AS (SELECT "scope", {partition}, count(*) AS entries, min("seq") AS first, max("seq") AS last'
        f' FROM {layout.table(log.name)} GROUP BY "scope", {partition})'
        f' SELECT coalesce(e."scope", h."scope"), coalesce(e.{partition}, h.{partition}),'
        " coalesce(e.entries, 0), coalesce(e.first, 1), coalesce(e.last, 0), coalesce(h.last, 0)"
        f' FROM e FULL JOIN {layout.heads(log.name)} h ON h."scope" = e."scope" AND h.{partition} = e.{partition}'
        f" WHERE coalesce(e.entries, 0) <> coalesce(h.last, 0) - {begin}"
        f" OR coalesce(e.last, 0) <> coalesce(h.last, 0) OR coalesce(e.first, 1) - 1 <> {begin} OR {begin} < 0"
    )
    damage = []
    for scope, name, entries, first, last, head in rows:
        if entries != last - (first - 1) or first < 1 or (first > 1 and not log.trim):
            damage.append(gap_problem(log.name, name, scope, entries, last))
        if head != last:
            damage.append(f"{log.name} {name!r} of scope {scope!r} ends at {last}, its head says {head}")
    return damage


async def scopes(pool: Pool, layout: Layout) -> list[str]:
    """Every scope that holds a row: one look-up per scope and table, not one per row."""
    names: set[str] = set()
    for table in map(layout.table, (*layout.schema.table, *layout.schema.log)):
        names.update(scope for (scope,) in await pool.query(scopes_sql(table)))
    return sorted(names, key=str.encode)


async def partitions(pool: Pool, layout: Layout, log: Log, scope: str, *, after: str | None, limit: int) -> list[str]:
    """Partitions with entries, in byte order: one look-up per partition, not one per entry."""
    sql = partitions_sql(log, layout.table(log.name), "$1", "$2", "$3")
    return [partition for (partition,) in await pool.query(sql, [scope, after or "", limit])]
