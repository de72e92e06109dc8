"""`perdure threads`: the list of threads."""

from __future__ import annotations

from typing import Annotated, Literal, cast

import typer
from rich.text import Text

from perdure import limits
from perdure.cli.command import StoreContext, command
from perdure.cli.documents import (
    page_document,
    thread_document,
)
from perdure.cli.listing import CursorOption, LimitOption, show_more
from perdure.cli.tables import Cell, Column
from perdure.cli.terminal import STATUSES, moment, plain, whole
from perdure.errors import InvalidError
from perdure.model.thread import Thread

_THREADS = (
    Column("id", "id", 9),
    Column("title", "text", 8),
    Column("messages", "number", 5),
    Column("resource", "id", 4),
    Column("run", "word", 6),
    Column("active", "time", 7),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(threads)


async def threads(
    context: StoreContext,
    *,
    resource: Annotated[
        str | None, typer.Option(metavar="ID", help="Only those of a resource (a user, a project).")
    ] = None,
    parent: Annotated[str | None, typer.Option(metavar="THREAD", help="Only the children of a thread.")] = None,
    root: Annotated[bool, typer.Option("--root", help="Only those without a parent.")] = False,
    order: Annotated[
        str, typer.Option(help="active (most recently active first) or created (newest first).")
    ] = "active",
    limit: LimitOption = limits.PAGE_DEFAULT,
    cursor: CursorOption = None,
) -> None:
    """List threads, the most recently active first."""
    if order not in ("active", "created"):
        raise InvalidError(f"the order {order!r} is not known", hint="use active or created")
    page = await context.store.threads.list(
        resource_id=resource,
        parent_thread_id=None if parent is None else await context.thread_id(parent),
        root=root,
        order=cast("Literal['active', 'created']", order),
        limit=limit,
        cursor=cursor,
    )
    if context.as_json:
        context.emit(page_document(page, [thread_document(thread) for thread in page.items]))
        return
    if not page.items:
        context.say("no threads", "dim")
        return
    context.table(_THREADS, [_thread_row(thread) for thread in page.items])
    show_more(context, page.next_cursor)


def _thread_row(thread: Thread) -> list[Cell]:
    return [
        whole(thread.id, "bold"),
        plain(thread.title, most=60),
        str(thread.version),
        whole(thread.resource_id),
        _run_mark(thread),
        moment(thread.updated_at),
    ]


def _run_mark(thread: Thread) -> Text:
    if thread.active_run_id is not None:
        return Text("running", STATUSES["running"])
    return Text("open", STATUSES["waiting"]) if thread.open_run_id is not None else Text("")
