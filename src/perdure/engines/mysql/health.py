"""The state of a server now: its settings, which of them weaken the store, what is damaged, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.engines.mysql.connections.connect import LONG_WORK, PACKET_NEEDED, SESSION_SETTINGS, flavour
from perdure.engines.mysql.connections.connection import Connection
from perdure.engines.mysql.connections.literals import equal, literal, literals
from perdure.engines.mysql.schema import quote, table_names
from perdure.engines.sql.ddl import heads_name
from perdure.kernel.engine import Durability
from perdure.kernel.schema import Log, Schema

_NUMBERS = (
    "innodb_flush_log_at_trx_commit",
    "innodb_lock_wait_timeout",
    "max_allowed_packet",
    "max_connections",
    "sync_binlog",
)
_VARIABLES = (
    *_NUMBERS,
    "innodb_doublewrite",
    "log_bin",
    "binlog_format",
    "read_only",
    "tx_isolation",
    "transaction_isolation",
    *SESSION_SETTINGS,
)
SCOPES_AT_ONCE = 100


async def settings(connection: Connection) -> dict[str, Any]:
    """The settings of this session that decide what the server can promise."""
    (rows,) = await connection.run(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({literals(_VARIABLES)})")
    variables = {name.lower(): int(value) if name.lower() in _NUMBERS else value for name, value in rows}
    names = [variables.pop(name, None) for name in ("transaction_isolation", "tx_isolation")]
    isolation = names[0] or names[1]
    kind = flavour(connection.version).name
    return {"flavour": kind, "version": connection.version, "isolation": isolation, **variables}


def problems(settings: Mapping[str, Any]) -> list[str]:
    """Human-readable problems with these settings."""
    messages = []
    flushes = settings["innodb_flush_log_at_trx_commit"]
    if flushes != 1:
        messages.append(
            f"innodb_flush_log_at_trx_commit is {flushes}, not 1: the last commits may be lost when "
            + ("the server fails" if flushes == 0 else "power fails")
        )
    if str(settings.get("innodb_doublewrite", "ON")).upper() in ("OFF", "0"):
        messages.append("innodb_doublewrite is off: a page torn by a power failure cannot be repaired")
    if settings.get("log_bin") == "ON" and settings.get("sync_binlog") != 1:
        messages.append(
            f"sync_binlog is {settings.get('sync_binlog')}, not 1: replicas and backups may lack the last commits"
        )
    if settings["isolation"] != "READ-COMMITTED":
        messages.append(f"transactions run at {settings['isolation']}, not READ-COMMITTED")
    for name, expected in SESSION_SETTINGS.items():
        if str(settings.get(name, expected)) != expected:
            messages.append(f"{name} is {settings[name]}, not {expected}: something changed it since the session began")
    if settings["max_allowed_packet"] < PACKET_NEEDED:
        messages.append(f"max_allowed_packet is {settings['max_allowed_packet']}: messages may be too large for it")
    return messages


def durability(settings: Mapping[str, Any]) -> Durability:
    """What a commit survives: `process` is the end of the client, `power` that of the machine.

    With a binary log, recovery rolls back what the log lacks, so it must be synced as well.
    """
    synced = settings.get("log_bin") != "ON" or settings.get("sync_binlog") == 1
    return "power" if settings["innodb_flush_log_at_trx_commit"] == 1 and synced else "process"


async def durability_now(connection: Connection) -> Durability:
    """The durability now, read in one short query."""
    names = ("innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog")
    ((row,),) = await connection.run("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in names))
    flushes, logs, syncs = map(int, row)
    return durability({names[0]: flushes, "log_bin": "ON" if logs else "OFF", "sync_binlog": syncs})


async def damage(connection: Connection, schema: Schema) -> list[str]:
    """Missing tables, tables that the server reports as broken, and logs with gaps."""
    (rows,) = await connection.run("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
    present = {name for (name,) in rows}
    tables = table_names(schema)
    problems = [f"{name} is missing" for name in tables if name not in present]
    listed = ", ".join([quote(name) for name in tables if name in present])
    (reports,) = await connection.run(f"CHECK TABLE {listed}", timeout=LONG_WORK)
    for name, _, kind, words in reports:
        text = words.decode() if isinstance(words, bytes) else words
        if kind.lower() == "error" or (kind.lower() == "status" and text != "OK"):
            problems.append(f"{name}: {text}")
    for log in schema.logs:
        if log.stored in present and heads_name(log.name) in present:
            problems += await _gaps(connection, log)
    return problems


async def _gaps(connection: Connection, log: Log) -> list[str]:
    entries, heads, column = quote(log.stored), quote(heads_name(log.name)), quote(log.partition)
    counted = (
        f"SELECT `scope`, {column}, COUNT(*) AS n, MIN(`seq`) AS low, MAX(`seq`) AS high FROM {entries} GROUP BY 1, 2"
    )
    missing = "m.low < 1 OR m.n <> m.high - m.low + 1" if log.trim else "m.low <> 1 OR m.n <> m.high"
    gaps, orphans = await connection.run(
        f"SELECT m.`scope`, m.{column}, m.n, m.high, h.`last` FROM ({counted}) m"
        f" LEFT JOIN {heads} h ON h.`scope` = m.`scope` AND h.{column} = m.{column}"
        f" WHERE {missing} OR h.`last` IS NULL OR h.`last` <> m.high;"
        f"SELECT h.`scope`, h.{column}, h.`last` FROM {heads} h LEFT JOIN {entries} m"
        f" ON m.`scope` = h.`scope` AND m.{column} = h.{column} AND m.`seq` = h.`last` WHERE m.`seq` IS NULL",
        timeout=LONG_WORK,
    )
    problems = [
        f"{log.name} {partition!r} of scope {scope!r} has {count} entries, ends at {high} and should end at {last}"
        for scope, partition, count, high, last in gaps
    ]
    return problems + [
        f"{log.name} {partition!r} of scope {scope!r} should end at {last} and does not"
        for scope, partition, last in orphans
    ]


async def scopes(connection: Connection, schema: Schema) -> list[str]:
    """Every scope that holds a row: one step per scope over each primary key, whatever the number of rows.

    `SELECT DISTINCT` reads every row until the server has statistics of the table.
    """
    known_scopes: set[str] = set()
    reached = dict.fromkeys((*[table.stored for table in schema.tables], *[heads_name(log) for log in schema.log]), "")
    steps = 2
    while reached:
        packet = ";".join([_next_scopes(table, after, steps) for table, after in reached.items()])
        answers = iter(await connection.run(packet))
        for table, after in list(reached.items()):
            walked = [after, *[next(answers)[0][0].decode() for _ in range(steps)]]
            known_scopes.update(walked)
            reached[table] = walked[-1]
            if walked[-1] == walked[-2]:
                del reached[table]
        steps = min(8 * steps, SCOPES_AT_ONCE)
    return sorted(known_scopes - {""})


def _next_scopes(table: str, after: str, steps: int) -> str:
    """Statements that return the next `steps` scopes of a table; the last one repeats when there are no more."""
    step = (
        f"SELECT `scope` INTO @perdure_scope FROM {quote(table)} FORCE INDEX (PRIMARY)"
        " WHERE `scope` > @perdure_scope ORDER BY `scope` LIMIT 1;SELECT @perdure_scope"
    )
    return ";".join([f"SET @perdure_scope = {literal(after)}", *[step] * steps])


async def partitions(connection: Connection, log: Log, scope: str, after: str | None, limit: int) -> list[str]:
    """Partitions with entries, in byte order."""
    column = quote(log.partition)
    where = f"{equal(('scope',), (scope,))} AND {column} > {literal(after or '')}"
    heads = quote(heads_name(log.name))
    (rows,) = await connection.run(f"SELECT {column} FROM {heads} WHERE {where} ORDER BY {column} LIMIT {limit}")
    return [name for (name,) in rows]
