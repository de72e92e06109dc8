"""The application: every command, and the options that may also stand before one."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer
from rich.text import Text

import perdure
from perdure.cli.command import USER_ERROR, JsonOption, ScopeOption, StoreOption, leave_pipe, report, report_defect
from perdure.cli.commands import (
    branch,
    completion,
    copy,
    delete,
    doctor,
    export,
    health,
    import_threads,
    log,
    migrate,
    profiles,
    run,
    runs,
    show,
    threads,
    tree,
)
from perdure.cli.encodings import tolerate_any_encoding
from perdure.cli.helptext import Group
from perdure.cli.terminal import console, error_console, guarded_streams

app = typer.Typer(
    name="perdure",
    cls=Group,
    help="Inspect the durable state of agents: threads, their messages, trees and runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        console().print(f"perdure {perdure.__version__}")
        raise typer.Exit


@app.callback()
def shared(
    *,
    store: StoreOption = None,
    scope: ScopeOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that may stand before a command as well as after it."""


COMMANDS = (
    threads, show, log, tree, branch, runs, run, delete, profiles, export, import_threads, copy, health, migrate,
    doctor, completion,
)  # fmt: skip
for module in COMMANDS:
    module.register(app)


def main() -> None:
    """Run the command line; a mistake in it is told in one line, like any other error."""
    tolerate_any_encoding()
    warnings.showwarning = _show_warning
    with guarded_streams():
        code = _run()
    sys.exit(code)


def _run() -> int:
    try:
        return int(app(standalone_mode=False, prog_name="perdure") or 0)
    except typer.Abort:
        return 130
    except BrokenPipeError:  # of a help text, or of --version
        return leave_pipe()
    except Exception as error:  # noqa: BLE001 - a traceback of Python's own may hold anything
        # Typer brings its own click, whose errors have no public name; this is what sets them apart.
        explain = getattr(error, "format_message", None)
        if explain is None:
            return report_defect(error, as_json=_asks_for_json())
        if type(error).__name__ == "NoArgsIsHelpError":
            console().print(explain())
        else:
            context = getattr(error, "ctx", None)
            path = context.command_path if context is not None else "perdure"
            report(_plainly(error, explain()), f"{path} --help lists what there is", "usage", as_json=_asks_for_json())
        return USER_ERROR


def _show_warning(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
    """A warning of ours as one line on stderr, without the location in the code; none where stderr is JSON."""
    if not issubclass(category, perdure.InsecureTransportWarning):
        _show_other_warning(message, category, *location, **more)
    elif not _asks_for_json():
        error_console().print(Text().append("warning: ", "bold yellow").append(str(message)))


_show_other_warning = warnings.showwarning


def _asks_for_json() -> bool:
    """Whether the command line, which could not be understood, has --json somewhere."""
    arguments = sys.argv[1:]
    return "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)


def _plainly(error: Any, explained: str) -> str:
    """A refused value in words that need no programmer."""
    parameter = getattr(error, "param", None)
    if type(error).__name__ != "BadParameter" or parameter is None:
        return explained
    name = max(parameter.opts, key=len)
    if "valid int" in error.message or "as an integer" in error.message:
        return f"{name} takes a whole number"
    text = str(error.message).replace("Input should be greater than or equal to", "it must be at least")
    return f"{name}: {text}".replace("Input should be less than or equal to", "it must be at most")
