"""Nothing stored can steer a terminal, and colour is for terminals only."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.program import SCRIPT, Program
from tests.cli.samples import HOSTILE

from perdure.cli.escaping import one_line, to_json_text, visible

COMMANDS = [
    ["threads"],
    ["show", "hostile"],
    ["log", "hostile"],
    ["log", "hostile", "--view", "external"],
    ["tree", "hostile"],
    ["tree", "hostile", "--width", "40"],
    ["branch", "hostile"],
    ["runs", "hostile"],
    ["doctor", "verify"],
]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def steering(text: str) -> list[str]:
    """Characters that a terminal might obey, line ends aside."""
    kinds = ("Cc", "Cf", "Zl", "Zp", "Cs")
    return [c for c in text if c != "\n" and unicodedata.category(c) in kinds and c not in "\u200c\u200d"]


def on_a_terminal(program: Program, *arguments: str, columns: int = 80, colour: bool = True) -> str:
    """What the program writes when it stands before a terminal of so many columns."""
    ours, theirs = pty.openpty()
    environment = program.environment(TERM="xterm-256color", COLUMNS=str(columns), NO_COLOR="" if colour else "1")
    with subprocess.Popen([SCRIPT, *arguments], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        chunks: list[bytes] = []
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:
                break
            if not chunk:
                break
            chunks.append(chunk)
    os.close(ours)
    if process.returncode != 0:
        raise AssertionError(b"".join(chunks).decode())
    return b"".join(chunks).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_pipe_gets_no_colour_and_nothing_that_steers(program: Program, arguments: list[str]) -> None:
    text = program(*arguments)
    assert text
    assert steering(text) == []


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_json_steers_nothing_and_loses_nothing(program: Program, arguments: list[str]) -> None:
    for line in program(*arguments, "--json").splitlines():
        assert steering(line) == []
        assert json.loads(line)


def test_json_keeps_hostile_text_as_it_is(program: Program) -> None:
    first = json.loads(program("log", "hostile", "--json").splitlines()[0])
    assert first["message"]["content"][0]["text"] == HOSTILE


@pytest.mark.parametrize("arguments", [["threads"], ["log", "hostile"], ["tree", "hostile"]], ids=" ".join)
def test_a_terminal_gets_colours_and_nothing_else_that_steers(program: Program, arguments: list[str]) -> None:
    text = on_a_terminal(program, *arguments)
    assert COLOUR.search(text)
    assert steering(COLOUR.sub("", text)) == []
    if arguments[0] in ("log", "tree"):
        assert "[red]not markup[/red]" in text.replace("\n", "")


def test_an_export_to_a_terminal_steers_nothing(program: Program) -> None:
    lines = on_a_terminal(program, "export", "hostile").splitlines()
    assert steering("".join(lines)) == []
    piped = program("export", "hostile").splitlines()
    assert [json.loads(line) for line in lines] == [json.loads(line) for line in piped]


def test_a_tree_fits_the_terminal(program: Program) -> None:
    lines = COLOUR.sub("", on_a_terminal(program, "tree", "kyoto")).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.endswith("…") for line in lines)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_color_means_no_bold_and_no_dim_either(program: Program, arguments: list[str]) -> None:
    assert COLOUR.search(on_a_terminal(program, *arguments, colour=False)) is None


@pytest.mark.parametrize("arguments", [c for c in COMMANDS if c[0] != "log"], ids=" ".join)
def test_no_line_ends_in_spaces(program: Program, arguments: list[str]) -> None:
    assert [line for line in program(*arguments).splitlines() if line != line.rstrip()] == []


@given(st.text())
def test_visible_text_never_steers(text: str) -> None:
    assert steering(visible(text)) == []
    assert steering(visible(text, lines=True)) == []
    assert "\n" not in one_line(text)
    assert len(one_line(text, 10)) <= 10 * 10 + 1


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_json_text_is_equal_json(text: str) -> None:
    assert json.loads(to_json_text({"t": text})) == {"t": text}
    assert "\x9b" not in to_json_text({"t": text})


def test_plain_text_is_left_alone() -> None:
    kept = "Grüße aus 京都 👩‍👩‍👧 – \\x1b [bold] {} é"
    assert visible(kept) == kept
    assert visible("a\tb\nc", lines=True) == "a   b\nc"
    assert visible("\\t", lines=True) == "\\t"


def test_forced_colour_in_a_pipe_changes_nothing_else(program: Program) -> None:
    for arguments in (["threads"], ["runs"], ["log", "kyoto"], ["tree", "kyoto"]):
        coloured = program.run(*arguments, FORCE_COLOR="1", TERM="xterm-256color").out
        assert COLOUR.search(coloured)
        assert COLOUR.sub("", coloured) == program(*arguments)
        assert COLOUR.search(program.run(*arguments, FORCE_COLOR="1", NO_COLOR="1").out) is None
