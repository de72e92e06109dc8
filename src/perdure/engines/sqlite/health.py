"""What can be said of a file right now: its real settings, what weakens its promises, and what is damaged."""

from __future__ import annotations

import sqlite3
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from shutil import disk_usage
from typing import Any

from perdure.engines.sql.embedded.schema import quote
from perdure.engines.sqlite.connections.connect import file_size
from perdure.engines.sqlite.migrate import read_recorded
from perdure.engines.sqlite.schema import differences, read_objects
from perdure.kernel.schema import Log, Schema

_NETWORK = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre")
_VOLATILE = ("tmpfs", "ramfs")
_LOW_DISK_BYTES = 64 * 1024 * 1024
_LARGE_WAL_BYTES = 64 * 1024 * 1024
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def settings(connection: sqlite3.Connection, path: str) -> dict[str, Any]:
    """The settings that decide what the file can promise, read from SQLite and the system."""

    def pragma(name: str) -> Any:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    recorded = read_recorded(connection, path)
    return {
        "path": path,
        "sqlite": sqlite3.sqlite_version,
        "journal_mode": pragma("journal_mode"),
        "synchronous": _SYNCHRONOUS.get(pragma("synchronous"), "?"),
        "page_size": pragma("page_size"),
        "schema_version": recorded.version if recorded else None,
        "file_bytes": file_size(path),
        "file_mode": _mode(path),
        "wal_bytes": file_size(f"{path}-wal"),
        "wal_present": Path(f"{path}-wal").exists(),
        "disk_free_bytes": _free_bytes(path),
        "file_system": file_system(path),
    }


def _free_bytes(path: str) -> int | None:
    try:
        return disk_usage(Path(path).parent).free
    except OSError:
        return None  # the folder was moved or deleted


def _mode(path: str) -> str | None:
    """Who may read and write the file, as `chmod` takes it."""
    try:
        return f"{stat.S_IMODE(Path(path).stat().st_mode):04o}"
    except OSError:
        return None


def problems(found: Mapping[str, Any], *, writing: bool, gone: str | None = None) -> list[str]:
    """In words, what in these settings weakens the store; `gone` names a file for which commits are refused."""
    told = []
    if gone is not None:
        told.append(f"{gone}: commits are refused until it is back")
    elif not found["file_bytes"]:
        told.append("the file was moved, deleted or emptied while it was open: reads may fail until it is back")
    elif writing and found["journal_mode"] == "wal" and not found["wal_present"]:
        told.append("the log beside the file was removed while it was open: what is written now is lost at the end")
    if writing and found["synchronous"] not in ("FULL", "EXTRA"):
        told.append(f"synchronous is {found['synchronous']}: the last commits may be lost when power fails")
    if writing and found["journal_mode"] != "wal":
        told.append(f"journal_mode is {found['journal_mode']}, not wal")
    system = str(found["file_system"])
    if system.startswith(_NETWORK):
        told.append(f"the file is on a network file system ({system}), where SQLite's locks are not reliable")
    if system in _VOLATILE:
        told.append(f"the file is on {system}: it is gone when the machine restarts")
    elif Path(tempfile.gettempdir()).resolve() in Path(found["path"]).resolve().parents:
        told.append("the file is in the directory for temporary files, which the system may empty")
    free = found["disk_free_bytes"]
    if free is not None and free < _LOW_DISK_BYTES:
        told.append(f"only {free // 1024} KiB are free on the disk")
    if found["wal_bytes"] > _LARGE_WAL_BYTES:
        told.append(f"the log has grown to {found['wal_bytes'] // 2**20} MiB: a read that lasts may be holding it")
    return told


def file_system(path: str) -> str:
    """The type of the file system that holds the file, as far as the system tells."""
    here = Path(path).resolve()
    best, kind = -1, "unknown"
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return kind
    for line in mounts:
        _, place, system, *_ = line.split()
        if len(place) > best and here.is_relative_to(place):
            best, kind = len(place), system
    return kind


def findings(connection: sqlite3.Connection, schema: Schema) -> list[str]:
    """Damage: SQLite's own check, tables and indexes that are not as declared, and logs with gaps."""
    told = [line for (line,) in connection.execute("PRAGMA integrity_check").fetchall() if line != "ok"]
    objects = read_objects(connection)
    told += [difference.problem for difference in differences(objects, schema)]
    tables = {item.name for item in objects if item.kind == "table"}
    for log in schema.logs:
        if log.name in tables:
            told += _gaps(connection, log.name, log.partition)
    return told


def _gaps(connection: sqlite3.Connection, log: str, partition: str) -> list[str]:
    gaps = connection.execute(
        f'SELECT "scope", {quote(partition)}, count(*), max("seq") FROM {quote(log)}'
        f' GROUP BY "scope", {quote(partition)} HAVING count(*) <> max("seq") OR min("seq") <> 1'
    )
    return [
        f"{log} {name!r} of scope {scope!r} has {count} entries but ends at {last}"
        for scope, name, count, last in gaps.fetchall()
    ]


def scopes(connection: sqlite3.Connection, schema: Schema) -> list[str]:
    """Every scope that holds a row: one look per scope and table, not one per row."""
    found: set[str] = set()
    for name in (quote(name) for name in (*schema.table, *schema.log)):
        rows = connection.execute(
            f'WITH RECURSIVE s(x) AS (SELECT min("scope") FROM {name} UNION ALL'
            f' SELECT (SELECT min("scope") FROM {name} WHERE "scope" > x) FROM s WHERE x IS NOT NULL)'
            " SELECT x FROM s WHERE x IS NOT NULL"
        )
        found.update(scope for (scope,) in rows.fetchall())
    # A damaged file may hold a scope that is not text: whoever asks must hear of it.
    return sorted(found, key=str)


def partitions(connection: sqlite3.Connection, log: Log, scope: str, after: str | None, limit: int) -> list[str]:
    """Partitions with entries, in byte order: one look per partition, not one per entry."""
    name, column = quote(log.name), quote(log.partition)
    beyond = f'SELECT min({column}) FROM {name} WHERE "scope" = ?1 AND {column} >'
    rows = connection.execute(
        f"WITH RECURSIVE p(x) AS ({beyond} ?2 UNION ALL SELECT ({beyond} x) FROM p WHERE x IS NOT NULL)"
        " SELECT x FROM p WHERE x IS NOT NULL LIMIT ?3",
        (scope, after or "", limit),
    )
    return [partition for (partition,) in rows.fetchall()]
