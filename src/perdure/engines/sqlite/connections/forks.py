"""Forks: a registry of the files this process has open, which a forked child must never open.

SQLite keeps the locks it holds in a table per inode, in the memory of the process. A forked child inherits the table
but not the locks. Its own connections would take no lock at all, because the table says that one is held; the next
process to close the file would believe it is the last, and delete the log that the child writes to. So every connection
is registered here from before it is opened until after it is closed, and a file that is registered at a fork is refused
in the child for good: by device and inode, whatever the path.

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
    """The identity of the file at this path; None if it cannot be read."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def store_of_parent() -> UnsupportedError:
    """The error for every call to an inherited store."""
    return UnsupportedError("the store was opened before the fork, so it belongs to the parent process", hint=_HINT)


class Registered:
    """A connection in the registry, with the identities of its path before and after it was opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.identities = {identity_of(path)}
        self.connection: weakref.ref[TrackedConnection] | None = None

    def all_identities(self) -> set[Identity]:
        """Every file that this may be; a connection that is being opened is looked up once more."""
        return {identity for identity in (*self.identities, identity_of(self.path)) if identity is not None}


class Registry:
    """What this process has open, and what its ancestors had open when they forked."""

    def __init__(self) -> None:
        self.connections: set[Registered] = set()
        self.inherited: set[Identity] = set()
        self.opening = threading.Lock()
        """Held while a file is created or opened: closing a descriptor drops the locks of the whole process."""
        self._inherited_connections: list[TrackedConnection] = []

    def refuse_inherited(self, path: str) -> None:
        """Raise if the parent process had this file open at the fork."""
        if self.inherited and identity_of(path) in self.inherited:
            raise UnsupportedError(
                f"{path} was open in the parent process at the fork; opening it here as well would lose data",
                hint=_HINT,
            )

    def after_fork_in_child(self) -> None:
        """Refuse every registered file, and make sure that nothing ever closes its connections."""
        for registered in self.connections:
            self.inherited |= registered.all_identities()
            connection = registered.connection() if registered.connection is not None else None
            if connection is not None:
                self._inherited_connections.append(connection)
                # An extra reference: the interpreter closes what it frees, and at exit it frees this list too.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self.connections = set()
        self.opening = threading.Lock()  # another thread of the parent may have held it


registry = Registry()


class TrackedConnection(sqlite3.Connection):
    """A connection that is registered until it is closed."""

    registered: Registered | None = None
    _registry: ClassVar[Registry] = registry  # here, because at exit a module is emptied before its last objects go

    def close(self) -> None:
        """Close it; does nothing if it is closed already or was inherited."""
        registered = self.registered
        if registered is None or registered not in self._registry.connections:
            return
        try:
            super().close()
        finally:  # Ctrl-C may come in between
            self._registry.connections.discard(registered)

    def __del__(self) -> None:
        warn = getattr(super(), "__del__", None)  # newer Pythons warn about unclosed connections
        if warn is not None and self.registered in self._registry.connections:
            warn()
        self.close()


def connect(path: str, uri: str, *, create: bool = False, **options: Any) -> sqlite3.Connection:
    """`sqlite3.connect`, registered; refuses an inherited file. `create` creates a missing file."""
    registry.refuse_inherited(path)
    registered = Registered(path)
    registry.connections.add(registered)
    try:
        with registry.opening:
            if create:
                _create_private(path)
            connection: TrackedConnection = sqlite3.connect(uri, uri=True, factory=TrackedConnection, **options)
        registered.identities.add(identity_of(path))
        registered.connection = weakref.ref(connection)
        connection.registered = registered
    except BaseException:
        registry.connections.discard(registered)
        raise
    return connection


def _create_private(path: str) -> None:
    """Create an empty file that only its owner may read, whatever the umask; SQLite gives its log the same mode.

    `O_EXCL` never opens an existing file, so no locks are dropped, and follows no link. If the file cannot be created,
    SQLite reports why.
    """
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o600)  # a umask may have removed the owner's own permissions
        finally:
            os.close(descriptor)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=registry.after_fork_in_child)
