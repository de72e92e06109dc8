"""`perdure export`: threads as a file of JSON lines.

A file appears under its name only when the export is complete.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perdure.cli.command import StoreContext, command
from perdure.cli.confirmation import confirm
from perdure.cli.destination import STANDARD, destination, is_stdout, would_replace
from perdure.cli.encodings import json_for_screen
from perdure.cli.escaping import one_line
from perdure.cli.progress import counted, transfer_bar
from perdure.stores.transfer.export import export_lines
from perdure.stores.transfer.source import TransferProgress


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, name="export")(export_)


async def export_(
    context: StoreContext,
    threads: Annotated[list[str] | None, typer.Argument(metavar="[THREAD]...", help="All if none is named.")] = None,
    *,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="The file to write; - is stdout.")] = STANDARD,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file without asking.")] = False,
) -> None:
    """Write threads as JSON lines: all of them, or only the named ones."""
    chosen = [await context.thread_id(thread) for thread in threads] if threads else None
    latest = TransferProgress("exporting", 0, 0, 0)
    to_stdout = is_stdout(out)
    existed = would_replace(out)
    if existed:
        await confirm(f"{out!r} exists. Replace it?", answered=force, option="--force")
    async with destination(out, replace=force or existed) as file:
        on_screen = file.isatty() or (to_stdout and sys.stdout.isatty())

        with transfer_bar("exporting", None, hidden=on_screen) as update_bar:

            def on_progress(progress: TransferProgress) -> None:
                nonlocal latest
                latest = progress
                update_bar(progress)

            async for line in export_lines(context.store, chosen, on_progress=on_progress):
                file.write((json_for_screen(sys.stdout, line) if on_screen else line) + b"\n")
    if to_stdout:
        return
    if context.as_json:
        context.emit({"file": out, "threads": latest.threads, "lines": latest.lines, "bytes": latest.bytes})
    else:
        context.say(
            f"exported {counted(latest.threads, 'thread')} in {counted(latest.lines, 'line')} to {one_line(out)}"
        )
