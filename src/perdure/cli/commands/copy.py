"""`perdure copy`: copy a whole store to another engine, and verify it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import MofNCompleteColumn

from perdure.cli.command import CommandContext, command, insist_there
from perdure.cli.escaping import one_line
from perdure.cli.progress import UPDATE_EVERY, progress_bar
from perdure.cli.tables import Cell, Column
from perdure.cli.terminal import bar_text, error_console
from perdure.copy import Copied, CopyProgress, copy_store
from perdure.kernel.redaction import redacted
from perdure.opening import is_server

CopiedScopeOption = Annotated[
    str | None, typer.Option("--scope", metavar="NAME", help="The tenant to copy; default: all tenants.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, access="none", name="copy", takes_store=False, scope_option=CopiedScopeOption)(copy_)


async def copy_(
    context: CommandContext,
    source: Annotated[str, typer.Argument(metavar="SRC_URL", help="The store to copy; it is only read.")],
    target: Annotated[str, typer.Argument(metavar="DST_URL", help="The destination; created if it is missing.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be copied.")] = False,
) -> None:
    """Copy a whole store to another engine, all tenants or the one in --scope, and verify it.

    An interrupted copy resumes when it is run again.
    """
    if not is_server(source):
        await insist_there(source)
    scopes = None if context.scope is None else [context.scope]
    with _explain_stop("nothing was changed" if dry_run else "run it again to resume"), _bar() as on_progress:
        done = await copy_store(source, target, scopes=scopes, dry_run=dry_run, on_progress=on_progress)
    if context.as_json:
        context.emit({**_document(done), "source": redacted(source), "destination": redacted(target)})
        return
    _show_parts(context, done)
    what = "would be copied" if dry_run else "copied"
    there = done.rows - done.missing
    also = f", {there:,} were there already" if there else ""
    proof = "" if dry_run else "; both sides read back: counts and checksums are the same"
    context.say(
        f"{done.missing:,} rows {what} to {one_line(redacted(target))}{also}{proof}", "" if dry_run else "green"
    )


def _document(done: Copied) -> dict[str, Any]:
    parts = [msgspec.structs.asdict(part) for part in done.parts]
    return {"dry_run": done.dry_run, "rows": done.rows, "copied": done.missing, "bytes": done.bytes, "parts": parts}


def _show_parts(context: CommandContext, done: Copied) -> None:
    columns = [
        Column("scope", "id", 5),
        Column("part", "id", 6),
        Column("rows", "number", 4),
        Column("to copy" if done.dry_run else "copied", "number", 3),
        Column("checksum", "id", 1),
    ]
    rows: list[list[Cell]] = [
        [one_line(p.scope), p.name, f"{p.rows:,}", f"{p.missing:,}", (p.checksum or "–")[:16]]
        for p in done.parts
        if p.rows
    ]
    if rows:
        context.table(columns, rows)


@contextmanager
def _explain_stop(what_now: str) -> Iterator[None]:
    """Ctrl-C cancels the command: say what that means, and let it end."""
    try:
        yield
    except asyncio.CancelledError:
        error_console().print(f"stopped; {what_now}")
        raise


@contextmanager
def _bar() -> Iterator[Callable[[CopyProgress], None]]:
    part_column = bar_text("{task.fields[part]}")
    with progress_bar("comparing", MofNCompleteColumn(), part_column, total=None, part="") as bar:

        def on_progress(progress: CopyProgress) -> None:
            if progress.done % UPDATE_EVERY == 1:
                part = one_line(f"{progress.scope}/{progress.name}", 40)
                bar.update(description=progress.stage, completed=progress.done, total=progress.total, part=part)

        yield on_progress
