"""What can be said of a server right now: its real settings, what weakens its promises, and what is damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.engines.mysql.connections.connection import LONG_WORK, PACKET_NEEDED, RELIED_ON, Wire, flavour
from perdure.engines.mysql.connections.literals import equal, literal, literals
from perdure.engines.mysql.schema import heads_name, quote, table_names
from perdure.kernel.engine import Durability
from perdure.kernel.schema import Log, Schema

_VARIABLES = (
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "log_bin",
    "sync_binlog",
    "binlog_format",
    "max_allowed_packet",
    "max_connections",
    "read_only",
    "tx_isolation",
    "transaction_isolation",
    *RELIED_ON,
)
_NUMBERS = ("innodb_flush_log_at_trx_commit", "innodb_lock_wait_timeout", "max_allowed_packet", "max_connections")
SCOPES_AT_ONCE = 100


async def settings(wire: Wire) -> dict[str, Any]:
    """The settings of this session that decide what the server can promise."""
    (rows,) = await wire.run(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({literals(_VARIABLES)})")
    found: dict[str, Any] = {name.lower(): value for name, value in rows}
    for name in (*_NUMBERS, "sync_binlog"):
        if name in found:
            found[name] = int(found[name])
    isolation = found.pop("transaction_isolation", None) or found.pop("tx_isolation", None)
    found.pop("tx_isolation", None)
    name, _ = flavour(wire.version)
    return {"flavour": name, "version": wire.version, "isolation": isolation, **found}


def problems(found: Mapping[str, Any]) -> list[str]:
    """In words, what in these settings weakens the store."""
    told = []
    flushes = found["innodb_flush_log_at_trx_commit"]
    if flushes != 1:
        told.append(
            f"innodb_flush_log_at_trx_commit is {flushes}, not 1: the last commits may be lost when "
            + ("the server fails" if flushes == 0 else "power fails")
        )
    if str(found.get("innodb_doublewrite", "ON")).upper() in ("OFF", "0"):
        told.append("innodb_doublewrite is off: a page torn by a power failure cannot be repaired")
    if found.get("log_bin") == "ON" and found.get("sync_binlog") != 1:
        told.append(f"sync_binlog is {found.get('sync_binlog')}, not 1: replicas and backups may lack the last commits")
    if found["isolation"] != "READ-COMMITTED":
        told.append(f"transactions run at {found['isolation']}, not READ-COMMITTED")
    for name, wanted in RELIED_ON.items():
        if str(found.get(name, wanted)) != wanted:
            told.append(f"{name} is {found[name]} in a session of ours, not {wanted}: something changed it since")
    if found["max_allowed_packet"] < PACKET_NEEDED:
        told.append(f"max_allowed_packet is {found['max_allowed_packet']}: messages may be too large for it")
    return told


def durability(found: Mapping[str, Any]) -> Durability:
    """What a commit survives: `process` is the end of the client, `power` that of the machine.

    With a binary log, recovery rolls back what that does not hold, so it must be synced as well.
    """
    synced = found.get("log_bin") != "ON" or found.get("sync_binlog") == 1
    return "power" if found["innodb_flush_log_at_trx_commit"] == 1 and synced else "process"


async def durability_now(wire: Wire) -> Durability:
    """The same, for one short question."""
    names = ("innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog")
    ((row,),) = await wire.run("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in names))
    flushes, logs, syncs = map(int, row)
    return durability({names[0]: flushes, "log_bin": "ON" if logs else "OFF", "sync_binlog": syncs})


async def findings(wire: Wire, schema: Schema) -> list[str]:
    """Damage: tables that are missing or that the server finds broken, and logs with gaps."""
    wanted = table_names(schema)
    (rows,) = await wire.run("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
    present = {name for (name,) in rows}
    told = [f"{name} is missing" for name in wanted if name not in present]
    kept = [name for name in wanted if name in present]
    (checked,) = await wire.run(f"CHECK TABLE {', '.join(map(quote, kept))}", timeout=LONG_WORK)
    for name, _, kind, said in checked:
        text = said.decode() if isinstance(said, bytes) else said
        if kind.lower() == "error" or (kind.lower() == "status" and text != "OK"):
            told.append(f"{name}: {text}")
    for log in schema.logs:
        if log.name in present and heads_name(log.name) in present:
            told += await _gaps(wire, log)
    return told


async def _gaps(wire: Wire, log: Log) -> list[str]:
    at, heads, column = quote(log.name), quote(heads_name(log.name)), quote(log.partition)
    held = f"SELECT `scope`, {column}, COUNT(*) AS n, MIN(`seq`) AS low, MAX(`seq`) AS high FROM {at} GROUP BY 1, 2"
    gaps, orphans = await wire.run(
        f"SELECT m.`scope`, m.{column}, m.n, m.high, h.`last` FROM ({held}) m"
        f" LEFT JOIN {heads} h ON h.`scope` = m.`scope` AND h.{column} = m.{column}"
        " WHERE m.low <> 1 OR m.n <> m.high OR h.`last` IS NULL OR h.`last` <> m.high;"
        f"SELECT h.`scope`, h.{column}, h.`last` FROM {heads} h LEFT JOIN {at} m"
        f" ON m.`scope` = h.`scope` AND m.{column} = h.{column} AND m.`seq` = h.`last` WHERE m.`seq` IS NULL",
        timeout=LONG_WORK,
    )
    told = [
        f"{log.name} {name!r} of scope {scope!r} has {count} entries, ends at {high} and should end at {last}"
        for scope, name, count, high, last in gaps
    ]
    return told + [
        f"{log.name} {name!r} of scope {scope!r} should end at {last} and does not" for scope, name, last in orphans
    ]


async def scopes(wire: Wire, schema: Schema) -> list[str]:
    """Every scope that holds a row: a step per scope over each primary key, whatever the number of rows.

    `SELECT DISTINCT` reads every row until the server has statistics of the table.
    """
    reached = dict.fromkeys((*schema.table, *[heads_name(log) for log in schema.log]), "")
    found: set[str] = set()
    steps = 2
    while reached:
        packet = ";".join([_next_scopes(table, after, steps) for table, after in reached.items()])
        answers = iter(await wire.run(packet))
        for table, after in list(reached.items()):
            walked = [after, *[next(answers)[0][0].decode() for _ in range(steps)]]
            found.update(walked)
            reached[table] = walked[-1]
            if walked[-1] == walked[-2]:
                del reached[table]
        steps = min(8 * steps, SCOPES_AT_ONCE)
    return sorted(found - {""})


def _next_scopes(table: str, after: str, steps: int) -> str:
    """Statements that answer the next so many scopes of a table, the last one again when there are no more."""
    step = (
        f"SELECT `scope` INTO @perdure_scope FROM {quote(table)} FORCE INDEX (PRIMARY)"
        " WHERE `scope` > @perdure_scope ORDER BY `scope` LIMIT 1;SELECT @perdure_scope"
    )
    return ";".join([f"SET @perdure_scope = {literal(after)}", *[step] * steps])


async def partitions(wire: Wire, log: Log, scope: str, after: str | None, limit: int) -> list[str]:
    """Partitions with entries, in byte order."""
    column = quote(log.partition)
    where = equal(("scope",), (scope,))
    if after is not None:
        where += f" AND {column} > {literals((after,))}"
    heads = quote(heads_name(log.name))
    (rows,) = await wire.run(f"SELECT {column} FROM {heads} WHERE {where} ORDER BY {column} LIMIT {limit}")
    return [name for (name,) in rows]
