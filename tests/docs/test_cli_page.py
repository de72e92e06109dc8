"""The page of the command line has a part for every command, which names each of its options and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from tests.docs.pages import ROOT

from perdure.cli.application import app

PAGE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
SHARED = {"--store", "--scope", "--json", "--help"}


def commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every command below a group; which library makes them is typer's affair, so they are known by their looks."""
    for name, command in group.commands.items():
        yield f"{prefix} {name}", command
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")


def options(command: Any) -> set[str]:
    return {name for option in command.params for name in option.opts if name.startswith("--")} | SHARED


ROOT_COMMAND = typer.main.get_command(app)
COMMANDS = dict(commands(ROOT_COMMAND, "perdure"))
PARTS = dict(re.findall(r"^#+ (perdure [a-z ]+)\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_every_command_has_a_part_and_every_part_a_command() -> None:
    assert {"perdure tree", "perdure doctor verify"} <= set(COMMANDS)
    assert set(PARTS) == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_part_names_the_options(name: str) -> None:
    written = set(re.findall(r"--[a-z][a-z-]+", PARTS[name]))
    assert written | SHARED == options(COMMANDS[name])


def test_the_shared_options_have_one_table() -> None:
    common = PAGE.partition("\n## perdure ")[0]
    pairs = set(re.findall(r"^\| `(--[a-z]+)|, `(--[a-z]+)` \|", common, re.MULTILINE))
    assert {name for pair in pairs for name in pair if name} == options(ROOT_COMMAND)
