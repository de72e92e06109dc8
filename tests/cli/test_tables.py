"""Ids are whole at every width: other columns make room for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rich.text import Text
from tests.cli.program import Program
from tests.cli.test_terminal import COLOUR, on_a_terminal

import perdure
from perdure import Message
from perdure.cli.command import CommandContext
from perdure.cli.tables import Column, fitted

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
    lines = COLOUR.sub("", on_a_terminal(program, *arguments, columns=columns)).splitlines()
    assert max(map(len, lines)) <= columns
    return lines


@pytest.mark.parametrize("columns", WIDTHS)
def test_ids_are_whole_and_a_row_is_a_line(minted: tuple[Program, list[str], list[str]], columns: int) -> None:
    program, threads, runs = minted
    assert {len(name) for name in threads + runs} == {26}
    rows = [line.split()[0] for line in lines_at(program, columns, "threads")[1:]]
    assert sorted(rows) == sorted(threads)
    rows = [line.split()[0] for line in lines_at(program, columns, "runs")[1:]]
    assert sorted(rows) == sorted(runs)
    shown = lines_at(program, columns, "show", threads[0])
    assert any(line.split()[:1] == [runs[0]] for line in shown)
    assert ["#1", "starred"] in [line.split() for line in shown]


def test_what_matters_least_goes_first(minted: tuple[Program, list[str], list[str]]) -> None:
    program, threads, _ = minted
    heads = {width: lines_at(program, width, "threads")[0].split() for width in WIDTHS}
    assert heads[120] == ["id", "title", "messages", "resource", "run", "active"]
    assert "resource" not in heads[60]
    assert heads[40] == ["id", "title"]
    assert any("A title of" in line for line in lines_at(program, 40, "threads"))
    assert lines_at(program, 80, "runs")[0].split()[:2] == ["id", "thread"]
    assert all(any(name in line for line in lines_at(program, 80, "runs")) for name in threads)


def test_an_id_wider_than_the_terminal_is_still_whole() -> None:
    columns = [Column("id", "id", 2), Column("title", "text", 1)]
    table, width = fitted(columns, [["x" * 50, "a title"]], 20)
    assert (width, [column.header for column in table.columns]) == (50, ["id"])


def test_a_cell_is_as_wide_as_its_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns stay in line though nobody escaped the cells."""
    desk = CommandContext(as_json=False)
    desk.table([Column("id", "id", 2), Column("n", "number", 1)], [["a\x1bb\u202ec", "1"], ["plain", Text("2\x9b")]])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["id                 n", "a\\x1bb\\u202ec      1", "plain          2\\x9b"]
