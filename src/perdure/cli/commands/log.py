"""`perdure log`: the messages of a branch, and the new ones as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from perdure import limits
from perdure.cli.command import StoreContext, ThreadArgument, command
from perdure.cli.render import whole_message
from perdure.errors import InvalidError
from perdure.model.branch import Branch
from perdure.model.message import MessageRecord
from perdure.stores.store import Store

VIEWS = ("raw", "external", "history")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(log)


async def log(
    context: StoreContext,
    thread: ThreadArgument,
    *,
    branch: Annotated[
        str | None, typer.Option("--branch", "-b", metavar="BRANCH", help="A branch's name or number.")
    ] = None,
    view: Annotated[str, typer.Option(help="raw (all), external (for people), history (for the model).")] = "raw",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, max=limits.INTEGER_MAX, help="Only the newest N.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new messages until Ctrl-C.")] = False,
) -> None:
    """Show the messages of the current branch, or of another; with --json, one record per line.

    With --follow and no --branch, what is written on other branches from now on is shown too.
    """
    if view not in VIEWS:
        raise InvalidError(f"the view {view!r} is not known", hint=f"use {', '.join(VIEWS)}")
    if follow and view != "raw":
        raise InvalidError("--follow shows records as they are written", hint="leave --view out")
    name = await context.thread_id(thread)
    chosen = await context.store.branches.current(name) if branch is None else await context.branch(name, branch)
    version = (await context.store.threads.get(name)).version
    records = await _records(context.store, chosen, view, limit)
    for record in records:
        _write(context, record)
    if follow:
        await _follow(context, chosen, records, everywhere=branch is None, version=version)


async def _follow(
    context: StoreContext, branch: Branch, written: Sequence[MessageRecord], *, everywhere: bool, version: int
) -> None:
    """What is written from now on: on this branch, and on others too unless this one was asked for."""
    after = max(written[-1].seq if written else 0, branch.fork_seq)
    async for record in context.store.messages.follow(branch.thread_id, after_seq=after):
        if record.branch == branch.id:
            _write(context, record)
        elif everywhere and record.seq > version:
            _write(context, record, branch=await _name_of(context.store, record))


async def _records(store: Store, branch: Branch, view: str, limit: int | None) -> Sequence[MessageRecord]:
    if view == "external":
        return await store.messages.external(branch.thread_id, branch=branch.id, limit=limit)
    if view == "history":
        return await store.messages.history(branch.thread_id, branch=branch.id, limit=limit)
    return await store.messages.path(branch.thread_id, branch=branch.id, limit=limit)


async def _name_of(store: Store, record: MessageRecord) -> str:
    branches = await store.branches.list(record.thread_id)
    return next((item.name for item in branches if item.id == record.branch), f"branch {record.branch}")


def _write(context: StoreContext, record: MessageRecord, *, branch: str | None = None) -> None:
    if context.as_json:
        context.emit(record.to_json())
    else:
        for line in whole_message(record, context.out.width, branch=branch):
            context.out.print(line, soft_wrap=True)
        context.out.file.flush()
