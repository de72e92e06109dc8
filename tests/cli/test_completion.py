"""`perdure completion`: real shells complete commands, options, values and files, without starting the program."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cli.program import Program
from tests.cli.test_help import COMMANDS

from perdure.cli.completion_scripts import SCRIPTS, VALUES

LINES: list[tuple[str, set[str]]] = [
    ("perdure th", {"threads"}),
    ("perdure doctor ", {"verify", "health", "sweep"}),
    ("perdure doctor verify --all", {"--all-scopes"}),
    ("perdure --store log can", {"cancel"}),
    ("perdure log kyoto --view ", {"raw", "external", "history"}),
    ("perdure --json log --fol", {"--follow"}),
    ("perdure delete kyoto --strategy ca", {"cascade"}),
    ("perdure completion ", {"bash", "zsh", "fish"}),
    ("perdure import one", {"one.jsonl"}),
    ("perdure export --out one", {"one.jsonl"}),
    ("perdure show on", set()),
]


@pytest.fixture
def folder(tmp_path: Path, program: Program) -> Path:
    """A folder with the scripts, and a file to be completed."""
    for shell in SCRIPTS:
        (tmp_path / f"perdure.{shell}").write_text(program("completion", shell))
    (tmp_path / "one.jsonl").touch()
    return tmp_path


def in_a_shell(folder: Path, *command: str) -> list[str]:
    """The lines that a shell prints; it finds no program called perdure."""
    done = subprocess.run(
        command, cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)}, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().splitlines()


def bash(folder: Path, lines: list[str]) -> list[set[str]]:
    script = ["source ./perdure.bash"]
    for line in lines:
        words = [*line.split(), *([""] if line.endswith(" ") else [])]
        script.append(f"COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}; _perdure")
        script.append('printf "%s\\n" "${COMPREPLY[*]}"')
    return [set(words.split()) for words in in_a_shell(folder, "bash", "-c", "\n".join(script))]


def test_bash_completes(folder: Path) -> None:
    assert bash(folder, [line for line, _ in LINES]) == [words for _, words in LINES]


def test_bash_knows_every_command_and_option(folder: Path, program: Program) -> None:
    paths = [parts for parts in COMMANDS if parts]
    (top,) = bash(folder, ["perdure "])
    assert top == {parts[0] for parts in paths}
    for parts, options in zip(paths, bash(folder, [f"perdure {' '.join(parts)} -" for parts in paths]), strict=True):
        text = program(*parts, "--help")
        assert "--help" in options
        assert [option for option in options if f" {option}" not in text] == []


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(folder: Path) -> None:
    for line, words in LINES:
        script = f"source ./perdure.fish; complete -C {shlex.quote(line)}"
        listed = {each.partition("\t")[0] for each in in_a_shell(folder, "fish", "--no-config", "-c", script)}
        assert listed == words, line


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_the_script(folder: Path) -> None:
    assert in_a_shell(folder, "zsh", "-f", "-n", "perdure.zsh") == []


def test_bash_reads_the_script_of_zsh_too(folder: Path) -> None:
    """Where there is no zsh, at least the quotes and the branches of its script are checked."""
    script = (folder / "perdure.zsh").read_text().replace('"${(@)words[2,CURRENT-1]}"', '"${words[@]}"')
    (folder / "like.bash").write_text(script)
    assert in_a_shell(folder, "bash", "-n", "like.bash") == []


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_names_every_command_and_fixed_value(folder: Path, shell: str) -> None:
    script = (folder / f"perdure.{shell}").read_text()
    for word in [" ".join(parts) for parts in COMMANDS if parts] + [
        value for all_ in VALUES.values() for value in all_
    ]:
        assert word in script


def test_another_shell_is_refused(program: Program) -> None:
    line = program.error("completion", "tcsh")
    assert line == "error: the shell 'tcsh' is not known (use bash, zsh, fish)"


def test_it_needs_no_store(program: Program) -> None:
    assert program.run("completion", "bash", PERDURE_STORE="").code == 0
