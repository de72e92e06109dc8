"""The application: every command, and the options that may also stand before one."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import perdure
from perdure.cli import branching, doctor, looking, moving, talking
from perdure.cli.session import USER_ERROR, JsonOption, ScopeOption, StoreOption, report

app = typer.Typer(
    name="perdure",
    help="Look at the durable state of agents: threads, their messages, trees and runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"perdure {perdure.__version__}")
        raise typer.Exit


@app.callback()
def shared(
    *,
    store: StoreOption = None,
    scope: ScopeOption = None,
    as_json: JsonOption = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Options that may stand before a command as well as after it."""


for room in (looking, talking, branching, moving, doctor):
    room.register(app)


def run() -> None:
    """Run the command line; a mistake in it is told in one line, like any other error."""
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        code = 130
    except Exception as error:
        # Typer brings its own click, whose errors have no public name; this is what sets them apart.
        explain = getattr(error, "format_message", None)
        if explain is None:
            raise
        code = USER_ERROR
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(explain())
        else:
            report(explain(), "perdure --help lists what there is", "usage")
    sys.exit(code)
