"""Which files this process has open, so that a child forked meanwhile never opens them.

SQLite keeps the locks it holds in a table per inode, in the memory of the process. A forked child inherits the table
but not the locks. Its own connections would take no lock at all, because the table says that one is held; the next
process to close the file would believe it is the last, and delete the log that the child writes to. So every connection
is on record here from before it is made until after it is closed, and what is on record at a fork is refused in the
child for good: by device and inode, whatever name leads there.

Inherited connections are never closed either, not even when the child ends: closing one may delete a log by its name
that another process has filled since.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from perdure.errors import UnsupportedError

Identity = tuple[int, int]
"""Device and inode."""

_HINT = "start the process with spawn or forkserver, open stores only after the fork, or close them before it"


def identity_of(path: str) -> Identity | None:
    """Which file the path leads to; None when that cannot be told."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def store_of_parent() -> UnsupportedError:
    """For every call to an inherited store."""
    return UnsupportedError("the store was opened before the fork, so it belongs to the parent process", hint=_HINT)


class Held:
    """A connection on record, and the file it leads to as seen before and after it was made."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.identities = {identity_of(path)}
        self.connection: weakref.ref[TrackedConnection] | None = None

    def all_identities(self) -> set[Identity]:
        """Every file that this may be; one that is being opened is looked up once more."""
        return {identity for identity in (*self.identities, identity_of(self.path)) if identity is not None}


class Registry:
    """What this process has open, and what its ancestors had open when they forked."""

    def __init__(self) -> None:
        self.held: set[Held] = set()
        self.inherited: set[Identity] = set()
        self.opening = threading.Lock()
        """Held while a file is made or opened: whoever closes a descriptor drops the locks of the whole process."""
        self._kept: list[TrackedConnection] = []

    def refuse_inherited(self, path: str) -> None:
        """Raise if the parent had this file open at the fork."""
        if self.inherited and identity_of(path) in self.inherited:
            raise UnsupportedError(
                f"{path} was open in the parent process at the fork; opening it here as well would lose data",
                hint=_HINT,
            )

    def after_fork_in_child(self) -> None:
        """Refuse what is on record, and make sure that nothing ever closes it."""
        for held in self.held:
            self.inherited |= held.all_identities()
            connection = held.connection() if held.connection is not None else None
            if connection is not None:
                self._kept.append(connection)
                # A reference too many: the interpreter closes what it frees, and at its end it frees this list too.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self.held = set()
        self.opening = threading.Lock()  # another thread of the parent may have held it


registry = Registry()


class TrackedConnection(sqlite3.Connection):
    """A connection that is on record until it is closed."""

    held: Held | None = None
    _registry: ClassVar[Registry] = registry  # here, because a module is emptied before its last objects go

    def close(self) -> None:
        """Close it; nothing at all if it is closed already or was inherited."""
        held = self.held
        if held is None or held not in self._registry.held:
            return
        try:
            super().close()
        finally:  # Ctrl-C may come in between
            self._registry.held.discard(held)

    def __del__(self) -> None:
        warn = getattr(super(), "__del__", None)  # newer Pythons warn of a connection that nobody closed
        if warn is not None and self.held in self._registry.held:
            warn()
        self.close()


def connect(path: str, uri: str, *, create: bool = False, **options: Any) -> sqlite3.Connection:
    """`sqlite3.connect`, on record; refuses a file that was inherited. `create` makes a file that is not there yet."""
    registry.refuse_inherited(path)
    held = Held(path)
    registry.held.add(held)
    try:
        with registry.opening:
            if create:
                _create_private(path)
            connection: TrackedConnection = sqlite3.connect(uri, uri=True, factory=TrackedConnection, **options)
        held.identities.add(identity_of(path))
        held.connection = weakref.ref(connection)
        connection.held = held
    except BaseException:
        registry.held.discard(held)
        raise
    return connection


def _create_private(path: str) -> None:
    """Make an empty file that only its owner may read, whatever the umask; SQLite gives its log the same mode.

    `O_EXCL` never opens what is there already, so nobody's locks are dropped, and follows no link. Where the file
    cannot be made, SQLite is the one to say why.
    """
    with suppress(OSError):
        made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            if hasattr(os, "fchmod"):
                os.fchmod(made, 0o600)  # a umask may have taken the owner's own rights
        finally:
            os.close(made)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=registry.after_fork_in_child)
