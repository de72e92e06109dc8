"""What goes wrong is told in one line, with what to do, and with the right exit code; never with a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.program import SCRIPT, Program

import perdure

MISTAKES = [
    (["threads", "--bogus"], "No such option: --bogus"),
    (["nonsense"], "No such command 'nonsense'"),
    (["show"], "Missing argument 'THREAD'"),
    (["threads", "--limit", "0"], "limit must be between 1 and 200"),
    (["threads", "--limit", "x"], "--limit takes a whole number (perdure threads --help lists what there is)"),
    (["threads", "--order", "size"], "the order 'size' is not known (use active or created)"),
    (["threads", "--cursor", "made-up"], "the cursor is not one that this store made"),
    (["threads", "--scope", "x" * 65], "scope is 65 bytes long"),
    (["threads", "--scope", ""], "scope must not be empty"),
    (["--scope", "", "threads"], "scope must not be empty"),
    (["runs", "--status", "\x1b[2J"], "status"),
    (["log", "kyoto", "--view", "x-ray"], "the view 'x-ray' is not known (use raw, external, history)"),
    (["log", "kyoto", "--view", "history", "--follow"], "--follow shows records as they are written"),
    (["log", "kyoto", "--branch", "nowhere"], "has no branch called 'nowhere' (perdure branch kyoto lists them)"),
    (["log", "kyoto", "--branch", "77"], "thread 'kyoto' has no branch number '77'"),
    (["tree", "kyoto", "--width", "3"], "--width: it must be at least 20"),
    (["branch", "kyoto", "--at", "99"], "has no message '99' (give its id or its number; perdure tree kyoto"),
    (["branch", "kyoto", "--at", "1", "--root"], "mutually exclusive"),
    (["branch", "kyoto", "--name", "x"], "--name and --switch belong to a new branch"),
    (["branch", "kyoto", "--at", "1", "--name", "main"], "already has a branch called 'main'"),
    (["branch", "kyoto", "--delete", "sunny"], "is the current one (switch to another branch first)"),
    (["switch", "kyoto", "nowhere"], "has no branch called 'nowhere'"),
    (["tree", "nobody"], "no thread id is or starts with 'nobody' (perdure threads lists them)"),
    (["import", "missing.jsonl"], "there is no file 'missing.jsonl'"),
    (["import", "."], "'.' is a directory"),
    (["export", "--out", "no/such/folder/x.jsonl"], "cannot write 'no/such/folder/x.jsonl': there is no folder"),
    (["export", "--out", "/"], "'/' is a folder (name a file in it)"),
    (["threads", "--store", "nope://x"], "no engine is known for nope://"),
    (["threads", "--store", "sqlite:///typo.db"], "there is no file 'typo.db'"),
    (["branch", "t", "--root", "--store", "sqlite:///typo.db"], "there is no file 'typo.db'"),
    (["threads", "--store", "agents"], "'agents' is not a URL of a store"),
    (["log", "kyoto", "--limit", "9" * 23], "--limit: it must be at most 4503599627370496"),
    (["log", "kyoto", "--limit", "9" * 5000], "--limit takes a whole number"),
    (["threads", "--limit", "9" * 23], "limit must be between 1 and 200"),
    (["tree", "kyoto", "--width", "9" * 23], "--width: it must be at most"),
    (["branch", "kyoto", "--at", "#" + "9" * 5000], "message id is 5001 bytes long, the limit is 256"),
    (["branch", "kyoto", "--at", "9" * 23], "has no message '999"),
    (["branch", "kyoto", "--at", "\u0661"], "has no message"),
    (["switch", "kyoto", "9" * 200], "has no branch called '999"),
    (["switch", "kyoto", "\u0661"], "has no branch called"),
    (["export", "--out", "x\x00y"], "'x\\x00y' cannot be the name of a file"),
    (["export", "--out", "x\ud800y"], "'x\\ud800y' cannot be the name of a file"),
    (["import", "x\ud800y"], "there is no file"),
    (["import", "x\x00y"], "there is no file"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=[" ".join(a)[:50] for a, _ in MISTAKES])
def test_a_mistake_is_one_line_and_code_2(program: Program, arguments: list[str], words: str) -> None:
    line = program.error(*arguments)
    assert line.startswith("error: ")
    assert words in line
    assert "\x1b" not in line
    assert not Path("typo.db").exists()


def test_no_store_at_all(program: Program) -> None:
    done = program.run("threads", PERDURE_STORE="")
    assert (done.code, done.out) == (2, "")
    assert "no store is named (use --store sqlite:///agents.db, or set PERDURE_STORE)" in done.err


def test_an_error_is_json_on_stderr_with_json(program: Program) -> None:
    line = program.error("show", "nobody", "--json")
    assert json.loads(line)["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "arguments",
    [["--json", "bogus"], ["threads", "--json", "--limit", "x"], ["show", "--json"], ["threads", "--json", "--bogus"]],
    ids=" ".join,
)
def test_a_usage_error_is_json_too(program: Program, arguments: list[str]) -> None:
    assert json.loads(program.error(*arguments))["error"]["code"] == "usage"


def test_json_after_two_dashes_is_not_an_option(program: Program) -> None:
    assert program.error("show", "kyoto", "--", "--json").startswith("error: ")


def test_a_file_that_is_no_store(program: Program, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"not a database, not at all " * 100)
    line = program.error("threads", "--store", f"sqlite:///{other}", code=1)
    assert line.startswith("error: ")


def test_damage_is_code_1(program: Program) -> None:
    data = bytearray(program.path.read_bytes())
    for page in range(2048, len(data), 2048):
        data[page : page + 200] = b"\xff" * 200
    program.path.write_bytes(data)
    assert program.error("threads", code=1).startswith("error: ")


def test_a_defect_is_told_without_a_traceback(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("perdure.stores.threads.Threads.list", broken)
    line = program.error("threads", code=70)
    assert line.startswith("error: ZeroDivisionError: division by zero (this is a defect of Perdure")
    shown = program.run("threads", PERDURE_DEBUG="1")
    assert (shown.code, "in broken" in shown.err) == (70, True)


def test_the_real_program_fails_with_one_line(program: Program) -> None:
    for arguments in (["show", "nobody"], ["threads", "--bogus"]):
        done = program.real(*arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"error: ")
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["export"], ["log", "kyoto"], ["tree", "kyoto"], ["threads"], ["completion", "bash"],
        [], ["--help"], ["show", "--help"], ["doctor", "--help"], ["--version"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_reader_that_leaves_early_is_no_error(program: Program, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen([SCRIPT, *arguments], stdout=write, stderr=subprocess.PIPE, env=program.environment())
    os.close(write)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, b"")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_the_program_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import perdure.cli; perdure.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == "error: the command line needs typer and rich (pip install typer rich)\n"


def test_interrupted_while_it_starts_it_is_quiet() -> None:
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "import perdure.cli\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "perdure.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_the_package_is_the_program(program: Program) -> None:
    command = [sys.executable, "-m", "perdure", "threads"]
    done = subprocess.run(command, capture_output=True, text=True, env=program.environment(), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, program("threads"), "")


def test_help_and_version(program: Program) -> None:
    assert program("--version").startswith("perdure ")
    for command in ("threads", "show", "log", "tree", "branch", "switch", "runs", "export", "import", "doctor"):
        assert "--help" in program(command, "--help")
    assert program.run().code == program.run("doctor").code == 0


def test_hints_quote_what_a_shell_would_read(program: Program) -> None:
    """A hint is pasted into a shell: an id must stay one word there."""
    names = ["x; touch pwned", "$(touch pwned)", "it's", "-rf", "a b"]

    async def fill() -> None:
        async with perdure.open(program.url) as store:
            for name in names:
                await store.threads.create(name)

    asyncio.run(fill())
    for name in names:
        for arguments in (["log", "--branch", "nowhere"], ["branch", "--at", "nothing"]):
            hint = json.loads(program.error(*arguments, "--json", "--", name))["error"]["hint"]
            command = hint.partition("; ")[2] if hint.startswith("give its id") else hint
            words = shlex.split(command)
            assert name in words, hint
            assert words[0] == "perdure"
            assert name[0] != "-" or words[words.index(name) - 1] == "--"
