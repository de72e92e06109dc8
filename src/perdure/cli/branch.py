"""`perdure tree`, `perdure branch` and `perdure switch`: the lines through a thread."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from perdure.cli.command import Access, Session, ThreadArgument, command
from perdure.cli.documents import branch_document
from perdure.cli.escaping import one_line
from perdure.cli.show import branch_table
from perdure.cli.terminal import PIPE_WIDTH
from perdure.cli.tree import Tree, draw
from perdure.cli.tree_loading import grow
from perdure.errors import InvalidError
from perdure.model.branch import Branch


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(tree)
    command(app, access=_branch_access)(branch)
    command(app, access="write")(switch)


def _branch_access(options: dict[str, Any]) -> Access:
    """Looking at branches changes nothing; only forking, renaming and deleting do."""
    return "write" if any(options[name] for name in ("at", "before", "root", "delete", "rename")) else "read"


async def tree(
    session: Session,
    thread: ThreadArgument,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show messages reachable only from deleted branches.")
    ] = False,
    width: Annotated[
        int | None, typer.Option(min=20, max=10_000, help="Columns to draw in; else the terminal's.")
    ] = None,
) -> None:
    """Draw a thread's tree: branches, roles, labels, and the current line."""
    grown = await grow(session.store, await session.thread_id(thread), everything=everything)
    if session.as_json:
        session.emit(_tree_document(grown))
        return
    columns = width or (session.out.width if session.out.is_terminal else PIPE_WIDTH)
    for line in draw(grown, columns):
        session.out.print(line, soft_wrap=True)


def _tree_document(grown: Tree) -> dict[str, object]:
    nodes = [msgspec.structs.asdict(node) for node in grown.nodes.values()]
    return {"current_branch": grown.current_branch, "nodes": nodes, "empty_branches": list(grown.empty)}


async def branch(
    session: Session,
    thread: ThreadArgument,
    *,
    at: Annotated[str | None, typer.Option(metavar="MESSAGE", help="Fork after this message (number or id).")] = None,
    before: Annotated[str | None, typer.Option(metavar="MESSAGE", help="Fork in the place of this message.")] = None,
    root: Annotated[bool, typer.Option("--root", help="Fork from nothing: another beginning.")] = False,
    name: Annotated[str | None, typer.Option(help="A name for the new branch.")] = None,
    switch: Annotated[bool, typer.Option("--switch", help="Make the new branch the current one.")] = False,
    delete: Annotated[str | None, typer.Option(metavar="BRANCH", help="Delete a branch; its messages stay.")] = None,
    rename: Annotated[tuple[str, str] | None, typer.Option(metavar="BRANCH NAME", help="Rename a branch.")] = None,
) -> None:
    """List the branches of a thread, or make, rename or delete one."""
    forks = [at is not None, before is not None, root]
    if sum([*forks, delete is not None, rename is not None]) > 1:
        raise InvalidError("one thing at a time", hint="use one of --at, --before, --root, --delete, --rename")
    if (name is not None or switch) and not any(forks):
        raise InvalidError("--name and --switch belong to a new branch", hint="add --at, --before or --root")
    thread_id = await session.thread_id(thread)
    if delete is not None:
        await _delete(session, thread_id, delete)
    elif rename is not None:
        found = await session.branch(thread_id, rename[0])
        _done(session, await session.store.branches.rename(thread_id, found.id, rename[1]), "renamed:")
    elif any(forks):
        _done(session, await _fork(session, thread_id, at, before, name, switch=switch), "made")
    else:
        await _list(session, thread_id)


async def _fork(
    session: Session, thread_id: str, at: str | None, before: str | None, name: str | None, *, switch: bool
) -> Branch:
    branches = session.store.branches
    if before is not None:
        message = await session.message(thread_id, before)
        return await branches.fork(thread_id, before=message.message_id, name=name, switch=switch)
    target = None if at is None else (await session.message(thread_id, at)).message_id
    return await branches.fork(thread_id, at=target, name=name, switch=switch)


async def _delete(session: Session, thread_id: str, text: str) -> None:
    found = await session.branch(thread_id, text)
    await session.store.branches.delete(thread_id, found.id)
    if session.as_json:
        session.emit({"deleted": branch_document(found)})
    else:
        session.say(f"deleted branch {one_line(found.name)}; its messages stay in the log")


async def _list(session: Session, thread_id: str) -> None:
    found = list(await session.store.branches.list(thread_id))
    if session.as_json:
        session.emit({"items": [branch_document(item) for item in found]})
    else:
        branch_table(session, found)


def _done(session: Session, found: Branch, what: str) -> None:
    if session.as_json:
        session.emit(branch_document(found))
        return
    session.say(f"{what} branch {one_line(found.name)}{' (current)' if found.current else ''}")


async def switch(
    session: Session,
    thread: ThreadArgument,
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="A branch's name or number.")],
) -> None:
    """Make a branch the current one: commits that name none go to it."""
    thread_id = await session.thread_id(thread)
    found = await session.branch(thread_id, branch)
    _done(session, await session.store.branches.switch(thread_id, found.id), "switched to")
