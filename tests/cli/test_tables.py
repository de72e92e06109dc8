"""Ids and times are whole at every width, and nothing is lost: what has no room follows on a second line."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from rich.text import Text
from tests.cli.program import Program

import perdure
from perdure import Message
from perdure.cli.command import CommandContext
from perdure.cli.tables import Column, table_lines

WIDTHS = (120, 80, 60, 40)


@pytest.fixture
def minted(tmp_path: Path) -> tuple[Program, list[str], list[str]]:
    """A store with minted ids and long titles; the ids of its threads and of its runs."""
    program = Program(tmp_path / "minted.db")

    async def fill() -> tuple[list[str], list[str]]:
        threads, runs = [], []
        async with perdure.open(program.url, durability="process") as store:
            for _ in range(3):
                thread = await store.threads.create(title="A title of some thirty letters", resource_id="someone-1234")
                run = await store.runs.start(thread.id, "planner", messages=[Message.user("Hello")])
                await store.commit(thread.id, run=run.finish("ok", input_tokens=12345, output_tokens=678))
                await store.branches.label(thread.id, (await store.branches.current(thread.id)).head or "", "starred")
                threads.append(thread.id)
                runs.append(run.id)
        return threads, runs

    return program, *asyncio.run(fill())


def lines_at(program: Program, columns: int, *arguments: str) -> list[str]:
    done = program.run(*arguments, screen=True, COLUMNS=str(columns), NO_COLOR="1")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= columns
    return lines


@pytest.mark.parametrize("columns", WIDTHS)
def test_ids_are_whole_and_begin_a_line(minted: tuple[Program, list[str], list[str]], columns: int) -> None:
    program, threads, runs = minted
    assert {len(name) for name in threads + runs} == {26}
    for command, ids in (("threads", threads), ("runs", runs)):
        rows = [line.split()[0] for line in lines_at(program, columns, command)[1:] if line[0] != " "]
        assert sorted(rows) == sorted(ids)
    shown = lines_at(program, columns, "show", threads[0])
    assert any(line.split()[:1] == [runs[0]] for line in shown)
    assert ["#1", "starred"] in [line.split() for line in shown]


@pytest.mark.parametrize("columns", [80, 60])
def test_nothing_but_long_text_is_shortened(minted: tuple[Program, list[str], list[str]], columns: int) -> None:
    """Every id, time and number that a pipe gets is on the terminal too, and a cut text says that it was cut."""
    program, threads, runs = minted
    time = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")
    commands = [["threads"], ["runs"], ["runs", threads[0]], ["run", runs[0]], ["branch", threads[0]]]
    for arguments in [*commands, ["show", threads[0]], ["log", threads[0]], ["tree", threads[0]]]:
        piped, text = program(*arguments), "\n".join(lines_at(program, columns, *arguments))
        assert sorted(time.findall(text)) == sorted(time.findall(piped)), arguments
        for word in ("12345+678", "someone-1234", *threads, *runs):
            assert text.count(word) == piped.count(word), (arguments, word)
        assert "natural_end" in text or "natural_end" not in piped
        title = "A title of some thirty letters"
        assert piped.count(title) == text.count(title) + len(re.findall(r"A title[\w ]*…", text))


@pytest.mark.parametrize("columns", [80, 60])
def test_a_log_is_wrapped_between_ids(program: Program, columns: int) -> None:
    piped = [line for line in program("log", "kyoto").splitlines() if line.startswith("#")]
    assert max(map(len, piped)) > 80
    text = " ".join(" ".join(lines_at(program, columns, "log", "kyoto")).split())
    for line in piped:
        assert " ".join(line.split()) in text


def test_what_matters_least_goes_first(minted: tuple[Program, list[str], list[str]]) -> None:
    program, threads, _ = minted
    heads = {width: lines_at(program, width, "threads")[0].split() for width in WIDTHS}
    assert heads[120] == ["id", "title", "messages", "resource", "run", "active"]
    assert heads[80] == ["id", "title", "messages", "run", "active"]
    assert heads[40] == ["id", "title"]
    assert "    resource someone-1234" in lines_at(program, 80, "threads")
    assert any(re.fullmatch(r"    active \S+ \S+Z", line) for line in lines_at(program, 40, "threads"))
    assert lines_at(program, 80, "runs")[0].split() == ["id", "agent", "status", "created"]
    assert all(any(f"    thread {name}" in line for line in lines_at(program, 80, "runs")) for name in threads)


def test_an_id_wider_than_the_terminal_is_still_whole() -> None:
    columns = [Column("id", "id", 2), Column("title", "text", 1), Column("n", "number", 0)]
    lines = [line.plain for line in table_lines(columns, [["x" * 50, "a title that is long", "0"]], 20)]
    assert lines == ["id", "x" * 50, "    title a title t…"]


def test_an_id_is_shown_letter_by_letter(program: Program) -> None:
    name = "two  spaces " + "x" * 230

    async def create() -> None:
        async with perdure.open(program.url) as store:
            await store.threads.create(name)
            await store.runs.start(name, "agent", run_id=f"r{name}")

    asyncio.run(create())
    for arguments in (["threads"], ["runs"], ["show", "two"], ["run", "rtwo"]):
        assert name in program(*arguments)


def test_a_cell_is_as_wide_as_its_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns stay in line though nobody escaped the cells."""
    desk = CommandContext(as_json=False)
    desk.table([Column("id", "id", 2), Column("n", "number", 1)], [["a\x1bb\u202ec", "1"], ["plain", Text("2\x9b")]])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["id                 n", "a\\x1bb\\u202ec      1", "plain          2\\x9b"]
