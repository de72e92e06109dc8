"""Questions before something is lost: asked on a terminal, answered by an option everywhere else.

The question goes to stderr, so that stdout stays what it is. Anything but yes means no.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer
from rich.text import Text

from perdure.cli.escaping import visible
from perdure.cli.terminal import error_console
from perdure.errors import InvalidError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


async def confirm(question: str, *, answered: bool, option: str = "--yes") -> None:
    """Go on if the answer is yes; `answered` means that the option said so. Raises `InvalidError` otherwise."""
    if answered:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidError(f"{question} There is no terminal to ask on", hint=f"{option} answers yes")
    error_console().print(Text(f"{visible(question)} [y/N] ", "bold"), end="")
    if (await _answer()).strip().lower() not in ("y", "yes"):
        raise InvalidError("the answer was not yes; nothing was changed")


async def _answer() -> str:
    """One line from the terminal. The loop goes on meanwhile, so that Ctrl-C is heard at once."""
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(sys.stdin.fileno(), ready.set)
    except NotImplementedError:  # the loop of Windows watches no files
        return sys.stdin.readline()
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
