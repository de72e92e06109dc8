"""`perdure show`: everything about one thread."""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from perdure import limits
from perdure.cli.command import StoreContext, ThreadArgument, command
from perdure.cli.commands.branch import branch_table
from perdure.cli.commands.run import show_state
from perdure.cli.commands.runs import show_runs
from perdure.cli.documents import (
    branch_document,
    label_document,
    run_document,
    state_document,
    thread_document,
)
from perdure.cli.escaping import to_json_text
from perdure.cli.facts import Fact, facts_table
from perdure.cli.tables import Column
from perdure.cli.terminal import moment, plain, whole
from perdure.model.branch import Branch, Label
from perdure.model.thread import Thread

_BRANCHES_SHOWN = 20
_LABELS_SHOWN = 20
_LABELS = (Column("at", "word", 9), Column("label", "text", 8))


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(show)


async def show(context: StoreContext, thread: ThreadArgument) -> None:
    """Show a thread: metadata, pointers, branches, labels, runs, state, and what is pending."""
    store, name = context.store, await context.thread_id(thread)
    record = await store.threads.get(name)
    branches = list(await store.branches.list(name))
    labels = list(await store.branches.labels(name))
    recent = await store.runs.list(thread_id=name, limit=limits.PAGE_MAX)
    state = list(await store.state.list(name))
    pending = await store.pending.count(name)
    unfinished = await store.messages.unfinished_calls(name)
    if context.as_json:
        context.emit(
            {
                "thread": thread_document(record),
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
    context.show(_facts(record, pending=pending))
    _show_branches(context, branches, labels)
    if recent.items:
        context.show(Text("\nruns", "dim"))
        show_runs(context, recent.items, with_thread=False)
    if state:
        context.show(Text("\nstate", "dim"))
        show_state(context, state)
    for item in unfinished:
        call = plain(f"{item.call.name} {item.call.id} at #{item.seq}")
        context.show(Text().append("\nunfinished call ", "bold yellow").append_text(call))


def _show_branches(context: StoreContext, branches: list[Branch], labels: list[Label]) -> None:
    context.show(Text("\nbranches", "dim"))
    branch_table(context, branches[-_BRANCHES_SHOWN:])
    if len(branches) > _BRANCHES_SHOWN:
        context.say(f"… the newest {_BRANCHES_SHOWN} of {len(branches):,}; perdure branch lists all", "dim")
    if labels:
        context.show(Text("\nlabels", "dim"))
        context.table(_LABELS, [[f"#{label.seq}", plain(label.label, "magenta")] for label in labels[-_LABELS_SHOWN:]])
    if len(labels) > _LABELS_SHOWN:
        context.say(f"… the newest {_LABELS_SHOWN} of {len(labels):,}; --json lists all", "dim")


def _facts(thread: Thread, *, pending: int) -> Table:
    facts: list[Fact] = [
        ("thread", whole(thread.id, "bold")),
        ("title", plain(thread.title)),
        ("resource", whole(thread.resource_id)),
        ("parent", whole(thread.parent_thread_id)),
        ("children", thread.children or ""),
        ("messages", thread.version),
        ("pending", pending or ""),
        ("created", moment(thread.created_at)),
        ("active", moment(thread.updated_at)),
        ("active run", whole(thread.active_run_id)),
        ("open run", whole(thread.open_run_id)),
        ("latest run", whole(thread.latest_run_id)),
        ("fence", "" if thread.fence is None else thread.fence),
        ("custom", plain(to_json_text(thread.custom), most=2_000) if thread.custom else ""),
    ]
    return facts_table(facts)
