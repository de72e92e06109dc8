"""The health of a file: its real settings, what weakens its promises, what is damaged, and what it contains."""

from __future__ import annotations

import sqlite3
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage
from typing import Any, TypeVar

from perdure.engines.sql.ddl import quote
from perdure.engines.sql.inspection import gap_problem, partitions_sql, scopes_sql
from perdure.engines.sqlite.connections.connect import file_size
from perdure.engines.sqlite.migrate import read_recorded
from perdure.engines.sqlite.schema import differences, read_objects
from perdure.kernel.schema import Log, Schema

T = TypeVar("T")
_NETWORK = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre")
_VOLATILE = ("tmpfs", "ramfs")
_LOW_DISK_BYTES = 64 * 1024 * 1024
_LARGE_WAL_BYTES = 64 * 1024 * 1024
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def settings(connection: sqlite3.Connection, path: str) -> dict[str, Any]:
    """The settings on which the file's promises depend, read from SQLite and the system."""

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
        "file_mode": _if_known(lambda: f"{stat.S_IMODE(Path(path).stat().st_mode):04o}"),
        "wal_bytes": file_size(f"{path}-wal"),
        "wal_present": Path(f"{path}-wal").exists(),
        "disk_free_bytes": _if_known(lambda: disk_usage(Path(path).parent).free),
        "file_system": file_system(path),
    }


def _if_known(read: Callable[[], T]) -> T | None:
    """What the system says; None if the file or its directory was moved or deleted."""
    with suppress(OSError):
        return read()
    return None


def problems(settings: Mapping[str, Any], *, writing: bool, gone: str | None = None) -> list[str]:
    """Human-readable problems with these settings; `gone` names a missing file for which commits are refused."""
    listed = []
    if gone is not None:
        listed.append(f"{gone}: commits are refused until it is back")
    elif not settings["file_bytes"]:
        listed.append("the file was moved, deleted or emptied while it was open: reads may fail until it is back")
    elif writing and settings["journal_mode"] == "wal" and not settings["wal_present"]:
        listed.append("the log was removed while it was open: what is written now is lost when the process ends")
    if writing and settings["synchronous"] not in ("FULL", "EXTRA"):
        listed.append(f"synchronous is {settings['synchronous']}: the last commits may be lost when power fails")
    if writing and settings["journal_mode"] != "wal":
        listed.append(f"journal_mode is {settings['journal_mode']}, not wal")
    system = str(settings["file_system"])
    if system.startswith(_NETWORK):
        listed.append(f"the file is on a network file system ({system}), where SQLite's locks are not reliable")
    if system in _VOLATILE:
        listed.append(f"the file is on {system}: it is gone when the machine restarts")
    elif Path(tempfile.gettempdir()).resolve() in Path(settings["path"]).resolve().parents:
        listed.append("the file is in the directory for temporary files, which the system may empty")
    free = settings["disk_free_bytes"]
    if free is not None and free < _LOW_DISK_BYTES:
        listed.append(f"only {free // 1024} KiB are free on the disk")
    if settings["wal_bytes"] > _LARGE_WAL_BYTES:
        listed.append(f"the log has grown to {settings['wal_bytes'] // 2**20} MiB: a read that lasts may be holding it")
    return listed


def file_system(path: str) -> str:
    """The type of the file system that holds the file, as far as it is known."""
    file = Path(path).resolve()
    longest, kind = -1, "unknown"
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return kind
    for line in mounts:
        _, mount_point, system, *_ = line.split()
        if len(mount_point) > longest and file.is_relative_to(mount_point):
            longest, kind = len(mount_point), system
    return kind


def damage(connection: sqlite3.Connection, schema: Schema) -> list[str]:
    """Human-readable damage: SQLite's own check, objects that are not as declared, and logs with gaps."""
    problems = [line for (line,) in connection.execute("PRAGMA integrity_check").fetchall() if line != "ok"]
    objects = read_objects(connection)
    problems += [difference.problem for difference in differences(objects, schema)]
    tables = {item.name for item in objects if item.kind == "table"}
    for log in schema.logs:
        if log.stored in tables:
            problems += _gaps(connection, log)
    return problems


def _gaps(connection: sqlite3.Connection, log: Log) -> list[str]:
    partition = quote(log.partition)
    missing = 'count(*) <> max("seq") OR min("seq") <> 1'
    if log.trim:
        missing = 'count(*) <> max("seq") - min("seq") + 1 OR min("seq") < 1'
    gaps = connection.execute(
        f'SELECT {partition}, "scope", count(*), max("seq") FROM {quote(log.stored)}'
        f' GROUP BY "scope", {partition} HAVING {missing}'
    )
    return [gap_problem(log.name, *gap) for gap in gaps.fetchall()]


def scopes(connection: sqlite3.Connection, schema: Schema) -> list[str]:
    """Every scope that holds a row."""
    names: set[str] = set()
    for table in schema.stored.values():
        names.update(scope for (scope,) in connection.execute(scopes_sql(quote(table))).fetchall())
    # A damaged file may hold a scope that is not text; the caller reports it.
    return sorted(names, key=str)


def partitions(connection: sqlite3.Connection, log: Log, scope: str, after: str | None, limit: int) -> list[str]:
    """Partitions with entries, in byte order."""
    sql = partitions_sql(log, quote(log.stored), "?1", "?2", "?3")
    return [partition for (partition,) in connection.execute(sql, (scope, after or "", limit)).fetchall()]
