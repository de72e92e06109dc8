"""`perdure run`, `cancel`, `decide` and `rerun`: everything about one run, and how to move one from outside."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from perdure.cli.command import RunArgument, StoreContext, command
from perdure.cli.confirmation import YesOption, confirm
from perdure.cli.documents import run_document
from perdure.cli.escaping import to_json_text
from perdure.cli.facts import Fact, facts_table
from perdure.cli.tables import Cell, Column
from perdure.cli.terminal import STATUSES, moment, plain, whole
from perdure.errors import InvalidError, short_repr
from perdure.model.message import Message
from perdure.model.run import DONE, RUNNING, WAITING, Run
from perdure.model.state import StateDoc
from perdure.model.tickets import Ticket

_TICKETS = (
    Column("ticket", "id", 9),
    Column("tool", "word", 8),
    Column("call", "id", 6),
    Column("reason", "text", 5),
    Column("decision", "text", 8),
    Column("arguments", "text", 7),
)
_STATE = (
    Column("name", "id", 9),
    Column("schema", "word", 5),
    Column("written", "time", 6),
    Column("value", "text", 7),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(run)
    command(app, access="write")(cancel)
    command(app, access="write")(decide)
    command(app, access="write")(rerun)


async def run(context: StoreContext, run: RunArgument) -> None:
    """Show a run: status, times, tokens, what it waits for, how it ended, metadata and state."""
    record = await context.run(run)
    state = list(await context.store.state.list(record.thread_id, run_id=record.id))
    if context.as_json:
        documents = [msgspec.structs.asdict(doc) for doc in state]
        context.emit({"run": run_document(record), "state": documents})
        return
    context.show(facts_table(_facts(record)))
    for title, wait in (("tickets", record.waiting), ("decisions it was resumed with", record.body.resumed_from)):
        if wait is not None and wait.tickets:
            context.show(Text(f"\n{title}", "dim"))
            context.table(_TICKETS, [_ticket_row(ticket) for ticket in wait.tickets])
    if state:
        context.show(Text("\nstate", "dim"))
        show_state(context, state)


def show_state(context: StoreContext, state: list[StateDoc]) -> None:
    """Write state documents as a table."""
    context.table(_STATE, [_state_row(doc) for doc in state])


async def cancel(
    context: StoreContext,
    run: RunArgument,
    *,
    detail: Annotated[str | None, typer.Option("--detail", metavar="TEXT", help="Why the run is cancelled.")] = None,
    keep_draft: Annotated[bool, typer.Option("--keep-draft", help="Store the words that are shown so far.")] = False,
    yes: YesOption = False,
) -> None:
    """End a run that is not done, as cancelled. Its worker's next commit is refused."""
    record = await context.run(run)
    _refuse_done(record)
    await confirm(f"Cancel run {record.id!r} of agent {record.agent_id!r} ({record.status})?", answered=yes)
    ended = await context.store.runs.cancel(record.id, detail, keep_draft=keep_draft)
    if ended.outcome is None or ended.outcome.termination.type != "cancelled":
        _refuse_done(ended)
    if context.as_json:
        context.emit(run_document(ended))
    else:
        context.say(f"cancelled run {ended.id}")


async def decide(
    context: StoreContext,
    run: RunArgument,
    ticket: Annotated[str, typer.Argument(metavar="TICKET", help="The id of the ticket.")],
    value: Annotated[str, typer.Argument(metavar="JSON", help="The decision: any JSON value but null.")],
) -> None:
    """Decide a ticket of a waiting run. The run keeps waiting until a worker resumes it."""
    record = await context.store.runs.decide((await context.run(run)).id, ticket, _decision(value))
    if context.as_json:
        context.emit(run_document(record))
        return
    left = [each.ticket_id for each in record.tickets if each.decision is None]
    rest = f"still undecided: {', '.join(left)}" if left else "ready to resume" if record.ready else record.status
    context.say(f"decided ticket {ticket} of run {record.id} ({rest})")


