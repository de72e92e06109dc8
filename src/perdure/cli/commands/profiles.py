"""`perdure profiles`: what is remembered about an owner, as a list or one document whole."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from perdure import limits
from perdure.cli.command import StoreContext, command
from perdure.cli.documents import page_document
from perdure.cli.escaping import to_json_text
from perdure.cli.listing import CursorOption, LimitOption, show_more
from perdure.cli.tables import Cell, Column
from perdure.cli.terminal import moment, plain
from perdure.model.profile import Profile

_PROFILES = (
    Column("key", "id", 9),
    Column("schema", "word", 4),
    Column("written", "time", 6),
    Column("expires", "time", 5),
    Column("value", "text", 7),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(profiles)


async def profiles(
    context: StoreContext,
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Whose documents: user:alice, agent:planner, app.")],
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="Show only this document, in full.")] = None,
    *,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    limit: LimitOption = limits.PAGE_DEFAULT,
    cursor: CursorOption = None,
) -> None:
    """List what is remembered about an owner, or show one document."""
    if key is not None:
        profile = await context.store.profiles.get(owner, key)
        if context.as_json:
            context.emit(profile.to_json())
        else:
            context.show(_facts(profile))
        return
    page = await context.store.profiles.list(owner, prefix=prefix, limit=limit, cursor=cursor)
    if context.as_json:
        context.emit(page_document(page, [profile.to_json() for profile in page.items]))
        return
    if not page.items:
        context.say("no profiles", "dim")
        return
    context.table(_PROFILES, [_row(profile) for profile in page.items])
    show_more(context, page.next_cursor)


def _row(profile: Profile) -> list[Cell]:
    return [
        plain(profile.key, "bold"),
        str(profile.schema),
        moment(profile.updated_at),
        moment(profile.expires_at),
        plain(to_json_text(profile.value), most=60),
    ]


def _facts(profile: Profile) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    facts: list[tuple[str, Text]] = [
        ("owner", plain(profile.owner)),
        ("key", plain(profile.key, "bold")),
        ("schema", Text(str(profile.schema))),
        ("rev", Text(str(profile.rev))),
        ("created", Text(moment(profile.created_at))),
        ("written", Text(moment(profile.updated_at))),
        ("expires", Text(moment(profile.expires_at) or "never")),
        ("value", plain(to_json_text(profile.value), most=limits.PROFILE_BYTES)),
    ]
    for name, value in facts:
        table.add_row(name, value)
    return table
