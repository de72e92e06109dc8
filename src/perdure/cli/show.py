"""`perdure threads`, `perdure show` and `perdure runs`: lists, and everything about one thread."""

from __future__ import annotations

from typing import Annotated, Literal, cast

import typer
from rich.table import Table
from rich.text import Text

from perdure import limits
from perdure.cli.command import Session, ThreadArgument, command
from perdure.cli.documents import (
    branch_document,
    label_document,
    page_document,
    run_document,
    state_document,
    thread_document,
)
from perdure.cli.escaping import to_json_text
from perdure.cli.tables import Cell, Column
from perdure.cli.terminal import STATUSES, moment, plain
from perdure.errors import InvalidError
from perdure.kernel.ops import Get
from perdure.model.branch import Branch, Label
from perdure.model.run import Run
from perdure.model.state import StateDoc
from perdure.model.thread import Thread
from perdure.stores.store import Store

LimitOption = Annotated[int, typer.Option("--limit", "-n", help=f"At most so many, 1 to {limits.PAGE_MAX}.")]
CursorOption = Annotated[str | None, typer.Option("--cursor", help="Go on where a page ended.")]

_BRANCHES_SHOWN = 20
_LABELS_SHOWN = 20

_THREADS = (
    Column("id", "id", 9),
    Column("title", "text", 8),
    Column("messages", "number", 6),
    Column("resource", "text", 4),
    Column("run", "word", 7),
    Column("active", "time", 5),
)
_THREAD_OF_RUN = Column("thread", "id", 7)
_RUNS = (
    Column("id", "id", 9),
    Column("agent", "text", 6),
    Column("status", "word", 8),
    Column("steps", "number", 4),
    Column("tokens", "number", 2),
    Column("created", "time", 5),
    Column("outcome", "text", 3),
)
_BRANCHES = (
    Column("", "word", 7),
    Column("#", "number", 8),
    Column("name", "id", 9),
    Column("own", "number", 4),
    Column("forked at", "word", 5),
    Column("newest message", "text", 6),
)
_LABELS = (Column("at", "word", 9), Column("label", "text", 8))
_STATE = (
    Column("name", "id", 9),
    Column("schema", "word", 5),
    Column("written", "time", 6),
    Column("value", "text", 7),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(threads)
    command(app)(show)
    command(app)(runs)


async def threads(
    session: Session,
    *,
    resource: Annotated[str | None, typer.Option(help="Only those of a resource (a user, a project).")] = None,
    parent: Annotated[str | None, typer.Option(help="Only the children of a thread.")] = None,
    root: Annotated[bool, typer.Option("--root", help="Only those without a parent.")] = False,
    order: Annotated[str, typer.Option(help="active (changed last first) or created.")] = "active",
    limit: LimitOption = limits.PAGE_DEFAULT,
    cursor: CursorOption = None,
) -> None:
    """List threads, the most recently active first."""
    if order not in ("active", "created"):
        raise InvalidError(f"the order {order!r} is not known", hint="use active or created")
    page = await session.store.threads.list(
        resource_id=resource,
        parent_thread_id=None if parent is None else await session.thread_id(parent),
        root=root,
        order=cast("Literal['active', 'created']", order),
        limit=limit,
        cursor=cursor,
    )
    if session.as_json:
        session.emit(page_document(page, [thread_document(thread) for thread in page.items]))
        return
    if not page.items:
        session.say("no threads", "dim")
        return
    session.table(_THREADS, [_thread_row(thread) for thread in page.items])
    _more(session, page.next_cursor)


def _thread_row(thread: Thread) -> list[Cell]:
    return [
        plain(thread.id, "bold"),
        plain(thread.title, most=60),
        str(thread.version),
        plain(thread.resource_id),
        _run_mark(thread),
        moment(thread.updated_at),
    ]


def _run_mark(thread: Thread) -> Text:
    if thread.active_run_id is not None:
        return Text("running", STATUSES["running"])
    return Text("open", STATUSES["waiting"]) if thread.open_run_id is not None else Text("")


def _more(session: Session, cursor: str | None) -> None:
    if cursor is not None:
        session.say(f"there are more: --cursor {cursor}", "dim")


async def runs(
    session: Session,
    thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="Only the runs of a thread.")] = None,
    *,
    status: Annotated[str | None, typer.Option(help="created, running, waiting or done.")] = None,
    limit: LimitOption = limits.PAGE_DEFAULT,
    cursor: CursorOption = None,
) -> None:
    """List runs in order of creation: all, or those of a thread."""
    thread_id = None if thread is None else await session.thread_id(thread)
    page = await session.store.runs.list(thread_id=thread_id, status=status, limit=limit, cursor=cursor)
    if session.as_json:
        session.emit(page_document(page, [run_document(run) for run in page.items]))
        return
    if not page.items and page.next_cursor is None:
        session.say("no runs", "dim")
        return
    _show_runs(session, page.items, with_thread=thread_id is None)
    _more(session, page.next_cursor)


