"""SQLite's failures as `perdure.errors`: the driver's exceptions end here.

Each kind has its own type and message, because a full disk, a locked file, a read-only file and a damaged one call for
different actions. Nothing here decides whether a commit landed; the writer does.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage

from perdure.engines.shared.schema_record import MIGRATED
from perdure.errors import CorruptError, PerdureError, UnavailableError

FULL, BUSY, LOCKED, READONLY = sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY
# The driver raises UnicodeDecodeError when SQLite's message quotes a name that is not UTF-8.
DRIVER_ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WRITE_LOCK_BYTE = "120"
_SHARED_MEMORY_BYTES = 64 * 1024
_MESSAGE_LENGTH = 300  # SQLite quotes names, and a hostile file may hold any


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code, 0 when the error carries none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    """True when another connection holds what this one needs."""
    return primary_code(error) in (BUSY, LOCKED)


def translate(error: Exception, path: str) -> PerdureError:
    """The public error for a failure that left nothing written."""
    code = primary_code(error)
    message = str(error)[:_MESSAGE_LENGTH]
    if code == FULL or (code == sqlite3.SQLITE_IOERR and _no_space(path)):
        return UnavailableError(f"disk full: {path} cannot grow; nothing was written", hint="free some space and retry")
    if code in (BUSY, LOCKED):
        return locked(path)
    if code == READONLY:
        return UnavailableError(
            f"{path} is read-only for this process", hint="check the permissions of the file and of its directory"
        )
    if isinstance(error, UnicodeDecodeError) or code in DAMAGED or "could not decode to utf-8" in message.lower():
        hint = "restore a backup, or save what is readable with `sqlite3 .recover`"
        return CorruptError(message, where=path, hint=hint)
    if code == sqlite3.SQLITE_INTERRUPT:
        return CorruptError("reading its list of tables does not end", where=path, hint="restore a backup")
    if code == sqlite3.SQLITE_CANTOPEN:
        return _not_opened(error, path)
    if code == sqlite3.SQLITE_IOERR or isinstance(error, OSError):
        return UnavailableError(f"an I/O error on {path}: {error}", hint="check the disk; nothing was written")
    if code == sqlite3.SQLITE_ERROR and "trigger" in message:
        return CorruptError(
            "a trigger was added to the file while it was open", where=path, hint="remove it; nothing was written"
        )
    if code == sqlite3.SQLITE_ERROR:
        return CorruptError(f"the file does not have the expected tables: {message}", where=path, hint=MIGRATED)
    return UnavailableError(f"SQLite failed on {path}: {error}")


def _not_opened(error: Exception, path: str) -> UnavailableError:
    """Usually the file of another user: new files are private, and so are the side files that a crash leaves."""
    for file in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(OSError):
            mode = Path(file).stat().st_mode & 0o777
            if not os.access(file, os.R_OK):
                return UnavailableError(
                    f"{file} may not be read by this process: its mode is {mode:o}",
                    hint=f"chmod it, and {path}-wal and {path}-shm where they exist",
                )
    return UnavailableError(f"{path} cannot be opened: {error}", hint="check that its directory exists and is writable")


def _no_space(path: str) -> bool:
    """True if the disk is full: SQLite reports an I/O error when there is no space for its shared memory."""
    with suppress(OSError):
        return disk_usage(Path(path).parent).free < _SHARED_MEMORY_BYTES
    return False


def locked(path: str) -> UnavailableError:
    """The error for a file that stayed locked; names the owner if the system shows it."""
    owners = lock_owners(path)
    who = f" by {', '.join(owners)}" if owners else " by another process"
    return UnavailableError(f"{path} is locked{who}", hint="end that transaction or process, then retry")


def lock_owners(path: str) -> list[str]:
    """The processes that hold the write lock, as far as /proc/locks shows them."""
    owners = []
    with suppress(OSError, ValueError, IndexError):
        # Only stat: opening and closing the file here would drop every lock this process holds on it.
        inode = str(Path(f"{path}-shm").stat().st_ino)
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
            # 1: POSIX  ADVISORY  WRITE 4711 fe:00:123456 120 120
            fields = [field for field in line.split() if field != "->"]
            if fields[3] == "WRITE" and fields[5].rpartition(":")[2] == inode and fields[6] == _WRITE_LOCK_BYTE:
                owners.append(f"process {fields[4]} ({_command(fields[4])})")
    return owners


def _command(pid: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return "not visible from here"
