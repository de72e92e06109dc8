"""`perdure completion`: a script that teaches a shell to complete the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.command import USER_ERROR, report
from perdure.cli.completion_scripts import SCRIPTS, described
from perdure.cli.helptext import Command
from perdure.cli.terminal import console


def register(app: typer.Typer) -> None:
    """Add the command. It opens no store and has no JSON, so it takes no shared options."""
    app.command("completion", cls=Command)(completion)


def completion(
    ctx: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"{', '.join(SCRIPTS)}.")],
) -> None:
    """Print a script that completes commands, options and their values in bash, zsh or fish."""
    write = SCRIPTS.get(shell)
    if write is None:
        report(f"the shell {shell!r} is not known", f"use {', '.join(SCRIPTS)}", "invalid")
        raise typer.Exit(USER_ERROR)
    console().print(write(described(ctx.find_root().command)), soft_wrap=True, end="")
