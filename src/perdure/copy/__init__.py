"""Copy a whole store to another engine: `await perdure.copy.copy_store("sqlite:///agents.db", "postgresql://…")`.

This is what `perdure copy` runs. Stop all writers first. A write before the copy's final check of
both sides makes the copy fail; a write during that check or after it may be missed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from perdure.copy.engines import Copied, CopyProgress, OnProgress, Part, chosen_scopes, copy_engine
from perdure.errors import InvalidError, short_repr
from perdure.kernel.engine import Engine
from perdure.kernel.redaction import redacted
from perdure.opening import is_server, open_engine, plan_migration, sqlite_path
from perdure.rules import checks

__all__ = ["Copied", "Part", "OnProgress", "CopyProgress", "copy_engine", "copy_store"]

LAST = ("thread_heads",)
"""A thread is alive exactly as long as its row here exists. Copied last, no thread is seen at the destination before
all of it has arrived, and one that is half copied cannot be written to."""


async def copy_store(
    source_url: str,
    target_url: str,
    *,
    scopes: Sequence[str] | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Copied:
    """Copy every scope (or some) of one store to another, of any engine, and prove it by counts and checksums.

    The source is opened read-only. The destination is made if it is missing; what it holds already must be the same as
    at the source, or `ConflictError` names the first difference. Interrupted, it can be run again. A dry run changes
    nothing and tells what would be copied.
    """
    refuse_volatile(source_url)
    refuse_volatile(target_url)
    scopes = _checked_scopes(scopes)
    if type(dry_run) is not bool:
        raise InvalidError(f"dry_run must be a bool, not {short_repr(dry_run)}")
    if on_progress is not None and not callable(on_progress):
        raise InvalidError(f"on_progress must be a function, not {short_repr(on_progress)}")
    file = _file(source_url)
    if source_url == target_url or (file is not None and file == _file(target_url)):
        raise InvalidError(f"source and destination are the same: {redacted(source_url)}")
    source = await open_engine(source_url, read_only=True)
    try:
        if scopes is not None:
            await chosen_scopes(source, scopes)  # before a destination is made for nothing
        target = await _dry_target(target_url) if dry_run else await open_engine(target_url)
        try:
            return await copy_engine(source, target, scopes=scopes, last=LAST, dry_run=dry_run, on_progress=on_progress)
        finally:
            await target.close()
    finally:
        await source.close()


def refuse_volatile(url: str) -> None:
    """Refuse a URL whose store is gone when the process ends."""
    if type(url) is not str:
        raise InvalidError(f"a store's URL must be a str, not {short_repr(url)}", hint="e.g. sqlite:///agents.db")
    if url.startswith("memory://"):
        raise InvalidError("memory:// stores are not persistent", hint="use sqlite:/// or a server")


def _checked_scopes(scopes: Sequence[str] | None) -> list[str] | None:
    if scopes is None:
        return None
    if isinstance(scopes, str) or not isinstance(scopes, Iterable):
        raise InvalidError(f"scopes must be a list of names, not {short_repr(scopes)}")
    names = list(scopes)
    for name in names:
        checks.check_scope(name)
    return names


def _file(url: str) -> str | None:
    """The file behind a URL, whatever links lead there; None for a server."""
    return None if is_server(url) else os.path.realpath(sqlite_path(url))


async def _dry_target(url: str) -> Engine:
    """The destination as it is; where there is nothing yet, something empty in its place."""
    if (await plan_migration(url)).current is None:
        return await open_engine("memory://")
    return await open_engine(url, read_only=True)
