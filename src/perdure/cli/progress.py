"""Progress bars on stderr, and numbers with their nouns.

A bar is drawn only on a terminal and vanishes when the work is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, ProgressColumn, TimeElapsedColumn

from perdure.cli.terminal import bar_text, error_console
from perdure.stores.transfer.source import TransferProgress

UPDATE_EVERY = 64
"""Rows or lines between two updates of a bar."""


class Bar:
    """A bar whose description, count and fields can be updated."""

    def __init__(self, progress: Progress, task: Any) -> None:
        self._progress = progress
        self._task = task

    def update(self, **fields: Any) -> None:
        """Change `completed`, `total`, `description`, or a field that a column shows."""
        self._progress.update(self._task, **fields)


@contextmanager
def progress_bar(
    title: str, *columns: ProgressColumn, total: int | None, hidden: bool = False, **fields: Any
) -> Iterator[Bar]:
    """Show a bar while the block runs; `columns` follow the bar itself, `fields` are what they show at first."""
    console = error_console()
    layout = (bar_text("{task.description}"), BarColumn(), *columns, TimeElapsedColumn())
    disable = hidden or not console.on_terminal
    with Progress(*layout, console=console, transient=True, disable=disable) as progress:
        yield Bar(progress, progress.add_task(title, total=total, **fields))


@contextmanager
def transfer_bar(
    title: str, total: int | None, *, hidden: bool = False
) -> Iterator[Callable[[TransferProgress], None]]:
    """The bar of an export or import: bytes of `total`, and threads done so far."""
    threads = bar_text("{task.fields[threads]:,} threads")
    with progress_bar(title, threads, total=total, hidden=hidden, threads=0) as bar:

        def update(progress: TransferProgress) -> None:
            if progress.lines % UPDATE_EVERY == 0:
                bar.update(completed=progress.bytes if total else None, threads=progress.threads)

        yield update


def counted(number: int, noun: str) -> str:
    """`1 thread`, `2,000 threads`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
