"""`perdure branch` and `perdure switch`: list, fork, rename, delete and choose branches."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from perdure.cli.command import Access, StoreContext, ThreadArgument, command
from perdure.cli.documents import branch_document
from perdure.cli.escaping import visible
from perdure.cli.tables import Cell, Column
from perdure.cli.terminal import plain, whole
from perdure.errors import InvalidError
from perdure.model.branch import Branch

_BRANCHES = (
    Column("", "word", 7),
    Column("#", "number", 8),
    Column("name", "id", 9),
    Column("own", "number", 4),
    Column("forked at", "word", 5),
    Column("newest message", "text", 6),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, access=_branch_access)(branch)
    command(app, access="write")(switch)


def _branch_access(options: dict[str, Any]) -> Access:
    """Looking at branches changes nothing; only forking, renaming and deleting do."""
    return "write" if any(options[name] for name in ("at", "before", "root", "delete", "rename")) else "read"


async def branch(
    context: StoreContext,
    thread: ThreadArgument,
    *,
    at: Annotated[str | None, typer.Option(metavar="MESSAGE", help="Fork after this message (number or id).")] = None,
    before: Annotated[
        str | None, typer.Option(metavar="MESSAGE", help="Fork before this message, so that the branch replaces it.")
    ] = None,
    root: Annotated[bool, typer.Option("--root", help="Start an empty branch that shares no messages.")] = False,
    name: Annotated[str | None, typer.Option(help="A name for the new branch.")] = None,
    switch: Annotated[bool, typer.Option("--switch", help="Make the new branch the current one.")] = False,
    delete: Annotated[str | None, typer.Option(metavar="BRANCH", help="Delete a branch; its messages stay.")] = None,
    rename: Annotated[tuple[str, str] | None, typer.Option(metavar="BRANCH NAME", help="Rename a branch.")] = None,
) -> None:
    """List the branches of a thread, or create, rename or delete one."""
    forks = [at is not None, before is not None, root]
    if sum([*forks, delete is not None, rename is not None]) > 1:
        raise InvalidError(
            "--at, --before, --root, --delete and --rename are mutually exclusive", hint="use one of them"
        )
    if (name is not None or switch) and not any(forks):
        raise InvalidError("--name and --switch belong to a new branch", hint="add --at, --before or --root")
    thread_id = await context.thread_id(thread)
    if delete is not None:
        await _delete(context, thread_id, delete)
    elif rename is not None:
        chosen = await context.branch(thread_id, rename[0])
        _done(context, await context.store.branches.rename(thread_id, chosen.id, rename[1]), "renamed:")
    elif any(forks):
        _done(context, await _fork(context, thread_id, at, before, name, switch=switch), "made")
    else:
        await _list(context, thread_id)


async def _fork(
    context: StoreContext, thread_id: str, at: str | None, before: str | None, name: str | None, *, switch: bool
) -> Branch:
    branches = context.store.branches
    if before is not None:
        message = await context.message(thread_id, before)
        return await branches.fork(thread_id, before=message.message_id, name=name, switch=switch)
    target = None if at is None else (await context.message(thread_id, at)).message_id
    return await branches.fork(thread_id, at=target, name=name, switch=switch)


async def _delete(context: StoreContext, thread_id: str, text: str) -> None:
    chosen = await context.branch(thread_id, text)
    await context.store.branches.delete(thread_id, chosen.id)
    if context.as_json:
        context.emit({"deleted": branch_document(chosen)})
    else:
        context.say(f"deleted branch {visible(chosen.name)}; its messages stay in the log")


async def _list(context: StoreContext, thread_id: str) -> None:
    branches = list(await context.store.branches.list(thread_id))
    if context.as_json:
        context.emit({"items": [branch_document(item) for item in branches]})
    else:
        branch_table(context, branches)


def _done(context: StoreContext, branch: Branch, what: str) -> None:
    if context.as_json:
        context.emit(branch_document(branch))
        return
    context.say(f"{what} branch {visible(branch.name)}{' (current)' if branch.current else ''}")


async def switch(
    context: StoreContext,
    thread: ThreadArgument,
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="A branch's name or number.")],
) -> None:
    """Make a branch the current one: commits without a branch and without a run go to it."""
    thread_id = await context.thread_id(thread)
    chosen = await context.branch(thread_id, branch)
    _done(context, await context.store.branches.switch(thread_id, chosen.id), "switched to")


def branch_table(context: StoreContext, branches: list[Branch]) -> None:
    """Write the branches of a thread, the current one marked."""
    context.table(_BRANCHES, [_branch_row(branch) for branch in branches])


def _branch_row(branch: Branch) -> list[Cell]:
    return [
        Text("•", "bold green") if branch.current else "",
        str(branch.id),
        whole(branch.name, "bold" if branch.current else ""),
        str(branch.length),
        "" if branch.parent is None else f"#{branch.fork_seq}",
        plain(branch.preview, most=60),
    ]
