"""Help texts: a flag looks like a flag, an argument has its plain name, whatever version of typer draws them."""

from __future__ import annotations

import re

import pytest
from tests.cli.program import Program

COMMANDS = [
    [],
    ["threads"],
    ["show"],
    ["runs"],
    ["log"],
    ["tree"],
    ["branch"],
    ["switch"],
    ["profiles"],
    ["export"],
    ["import"],
    ["health"],
    ["migrate"],
    ["copy"],
    ["doctor"],
    ["doctor", "verify"],
    ["doctor", "health"],
    ["doctor", "sweep"],
]
FLAGS = {
    "--json", "--version", "--help", "--root", "--follow", "--all", "--switch", "--skip-existing", "--detach",
    "--check", "--verbose", "--dry-run", "--all-scopes",
}  # fmt: skip
_OPTION = re.compile(r"^[│|] +(--[\w-]+)((?:,? *-\w)?)  +(\S.*?)\s*[│|]$", re.MULTILINE)


def helped(program: Program, arguments: list[str]) -> str:
    return program.run(*arguments, "--help", COLUMNS="120").out


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda parts: " ".join(parts) or "perdure")
def test_a_flag_takes_no_value(program: Program, arguments: list[str]) -> None:
    text = helped(program, arguments)
    options = {name: rest for name, _, rest in _OPTION.findall(text)}
    assert "--help" in options, text
    for name in FLAGS & set(options):
        assert re.match(r"[A-Z][a-z]", options[name]), f"{name} looks as if it took a value: {options[name]}"
    assert not re.search(r"bool", text, re.IGNORECASE), text


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda parts: " ".join(parts) or "perdure")
def test_the_usage_names_arguments_plainly(program: Program, arguments: list[str]) -> None:
    (usage,) = [line for line in helped(program, arguments).splitlines() if "Usage:" in line]
    assert re.fullmatch(r"[\w .:\-/\[\]]+", usage), usage
    assert "[[" not in usage
    assert "......" not in usage


def test_a_thread_has_one_name(program: Program) -> None:
    for arguments in (["show"], ["runs"], ["log"], ["export"]):
        assert re.search(r"^[│|] .*\[?THREAD\]?", helped(program, arguments), re.MULTILINE)
        assert not re.search(r"^[│|][* ]+\[?thread\]? ", helped(program, arguments), re.MULTILINE)


def test_every_command_and_every_flag_is_looked_at(program: Program) -> None:
    listed = set(re.findall(r"^[│|] (\w+) {2,}\S", helped(program, []), re.MULTILINE))
    assert listed == {parts[0] for parts in COMMANDS if parts}
    options = {name for parts in COMMANDS for name, _, _ in _OPTION.findall(helped(program, parts))}
    assert options >= FLAGS
    below = set(re.findall(r"^[│|] (\w+) {2,}\S", helped(program, ["doctor"]), re.MULTILINE))
    assert below == {parts[1] for parts in COMMANDS if len(parts) == 2}


def test_short_help_is_help(program: Program) -> None:
    assert program.run("log", "-h").out == program.run("log", "--help").out
