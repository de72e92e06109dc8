"""`perdure import`: threads from an export.

The file is read twice: everything is checked before anything is written.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

import perdure
from perdure.cli.command import Options, StoreContext, command
from perdure.cli.destination import STANDARD
from perdure.cli.progress import counted, transfer_bar
from perdure.errors import InvalidError, NotFoundError
from perdure.stores.transfer.export import check_lines, import_lines, read_lines
from perdure.stores.transfer.source import TransferProgress


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, access="create", prepare=_ready, name="import")(import_)


async def import_(
    context: StoreContext,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is stdin.")],
    *,
    skip_existing: Annotated[bool, typer.Option("--skip-existing", help="Skip threads that already exist.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Import a thread whose parent is missing as a root.")
    ] = False,
) -> None:
    """Import threads from an export. A damaged file changes nothing; an interrupted import can be run again."""
    path = Path(file)
    with transfer_bar("importing", 2 * _size(path)) as update_bar:
        done = await import_lines(
            context.store,
            lambda: _lines(path),
            skip_existing=skip_existing,
            detach=detach,
            on_progress=lambda progress: update_bar(_twice(progress, path)),
        )
    if context.as_json:
        context.emit(msgspec.structs.asdict(done))
        return
    left = f", left {done.skipped:,} as they were" if done.skipped else ""
    context.say(f"imported {counted(done.threads, 'thread')} in {counted(done.records, 'record')}{left}")


@asynccontextmanager
async def _ready(options: Options, is_new: bool) -> AsyncIterator[Options]:
    """The file, spooled if it is a stream; checked before a store is created for it."""
    with _origin(options["file"]) as path:
        if is_new:
            async with perdure.open("memory://") as nothing:
                with transfer_bar("checking", _size(path)) as update_bar:
                    await check_lines(nothing, lambda: _lines(path), detach=options["detach"], on_progress=update_bar)
        yield {**options, "file": str(path)}


def _size(path: Path) -> int:
    return path.stat().st_size


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as opened:
        yield from read_lines(opened)


def _twice(progress: TransferProgress, path: Path) -> TransferProgress:
    """The file is read twice: the second reading is the second half of the bar."""
    if progress.stage == "checking":
        return progress
    return msgspec.structs.replace(progress, bytes=progress.bytes + _size(path))


@contextmanager
def _origin(file: str) -> Iterator[Path]:
    """The file itself; a stream (stdin, a FIFO) is spooled first, because the file is read twice."""
    path = Path(file)
    if file != STANDARD and path.is_dir():
        raise InvalidError(f"{file!r} is a directory", hint="name a file in it")
    if file != STANDARD and not path.exists():
        raise NotFoundError(f"there is no file {file!r}")
    if file != STANDARD and path.is_file():
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="perdure-import-") as spool:
        if file == STANDARD:
            shutil.copyfileobj(sys.stdin.buffer, spool)
        else:
            with path.open("rb") as stream:
                shutil.copyfileobj(stream, spool)
        spool.flush()
        yield Path(spool.name)
