"""Options and footers that every list shares: how many items, and where to continue."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure import limits
from perdure.cli.command import StoreContext

LimitOption = Annotated[int, typer.Option("--limit", "-n", metavar="N", help=f"At most N, 1 to {limits.PAGE_MAX}.")]
CursorOption = Annotated[str | None, typer.Option("--cursor", metavar="TEXT", help="Continue where a page ended.")]


def show_more(context: StoreContext, cursor: str | None) -> None:
    """Say how to continue a list that has more."""
    if cursor is not None:
        context.say(f"there are more: --cursor {cursor}", "dim")
