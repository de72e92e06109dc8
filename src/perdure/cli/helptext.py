"""Help texts that read alike under every version of typer: they are written here, from what the parameters say.

Versions of typer differ in what they print: `--json <bool>` looks as if the flag needed a value, a required argument
becomes `{THREAD}`, and an option without a default says `[default: None]`. Here a flag is a flag, an option that takes
a value names it, and a default is shown if it is one that somebody would type.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from perdure.cli.flow import GAP
from perdure.cli.terminal import Screen, console

_WIDEST, _NARROWEST = 100, 20
_INDENT = 2


class Entry(NamedTuple):
    """A line of a help text: what to type, and what it means."""

    term: str
    meaning: str


class Command(TyperCommand):
    """A command whose help is written here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; nothing is left for the formatter to write."""
        print_help(self, ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in the usage line: `[OPTIONS] THREAD`."""
        return usage_pieces(self)


class Group(TyperGroup):
    """A group of commands whose help is written here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without a command, print the help and end well: releases of click differ in the exit code of that."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            self.format_help(ctx, ctx.make_formatter())
            ctx.exit(0)
        return list(super().parse_args(ctx, args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; nothing is left for the formatter to write."""
        print_help(self, ctx)


def usage_pieces(command: Any) -> list[str]:
    """What follows the name of a command that has no sub-commands."""
    return ["[OPTIONS]", *[argument_name(each) for each in command.params if is_argument(each)]]


def is_argument(parameter: Any) -> bool:
    """Whether this is an argument, and not an option."""
    return bool(parameter.param_type_name == "argument")


def argument_name(argument: Any) -> str:
    """An argument as the usage line has it: `THREAD`, `[THREAD]`."""
    if argument.metavar:
        return str(argument.metavar)
    name = str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def value_name(option: Any) -> str:
    """What an option's value is called: `URL`, `N`; empty for a flag."""
    if option.is_flag:
        return ""
    if option.metavar:
        return str(option.metavar)
    return str(option.name).upper()


def print_help(command: Any, ctx: Any) -> None:
    """Write the help of a command or a group to stdout."""
    out = console()
    out.width = min(out.width, _WIDEST)
    subcommands = getattr(command, "commands", {})
    pieces = ["[OPTIONS]", "COMMAND", "[ARGS]..."] if subcommands else usage_pieces(command)
    out.print(Text.assemble(("Usage: ", "bold"), " ".join([ctx.command_path, *pieces])), soft_wrap=True)
    for paragraph in str(command.help or "").split("\n\n"):
        for line in ["", *textwrap.wrap(paragraph, out.width)]:
            out.print(Text(line), soft_wrap=True)
    parameters = command.get_params(ctx)
    sections = {
        "Arguments": [_argument(each) for each in parameters if is_argument(each)],
        "Options": [_option(each) for each in parameters if not is_argument(each) and not each.hidden],
        "Commands": [Entry(name, _first_paragraph(each)) for name, each in subcommands.items()],
    }
    width = max(len(entry.term) for entries in sections.values() for entry in entries)
    for title, entries in sections.items():
        if entries:
            out.print(Text(f"\n{title}:", "bold"), soft_wrap=True)
            for entry in entries:
                _print_entry(out, entry, width)


def _print_entry(out: Screen, entry: Entry, width: int) -> None:
    """The term in a column of this width, and its meaning beside it."""
    lines = textwrap.wrap(entry.meaning, max(out.width - width - _INDENT - GAP, _NARROWEST)) or [""]
    for number, line in enumerate(lines):
        term = Text((entry.term if number == 0 else "").ljust(width), "cyan")
        text = Text(" " * _INDENT).append_text(term).append(" " * GAP + line)
        text.rstrip()
        out.print(text, soft_wrap=True)


def _argument(argument: Any) -> Entry:
    return Entry(argument_name(argument), str(argument.help or ""))


def _option(option: Any) -> Entry:
    names = sorted(option.opts, key=len)
    value = value_name(option)
    return Entry(f"{', '.join(names)} {value}".rstrip(), " ".join(_meaning(option)))


def _meaning(option: Any) -> Iterator[str]:
    yield str(option.help or "")
    if not option.is_flag and isinstance(option.default, str | int):
        yield f"(default: {option.default})"


def _first_paragraph(command: Any) -> str:
    return " ".join(str(command.help or "").split("\n\n")[0].split())
