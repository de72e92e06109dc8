"""The file of a store: its resolved path, and whether that still leads to the same file.

SQLite keeps its log next to the real file, named after it. So a path is resolved once, when the store is opened, and
only the resolved path is used. A file with two names (hard links) could have two logs, and neither name shows the log
of the other; such a file is refused, for reading too: it would be read without its last commits.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from perdure.engines.sqlite.connections.forks import Identity, identity_of, registry
from perdure.errors import CorruptError, InvalidError, UnavailableError, short_repr

_SMALLEST_DATABASE = 512
_LOG_SECONDS = 0.02


def usable_path(path: str) -> str:
    """The absolute path with all links resolved; raises if it cannot be that of a database."""
    if not path or path == ":memory:" or "\0" in path:
        raise InvalidError(f"{short_repr(path)} is not a file name", hint="use memory:// for a store without a file")
    try:
        return _usable_path(path)
    except UnicodeError:
        raise InvalidError(f"{short_repr(path)} is not a file name: the system cannot spell it") from None
    except OSError as error:
        raise UnavailableError(
            f"{short_repr(path)} cannot be opened: {error.strerror or error}",
            hint="check the name, and the permissions of the directories that lead to it",
        ) from None


def _usable_path(path: str) -> str:
    resolved = _resolve(path)
    if resolved.is_dir():
        raise InvalidError(f"{path} is a directory", hint="name a file inside it")
    if not resolved.parent.is_dir():
        raise UnavailableError(f"the directory {resolved.parent} does not exist", hint="create it first")
    if resolved.exists():
        _refuse_unusable(resolved)
    elif Path(path).is_symlink():
        raise UnavailableError(
            f"{path} is a symbolic link to {resolved}, which does not exist",
            hint=f"fix the link, or open {resolved} itself to create it",
        )
    return str(resolved)


def _resolve(path: str) -> Path:
    try:
        resolved = Path(path).resolve()
    except RuntimeError:  # a loop, on Python before 3.13
        resolved = Path(path)
    if resolved.is_symlink():
        raise UnavailableError(f"{path} is a symbolic link that leads back to itself", hint="fix the link")
    return resolved


def _refuse_unusable(file: Path) -> None:
    registry.refuse_inherited(str(file))
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UnavailableError(f"{file} is not a regular file", hint="choose another file name")
    if 0 < status.st_size < _SMALLEST_DATABASE:
        # SQLite treats a file of one byte as empty, and would overwrite it.
        raise CorruptError("file is not a database", where=str(file), hint="choose another file name")
    if status.st_nlink > 1:
        raise UnavailableError(
            f"{file} has {status.st_nlink} names (hard links); commits in the log of the other name would be lost",
            hint="remove the other names, or copy the file (cp) and open the copy",
        )


class DatabaseFile:
    """The file that a store has open. What is written to a file that left its path is lost when the process ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file, self._log = Path(path), Path(f"{path}-wal")
        self._identity = identity_of(path)
        self._log_checked_at = 0.0

    def log_identity(self) -> Identity | None:
        """The identity of the log, for a connection that has just opened it."""
        return identity_of(str(self._log))

    def refuse_if_gone(self, log: Identity | None = None) -> None:
        """Raise if the file, or the log when it is known, was moved, deleted or replaced."""
        if log is not None and time.monotonic() - self._log_checked_at <= _LOG_SECONDS:
            # Every commit comes through here: most need to look at the file alone.
            try:
                status = os.stat(self.path)  # noqa: PTH116 - a `Path` takes as long again
            except OSError:
                status = None
            if status is not None and self._identity == (status.st_dev, status.st_ino):
                return
        gone = self.gone(log)
        if gone is not None:
            raise UnavailableError(
                f"{gone}; nothing was written",
                hint="put it back, or read from this store what you need, then close it and open it again",
            )

    def gone(self, log: Identity | None = None, *, at_once: bool = False) -> str | None:
        """Human-readable: what was moved, deleted or replaced, the file or (if known) its log.

        The file is checked every time. The log is checked every 20 ms, or `at_once`: a commit in between is in the
        open log, and a clean close still saves it.
        """
        if not _is_still(self._file, self._identity):
            return f"{self.path} was moved, deleted or replaced while it was open"
        if log is None or not (at_once or time.monotonic() - self._log_checked_at > _LOG_SECONDS):
            return None
        self._log_checked_at = time.monotonic()
        if _is_still(self._log, log):
            return None
        self._log_checked_at = 0.0
        return f"the log {self._log} was removed or replaced while it was open"


def _is_still(path: Path, identity: Identity | None) -> bool:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # it cannot be examined; SQLite, which has it open, reports what is wrong
    return identity is None or identity == (status.st_dev, status.st_ino)