async def rerun(
    context: StoreContext,
    run: RunArgument,
    *,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="Replaces the question that the run was given.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="ID", help="A different agent from the run's.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The name of the branch.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Makes a repetition safe.")] = None,
    yes: YesOption = False,
) -> None:
    """Answer again on a new branch: a worker gets a new run. Open runs of the thread are cancelled."""
    record = await context.run(run)
    await _confirm_replaced(context, record, answered=yes)
    messages = None if message is None else [Message.user(message)]
    started = await context.store.runs.rerun(record.id, messages=messages, agent_id=agent, name=name, key=key)
    if context.as_json:
        context.emit(run_document(started))
        return
    branch = await context.store.branches.get(started.thread_id, started.branch)
    context.say(f"started run {started.id} on branch {branch.name} of thread {started.thread_id}")


async def _confirm_replaced(context: StoreContext, record: Run, *, answered: bool) -> None:
    """Ask before a rerun cancels runs that somebody may be working on."""
    runs = context.store.runs
    for status in (RUNNING, WAITING):
        for other in (await runs.list(thread_id=record.thread_id, status=status, limit=1)).items:
            question = f"Cancel the open runs of thread {record.thread_id!r}, such as {other.id!r} ({status})?"
            await confirm(question, answered=answered)
            return


def _decision(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        hint = """true, false, 3, '"text"' and '{"approved": true}' are decisions"""
        raise InvalidError(f"the decision must be JSON, not {short_repr(text)}", hint=hint) from None


def _refuse_done(record: Run) -> None:
    if record.status == DONE:
        how = "" if record.outcome is None else f" ({record.outcome.termination.type})"
        raise InvalidError(f"run {record.id!r} is already done{how}", hint="there is nothing to cancel")


def _facts(run: Run) -> list[Fact]:
    tokens = f"{run.input_tokens} in, {run.output_tokens} out" if run.input_tokens or run.output_tokens else ""
    return [
        ("run", whole(run.id, "bold")),
        ("thread", whole(run.thread_id)),
        ("branch", run.branch),
        ("agent", whole(run.agent_id)),
        ("status", Text(run.status, STATUSES.get(run.status, ""))),
        ("parent run", whole(run.parent_run_id)),
        ("created", moment(run.created_at)),
        ("started", "" if run.started_at is None else moment(run.started_at)),
        ("finished", "" if run.finished_at is None else moment(run.finished_at)),
        ("changed", moment(run.updated_at)),
        ("steps", run.steps),
        ("tokens", tokens),
        *_messages(run),
        *_waiting(run),
        *_outcome(run),
        ("dispatch", whole(run.body.dispatch_id)),
        ("session", whole(run.body.session_id)),
        ("metadata", plain(to_json_text(run.body.metadata), most=2_000) if run.body.metadata else ""),
    ]


def _messages(run: Run) -> list[Fact]:
    """Which messages it was given, and which it produced."""
    reads = run.input.range if run.input is not None else None
    read = "" if reads is None else f"#{reads.from_seq}–#{reads.to_seq}"
    written = "" if run.output is None else f"{run.output.count} from #{run.output.first} to #{run.output.last}"
    return [("input", read), ("output", written)]


def _waiting(run: Run) -> list[Fact]:
    if run.waiting is None:
        return []
    return [("waits for", plain(run.waiting.reason)), ("message", plain(run.waiting.message, most=2_000))]


def _outcome(run: Run) -> list[Fact]:
    if run.outcome is None:
        return []
    end = run.outcome.termination
    return [
        ("outcome", plain(" ".join(filter(None, (end.type, end.code))))),
        ("detail", plain(end.detail, most=2_000)),
        ("final output", plain(run.outcome.final_output, most=2_000)),
        ("error", "" if run.outcome.error is None else plain(to_json_text(run.outcome.error), "red", most=2_000)),
    ]


def _ticket_row(ticket: Ticket) -> list[Cell]:
    return [
        whole(ticket.ticket_id, "bold"),
        whole(ticket.tool_name),
        whole(ticket.tool_call_id),
        plain(ticket.reason),
        "" if ticket.decision is None else plain(to_json_text(ticket.decision)),
        "" if ticket.arguments is None else plain(to_json_text(ticket.arguments)),
    ]


def _state_row(doc: StateDoc) -> list[Cell]:
    return [whole(doc.name, "bold"), str(doc.schema), moment(doc.at), plain(to_json_text(doc.value), most=60)]
