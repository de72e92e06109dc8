"""Output that cannot hold every character: a redirected Windows console, an ASCII terminal, the C locale."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import pytest
from tests.cli.program import Done, Program

import perdure
import perdure.cli
from perdure import Message, Text, ToolUse

ENCODINGS = ["cp1252", "ascii", "latin-1"]
TALK = "京都 → Zürich – “soon” \U0001f980"
READS = [
    ["threads"],
    ["threads", "--limit", "1"],
    ["show", "世"],
    ["show", "kyoto"],
    ["runs"],
    ["log", "世"],
    ["log", "hostile"],
    ["tree", "世"],
    ["tree", "kyoto", "--width", "60"],
    ["branch", "世"],
    ["migrate", "--check"],
    ["doctor", "verify"],
    ["run", "走"],
]
OTHERS = [
    ["switch", "世", "枝"],
    ["export", "世"],
    ["doctor", "sweep"],
    ["health"],
    ["doctor", "health"],
    ["log", "-h"],
    ["completion", "bash"],
    ["completion", "zsh"],
    ["completion", "fish"],
    ["threads", "--store", "sqlite:///", "-h"],
    ["cancel", "待", "--yes"],
    ["delete", "消", "--yes"],
]
FAILURES = [
    ["show", "界"],
    ["branch", "世", "--name", "枝"],
    ["log", "世", "--view", "外"],
    ["switch", "世", "木"],
    ["log", "--外"],
    ["run", "界"],
    ["cancel", "走", "--yes"],
    ["delete", "世"],
    ["delete", "世", "--yes", "--strategy", "外"],
    ["completion", "外"],
]


@pytest.fixture
def foreign(program: Program) -> Program:
    """The store with a thread whose every name is beyond Western European."""

    async def fill() -> None:
        async with perdure.open(program.url) as store:
            await store.threads.create("世", title=TALK, resource_id="é", custom={"é": "→"})
            call = ToolUse("呼", "探す", {"何": "→"})
            run = await store.runs.start("世", "探偵", run_id="走", messages=[Message.user(TALK, id="始")])
            said = [Message.assistant([Text("•"), call]), Message.tool("呼", TALK)]
            await store.commit("世", messages=said, run=run.finish(TALK), state={"状態": TALK})
            await store.branches.fork("世", at="始", name="枝")
            await store.commit("世", messages=[Message.user(TALK)], branch="枝")
            await store.branches.label("世", "始", "ここ")
            await store.pending.append("世", [Message.user(TALK)])
            await store.runs.start("消", "探偵", run_id="待つ")

    asyncio.run(fill())
    return program


def run_in(encoding: str, program: Program, *arguments: str) -> tuple[Done, bytes]:
    """A command whose stdout and stderr have this encoding, strict as Python makes them; and the bytes of stdout."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n", write_through=True) for _ in range(2)]
    with (
        mock.patch.dict("os.environ", program.environment(), clear=True),
        mock.patch.object(sys, "argv", ["perdure", *arguments]),
        redirect_stdout(streams[0]),
        redirect_stderr(streams[1]),
        pytest.raises(SystemExit) as ended,
    ):
        perdure.cli.main()
    out, err = [stream.buffer.getvalue() for stream in streams]  # type: ignore[attr-defined]
    as_text = out.decode("utf-8" if arguments[0] == "export" else encoding)
    return Done(int(ended.value.code or 0), as_text, err.decode(encoding)), out


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_command_writes_in_any_encoding(foreign: Program, encoding: str) -> None:
    for arguments in [*READS, *OTHERS]:
        done, _ = run_in(encoding, foreign, *arguments)
        assert done.out, arguments
        assert done.err == "", arguments
        # A store in a folder for temporary files is not healthy.
        assert done.code == ("health" in arguments), arguments


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_error_is_one_line_in_any_encoding(foreign: Program, encoding: str) -> None:
    for arguments in FAILURES:
        done, _ = run_in(encoding, foreign, *arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert len(done.err.splitlines()) == 1, arguments
        as_json, _ = run_in(encoding, foreign, *arguments, "--json")
        assert json.loads(as_json.err)["error"]["message"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_means_the_same_in_any_encoding(foreign: Program, encoding: str) -> None:
    for arguments in READS:
        done, _ = run_in(encoding, foreign, *arguments, "--json")
        expected = foreign.run(*arguments, "--json").out.splitlines()
        assert list(map(json.loads, done.out.splitlines())) == list(map(json.loads, expected)), arguments


def test_an_export_is_utf8_whatever_the_terminal_speaks(foreign: Program) -> None:
    _, piped = run_in("ascii", foreign, "export", "世")
    assert piped.decode() == foreign.run("export", "世").out


def test_ascii_gets_plain_marks_and_escapes(foreign: Program) -> None:
    log = run_in("ascii", foreign, "log", "世")[0].out
    assert r"\u4eac\u90fd -> Z\xfcrich - \u201csoon\u201d \U0001f980" in log
    assert "  <- " in log
    tree = run_in("ascii", foreign, "tree", "kyoto", "--width", "60")[0].out
    assert "`- o #" in tree
    assert "|- * #" in tree
    assert "..." in tree
    assert "\\u" not in tree


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_columns_stay_in_line(foreign: Program, encoding: str) -> None:
    head, *rows = run_in(encoding, foreign, "threads")[0].out.splitlines()
    active = head.index("active")
    assert any("\\u4e16" in row for row in rows)
    assert [row[active - 2 : active + 2] for row in rows] == ["  20"] * len(rows)


def test_what_an_encoding_has_is_left_alone(foreign: Program) -> None:
    log = run_in("cp1252", foreign, "log", "世")[0].out
    assert r"\u4eac\u90fd -> Zürich – “soon” \U0001f980" in log


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""},
    ],
    ids=["cp1252", "ascii", "latin-1", "C locale"],
)
def test_the_installed_program_survives(foreign: Program, environment: dict[str, str]) -> None:
    for arguments in (["log", "kyoto"], ["tree", "kyoto"]):
        done = foreign.real(*arguments, **environment)
        assert (done.returncode, done.stderr) == (0, b""), (arguments, done.stderr)
        assert done.stdout


def test_a_defect_is_reported_on_one_line_without_escapes(program: Program) -> None:
    with mock.patch("perdure.cli.commands.log.whole_message", side_effect=RuntimeError("first\n*** second ***")):
        line = program.error("log", "kyoto", code=70)
    assert "RuntimeError: first *** second ***" in line
