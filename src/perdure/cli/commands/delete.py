"""`perdure delete`: delete a thread with everything that belongs to it."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from perdure.cli.command import StoreContext, ThreadArgument, command
from perdure.cli.confirmation import YesOption, confirm
from perdure.cli.documents import thread_document
from perdure.cli.escaping import one_line, visible
from perdure.cli.progress import counted
from perdure.errors import InvalidError
from perdure.model.thread import Thread
from perdure.stores.threads import Strategy

STRATEGIES = {
    "detach": "they become roots",
    "cascade": "they are deleted too, and everything below them",
    "reject": "the thread is not deleted",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, access="write", any_scope=True)(delete)


async def delete(
    context: StoreContext,
    thread: ThreadArgument,
    *,
    strategy: Annotated[
        str, typer.Option("--strategy", help="What happens to its children: detach, cascade or reject.")
    ] = "detach",
    yes: YesOption = False,
) -> None:
    """Delete a thread and all that belongs to it: messages, branches, runs, state and pending messages."""
    if strategy not in STRATEGIES:
        raise InvalidError(f"the strategy {strategy!r} is not known", hint=f"use {', '.join(STRATEGIES)}")
    record = await context.store.threads.get(await context.thread_id(thread))
    await confirm(_question(record, strategy), answered=yes)
    await context.store.threads.delete(record.id, strategy=cast("Strategy", strategy))
    if context.as_json:
        context.emit({"deleted": thread_document(record), "strategy": strategy})
    else:
        context.say(f"deleted thread {visible(record.id)}")


def _question(thread: Thread, strategy: str) -> str:
    title = f" ({one_line(thread.title, 60)})" if thread.title else ""
    children = f" It has {_children(thread.children)}: {STRATEGIES[strategy]}." if thread.children else ""
    return f"Delete thread {thread.id!r}{title} with {counted(thread.version, 'message')}?{children}"


def _children(number: int) -> str:
    return "1 child" if number == 1 else f"{number:,} children"
