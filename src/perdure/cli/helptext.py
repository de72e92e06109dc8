"""Help texts that read alike under every version of typer.

Recent versions of typer name a type for everything: `--json <bool>` looks as if the flag needed a value, and a required
argument becomes `{THREAD}`. An empty metavar hides the type in all versions, and the usage line is written here.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command whose flags look like flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, `--help` included, the flags without a type."""
        return _untyped_flags(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in the usage line: `[OPTIONS] THREAD`."""
        return [self.options_metavar or "", *[_usage(each) for each in self.params if _is_argument(each)]]


class Group(TyperGroup):
    """A group of commands whose flags look like flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, `--help` included, the flags without a type."""
        return _untyped_flags(super().get_params(ctx))


def _untyped_flags(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _usage(argument: Any) -> str:
    if argument.metavar is not None:
        return str(argument.metavar)
    name = str(argument.name).upper()
    return name if argument.required else f"[{name}]"
