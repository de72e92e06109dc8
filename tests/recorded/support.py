"""What the recorded workload needs besides the public API, in one place: servers, transfer, sweep and audit.

Everything else in this folder uses `perdure.open`, the stores, `perdure.errors` and the records alone. `old_and_new`
runs this folder with the code of older builds too, so what moved inside the product is named by every path it had,
newest first.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import perdure


def _first(*paths: str) -> Any:
    """The first of these modules that this build has."""
    for path in paths[:-1]:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(paths[-1])


_transfer = _first("perdure.stores.transfer.export", "perdure.stores.transfer")
_cleanup = _first("perdure.stores.cleanup")
_auditor = _first("perdure.audit", "perdure.testkit.auditor")
_copying = _first("perdure.copy", "perdure.moving")
export_lines, import_lines, check_lines = _transfer.export_lines, _transfer.import_lines, _transfer.check_lines


def servers() -> Any:
    """The test servers of this process."""
    return _first("tests.support.servers", "perdure.testkit.servers")


EMBEDDED = ("memory", "sqlite")
SERVERS = ("postgres", "mysql", "redis")
ENGINES = EMBEDDED + SERVERS


class Clock:
    """Milliseconds that move only when the workload says so, so that times are the same in every run."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Lossy:
    """An engine whose answer to a transaction is lost, after the transaction landed."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def transact(self, *args: Any, **options: Any) -> Any:
        await self._engine.transact(*args, **options)
        raise perdure.OutcomeUnknown("the answer was lost", rev=7)


async def engine_url(engine: str, folder: Path) -> str:
    """The URL of an empty store of this engine."""
    if engine == "memory":
        return "memory://"
    if engine == "sqlite":
        return f"sqlite:///{folder / 'recorded.db'}"
    return f"{await server_url(engine, 'kit')}?connections=2"


async def server_url(engine: str, label: str) -> str:
    """The URL of an empty database on this process's server."""
    harness = servers()
    url: str = await harness.fresh_database(harness.server(engine), label)
    return url


@asynccontextmanager
async def opened(url: str, clock: Clock) -> AsyncIterator[perdure.Store]:
    """The store at a URL. No housekeeping: what it removes in the background depends on the machine's pace."""
    durability = "power" if "://" in url and not url.startswith(("sqlite", "memory")) else "process"
    async with perdure.open(url, clock=clock, durability=durability, housekeeping=False) as store:
        yield store


async def copy_store(source: str, target: str) -> None:
    """Copy a whole store to another engine."""
    copy_store = getattr(_copying, "copy_store", None) or _copying.copy
    await copy_store(source, target)


async def sweep(store: perdure.Store) -> None:
    """Do now what housekeeping does in the background."""
    await _cleanup.sweep(getattr(store, "_context", None) or store._core)


async def audit(store: perdure.Store) -> list[str]:
    """What the auditor finds in every scope of the store, in words."""
    findings = [
        finding for scope in await store.engine.scopes() for finding in await _auditor.verify(store, scope=scope)
    ]
    return [str(finding) for finding in findings]
