"""Help texts: a flag looks like a flag, an argument has its plain name, whatever version of typer is below."""

from __future__ import annotations

import re

import pytest
import typer.main
from tests.cli.program import Program
from tests.docs.test_cli_page import COMMANDS as EVERY_COMMAND

from perdure.cli.application import app
from perdure.cli.helptext import value_name

COMMANDS = [[], *[name.split()[1:] for name in EVERY_COMMAND]]
_OPTION = re.compile(r"^  ((?:-\w, )?)(--[\w-]+)((?: [A-Z]+)*)  +(\S.*)$", re.MULTILINE)
_ENTRY = re.compile(r"^  (\S+) {2,}\S", re.MULTILINE)


def helped(program: Program, arguments: list[str]) -> str:
    done = program.run(*arguments, "--help")
    assert (done.code, done.err) == (0, "")
    return done.out


def section(text: str, title: str) -> str:
    return text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda parts: " ".join(parts) or "perdure")
def test_a_flag_takes_no_value_and_an_option_names_its_own(program: Program, arguments: list[str]) -> None:
    text = helped(program, arguments)
    listed = {name: value.strip() for _, name, value, _ in _OPTION.findall(section(text, "Options"))}
    command = EVERY_COMMAND[f"perdure {' '.join(arguments)}"] if arguments else typer.main.get_command(app)
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    expected = {max(each.opts, key=len): "" if each.is_flag else value_name(each) for each in options}
    assert listed == {**expected, "--help": ""}
    assert all(value or each.is_flag for each in options for value in [listed[max(each.opts, key=len)]])
    assert not re.search(r"bool|BOOL|<|\{|\[default|None", text), text


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda parts: " ".join(parts) or "perdure")
def test_the_usage_names_arguments_plainly(program: Program, arguments: list[str]) -> None:
    text = helped(program, arguments)
    (usage,) = [line for line in text.splitlines() if "Usage:" in line]
    assert re.fullmatch(r"Usage: perdure[\w .\[\]]+", usage), usage
    assert "[[" not in usage
    assert "......" not in usage
    for name in _ENTRY.findall(section(text, "Arguments")):
        assert f" {name}" in usage
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_fits_the_terminal(program: Program, columns: int) -> None:
    for arguments in ([], ["branch"], ["import"]):
        text = program.run(*arguments, "--help", screen=True, COLUMNS=str(columns), NO_COLOR="1").out
        assert max(map(len, text.splitlines())) <= min(columns, 100)


def test_a_thread_and_a_run_have_one_name(program: Program) -> None:
    for command, name in {"show": "THREAD", "runs": "[THREAD]", "export": "[THREAD]...", "run": "RUN"}.items():
        assert _ENTRY.findall(section(helped(program, [command]), "Arguments")) == [name]


def test_every_command_is_listed(program: Program) -> None:
    listed = _ENTRY.findall(section(helped(program, []), "Commands"))
    assert sorted(listed) == sorted({parts[0] for parts in COMMANDS if parts})
    below = _ENTRY.findall(section(helped(program, ["doctor"]), "Commands"))
    assert sorted(below) == sorted(parts[1] for parts in COMMANDS if len(parts) == 2)


def test_a_copy_offers_no_store(program: Program) -> None:
    assert "--store" not in helped(program, ["copy"])


def test_short_help_is_help(program: Program) -> None:
    assert program.run("log", "-h").out == program.run("log", "--help").out
