"""`perdure tree`: a thread drawn as a tree of branches."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from perdure.cli.command import StoreContext, ThreadArgument, command
from perdure.cli.terminal import PIPE_WIDTH
from perdure.cli.tree_drawing import draw
from perdure.model.tree import NARROWEST, WIDEST, Tree


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(tree)


async def tree(
    context: StoreContext,
    thread: ThreadArgument,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show messages reachable only from deleted branches.")
    ] = False,
    width: Annotated[
        int | None,
        typer.Option(metavar="N", min=NARROWEST, max=WIDEST, help="Width in columns; default: the terminal's."),
    ] = None,
) -> None:
    """Draw a thread's tree: branches, roles, labels, and the current line."""
    thread_id = await context.thread_id(thread)
    grown = await context.store.branches.tree(thread_id, deleted=everything, most=None)
    if context.as_json:
        context.emit(_tree_document(grown))
        return
    columns = width or (context.out.width if context.out.on_terminal else PIPE_WIDTH)
    for line in draw(grown, columns):
        context.out.print(line, soft_wrap=True)


def _tree_document(grown: Tree) -> dict[str, object]:
    nodes = [msgspec.structs.asdict(node) for node in grown.nodes]
    empty = [branch.name for branch in grown.branches if branch.head_seq == 0]
    return {"current_branch": grown.current_branch, "nodes": nodes, "empty_branches": empty}