def _show_runs(session: Session, items: list[Run], *, with_thread: bool) -> None:
    if not with_thread:
        session.table(_RUNS, [_run_row(run) for run in items])
        return
    rows = [[first, plain(run.thread_id), *rest] for run in items for first, *rest in [_run_row(run)]]
    session.table([_RUNS[0], _THREAD_OF_RUN, *_RUNS[1:]], rows)


def _run_row(run: Run) -> list[Cell]:
    return [
        plain(run.id, "bold"),
        plain(run.agent_id),
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


async def show(session: Session, thread: ThreadArgument) -> None:
    """Show a thread: metadata, pointers, branches, labels, runs, state, and what is pending."""
    store, name = session.store, await session.thread_id(thread)
    found = await store.threads.get(name)
    branches = list(await store.branches.list(name))
    labels = list(await store.branches.labels(name))
    recent = await store.runs.list(thread_id=name, limit=limits.PAGE_MAX)
    state = list(await store.state.list(name))
    pending = await _count_pending(store, name)
    unfinished = await store.messages.unfinished_calls(name)
    if session.as_json:
        session.emit(
            {
                "thread": thread_document(found),
                "branches": [branch_document(branch) for branch in branches],
                "labels": [label_document(label) for label in labels],
                "runs": [run_document(run) for run in recent.items],
                "more_runs": recent.next_cursor is not None,
                "state": [state_document(doc) for doc in state],
                "pending": pending,
                "unfinished_calls": [
                    {"id": open_call.call.id, "name": open_call.call.name} for open_call in unfinished
                ],
            }
        )
        return
    session.show(_facts(found, pending=pending))
    _show_branches(session, branches, labels)
    if recent.items:
        session.show(Text("\nruns", "dim"))
        _show_runs(session, recent.items, with_thread=False)
    if state:
        session.show(Text("\nstate", "dim"))
        session.table(_STATE, [_state_row(doc) for doc in state])
    for item in unfinished:
        call = plain(f"{item.call.name} {item.call.id} at #{item.seq}")
        session.show(Text().append("\nunfinished call ", "bold yellow").append_text(call))


async def _count_pending(store: Store, thread_id: str) -> int:
    """How many messages are pending, without reading them: a full queue may hold gigabytes."""
    core = store._core  # noqa: SLF001 - no list counts
    row = (await core.view(Get("queues", [(thread_id,)])))[0][0]
    return 0 if row is None else int(row["count"])


def _show_branches(session: Session, branches: list[Branch], labels: list[Label]) -> None:
    session.show(Text("\nbranches", "dim"))
    branch_table(session, branches[-_BRANCHES_SHOWN:])
    if len(branches) > _BRANCHES_SHOWN:
        session.say(f"… the newest {_BRANCHES_SHOWN} of {len(branches):,}; perdure branch lists all", "dim")
    if labels:
        session.show(Text("\nlabels", "dim"))
        session.table(_LABELS, [[f"#{label.seq}", plain(label.label, "magenta")] for label in labels[-_LABELS_SHOWN:]])
    if len(labels) > _LABELS_SHOWN:
        session.say(f"… the newest {_LABELS_SHOWN} of {len(labels):,}; --json lists all", "dim")


def _facts(thread: Thread, *, pending: int) -> Table:
    shown = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    shown.add_column(style="dim")
    shown.add_column(overflow="fold")
    facts: list[tuple[str, object]] = [
        ("thread", plain(thread.id, "bold")),
        ("title", plain(thread.title)),
        ("resource", plain(thread.resource_id)),
        ("parent", plain(thread.parent_thread_id)),
        ("children", thread.children or ""),
        ("messages", thread.version),
        ("pending", pending or ""),
        ("created", moment(thread.created_at)),
        ("active", moment(thread.updated_at)),
        ("active run", plain(thread.active_run_id)),
        ("open run", plain(thread.open_run_id)),
        ("latest run", plain(thread.latest_run_id)),
        ("fence", "" if thread.fence is None else thread.fence),
        ("custom", plain(to_json_text(thread.custom)) if thread.custom else ""),
    ]
    for name, value in facts:
        if str(value):
            shown.add_row(name, value if isinstance(value, Text) else str(value))
    return shown


def branch_table(session: Session, branches: list[Branch]) -> None:
    """Write the branches of a thread, the current one marked."""
    session.table(_BRANCHES, [_branch_row(branch) for branch in branches])


def _branch_row(branch: Branch) -> list[Cell]:
    return [
        Text("•", "bold green") if branch.current else "",
        str(branch.id),
        plain(branch.name, "bold" if branch.current else ""),
        str(branch.length),
        "" if branch.parent is None else f"#{branch.fork_seq}",
        plain(branch.preview, most=60),
    ]


def _state_row(doc: StateDoc) -> list[Cell]:
    return [plain(doc.name, "bold"), str(doc.schema), moment(doc.at), plain(to_json_text(doc.value), most=60)]
