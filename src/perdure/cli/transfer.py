"""`perdure export` and `perdure import`: threads as a file of lines, and back.

A file under the name of an export is never half an export. An import reads its file twice: everything is checked before
anything is written.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, Progress, TimeElapsedColumn

import perdure
from perdure.cli.command import Options, Session, command
from perdure.cli.destination import STANDARD, destination, is_stdout
from perdure.cli.encodings import json_for_screen
from perdure.cli.escaping import one_line
from perdure.cli.terminal import bar_text, error_console
from perdure.errors import InvalidError, NotFoundError
from perdure.stores.transfer.export import Progress as Told
from perdure.stores.transfer.export import check_lines, export_lines, import_lines, read_lines

_EVERY = 64
"""Lines between two looks at the bar."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, name="export")(export_)
    command(app, access="create", prepare=_ready, name="import")(import_)


async def export_(
    session: Session,
    threads: Annotated[list[str] | None, typer.Argument(metavar="[THREAD]...", help="All if none is named.")] = None,
    *,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to; - is stdout.")] = STANDARD,
) -> None:
    """Write threads as lines of JSON: all of them, or those named."""
    chosen = [await session.thread_id(thread) for thread in threads] if threads else None
    told = Told("exporting", 0, 0, 0)
    to_stdout = is_stdout(out)
    async with destination(out) as file:
        on_screen = file.isatty() or (to_stdout and sys.stdout.isatty())

        with _bar("exporting", None, hidden=on_screen) as move:

            def progress(now: Told) -> None:
                nonlocal told
                told = now
                move(now)

            async for line in export_lines(session.store, chosen, progress=progress):
                file.write((json_for_screen(sys.stdout, line) if on_screen else line) + b"\n")
    if to_stdout:
        return
    if session.as_json:
        session.emit({"file": out, "threads": told.threads, "lines": told.lines, "bytes": told.bytes})
    else:
        session.say(f"exported {_count(told.threads, 'thread')} in {_count(told.lines, 'line')} to {one_line(out)}")


async def import_(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is stdin.")],
    *,
    skip_existing: Annotated[bool, typer.Option("--skip-existing", help="Leave threads that exist alone.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Make a thread whose parent is missing a root.")] = False,
) -> None:
    """Read threads from an export. A file that is damaged changes nothing; an interrupted import can be run again."""
    path = Path(file)
    with _bar("importing", 2 * _size(path)) as move:
        done = await import_lines(
            session.store,
            lambda: _lines(path),
            skip_existing=skip_existing,
            detach=detach,
            progress=lambda now: move(_twice(now, path)),
        )
    if session.as_json:
        session.emit(msgspec.structs.asdict(done))
        return
    left = f", left {done.skipped:,} as they were" if done.skipped else ""
    session.say(f"imported {_count(done.threads, 'thread')} in {_count(done.records, 'record')}{left}")


@asynccontextmanager
async def _ready(options: Options, is_new: bool) -> AsyncIterator[Options]:
    """The file, found and put aside if it is a stream; checked before a store is made for it."""
    with _origin(options["file"]) as path:
        if is_new:
            async with perdure.open("memory://") as nothing:
                with _bar("checking", _size(path)) as move:
                    await check_lines(nothing, lambda: _lines(path), detach=options["detach"], progress=move)
        yield {**options, "file": str(path)}


def _size(path: Path) -> int:
    return path.stat().st_size


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as opened:
        yield from read_lines(opened)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _twice(now: Told, path: Path) -> Told:
    """The file is read twice: the second reading is the second half of the bar."""
    if now.stage == "checking":
        return now
    return msgspec.structs.replace(now, bytes=now.bytes + _size(path))


@contextmanager
def _origin(file: str) -> Iterator[Path]:
    """The file itself; what comes from a stream (stdin, a FIFO) is put aside first, because it is read twice."""
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


@contextmanager
def _bar(title: str, total: int | None, *, hidden: bool = False) -> Iterator[Callable[[Told], None]]:
    """A progress bar on stderr; nothing at all when that is no terminal."""
    console = error_console()
    columns = (bar_text(title), BarColumn(), bar_text("{task.fields[threads]:,} threads"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal) as bar:
        task = bar.add_task(title, total=total, threads=0)

        def move(now: Told) -> None:
            if now.lines % _EVERY == 0:
                bar.update(task, completed=now.bytes if total else None, threads=now.threads)

        yield move
