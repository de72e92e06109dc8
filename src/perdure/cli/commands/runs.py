"""`perdure runs`: the list of runs."""

from __future__ import annotations

from typing import Annotated, Literal, cast

import typer
from rich.text import Text

from perdure import limits
from perdure.cli.command import StoreContext, command
from perdure.cli.documents import (
    page_document,
    run_document,
)
from perdure.cli.listing import CursorOption, LimitOption, show_more
from perdure.cli.tables import Cell, Column
from perdure.cli.terminal import STATUSES, moment, plain, whole
from perdure.errors import InvalidError
from perdure.model.run import Run

_THREAD_OF_RUN = Column("thread", "id", 5)
_RUNS = (
    Column("id", "id", 9),
    Column("agent", "id", 6),
    Column("status", "word", 8),
    Column("steps", "number", 2),
    Column("tokens", "number", 1),
    Column("created", "time", 7),
    Column("outcome", "text", 4),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(runs)


async def runs(
    context: StoreContext,
    thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="Only the runs of a thread.")] = None,
    *,
    status: Annotated[str | None, typer.Option(help="created, running, waiting or done.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="ID", help="Only the runs of an agent.")] = None,
    resource: Annotated[str | None, typer.Option(metavar="ID", help="Only the runs on threads of a resource.")] = None,
    order: Annotated[str, typer.Option(help="desc (newest first) or asc.")] = "desc",
    limit: LimitOption = limits.PAGE_DEFAULT,
    cursor: CursorOption = None,
) -> None:
    """List runs, newest first: all, or those of a thread."""
    thread_id = None if thread is None else await context.thread_id(thread)
    if order not in ("desc", "asc"):
        raise InvalidError(f"the order {order!r} is not known", hint="use desc or asc")
    page = await context.store.runs.list(
        thread_id=thread_id,
        status=status,
        agent_id=agent,
        resource_id=resource,
        order=cast("Literal['desc', 'asc']", order),
        limit=limit,
        cursor=cursor,
    )
    if context.as_json:
        context.emit(page_document(page, [run_document(run) for run in page.items]))
        return
    if not page.items and page.next_cursor is None:
        context.say("no runs", "dim")
        return
    show_runs(context, page.items, with_thread=thread_id is None)
    show_more(context, page.next_cursor)


def show_runs(context: StoreContext, items: list[Run], *, with_thread: bool) -> None:
    """Write runs as a table; `with_thread` adds the column of their threads."""
    if not with_thread:
        context.table(_RUNS, [_run_row(run) for run in items])
        return
    rows = [[first, whole(run.thread_id), *rest] for run in items for first, *rest in [_run_row(run)]]
    context.table([_RUNS[0], _THREAD_OF_RUN, *_RUNS[1:]], rows)


def _run_row(run: Run) -> list[Cell]:
    return [
        whole(run.id, "bold"),
        whole(run.agent_id),
        Text(run.status, STATUSES.get(run.status, "")),
        str(run.steps),
        f"{run.input_tokens}+{run.output_tokens}" if run.input_tokens or run.output_tokens else "",
        moment(run.created_at),
        plain(_outcome(run), most=60),
    ]


def _outcome(run: Run) -> str:
    if run.outcome is not None:
        end = run.outcome.termination
        return " ".join(filter(None, (end.type, end.code, end.detail)))
    if run.waiting is not None:
        tickets = ", ".join(ticket.tool_name or ticket.ticket_id for ticket in run.waiting.tickets)
        return f"for {run.waiting.reason}" + (f": {tickets}" if tickets else "")
    return ""
