"""Everything that leaves for a terminal passes one place, which escapes it, whatever the caller forgot."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from rich.table import Table
from rich.text import Text
from tests.cli.program import Program
from tests.cli.steering import steering, steering_on_screen

import perdure
from perdure import Message
from perdure.cli.escaping import harmless_json, visible
from perdure.cli.terminal import Screen, guarded_streams

EVIL = "\x1b[2J\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\\x9b31m"
TAGS = "".join(chr(0xE0000 + ord(c)) for c in "hidden")
HIDDEN = f"a{TAGS}\u180e\ufff9\ufffa\ufffb\u202e\u2028\u200b\U000e0100\U000e0101b"

NUMBERS = [
    ("runs", "status"),
    ("runs", "steps"),
    ("runs", "input_tokens"),
    ("thread_heads", "version"),
    ("thread_heads", "fence"),
    ("thread_heads", "children"),
    ("messages", "step"),
    ("branches", "length"),
    ("branches", "fork_seq"),
    ("state", "schema"),
]
LOOKS = [["threads"], ["show", "kyoto"], ["runs"], ["branch", "kyoto"], ["log", "kyoto"], ["tree", "kyoto"]]


@pytest.mark.parametrize(("table", "column"), NUMBERS, ids=[".".join(pair) for pair in NUMBERS])
def test_text_in_a_column_of_numbers_steers_nothing(program: Program, table: str, column: str) -> None:
    with sqlite3.connect(program.path) as file:
        file.execute(f"UPDATE {table} SET {column} = ?", (EVIL,))
    file.close()
    for arguments in LOOKS:
        done = program.run(*arguments, screen=True)
        assert steering_on_screen(done.out) == steering_on_screen(done.err) == [], arguments


def test_a_screen_escapes_what_its_caller_forgot(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(sys.stdout, width=60)
    table = Table(title=EVIL, caption=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL, Style(link="http://evil")))
    for thing in (EVIL, Text(EVIL), table):
        screen.print(thing)
    screen.out(EVIL)
    screen.log(EVIL)
    assert steering(capsys.readouterr().out) == []


def test_a_screen_makes_no_links_and_reads_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(sys.stdout, width=60)
    screen.print("[link=http://evil]click[/link] [/x] :smile:")
    screen.print(Text("click", Style(link="http://evil")))
    written = capsys.readouterr().out
    assert "[link=http://evil]click[/link] [/x] :smile:" in written
    assert "\x1b]8" not in written


def test_no_style_carries_a_link() -> None:
    screen = Screen(sys.stdout, width=60)
    parts = list(screen.render(Text("click", Style(link="http://evil", bold=True))))
    assert [part.style.link for part in parts if part.style] == [None] * len([part for part in parts if part.style])
    assert any(part.style and part.style.bold for part in parts)


def test_what_is_written_past_the_screen_is_escaped_too(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded_streams():
        sys.stdout.write(f"out {EVIL}\n")
        print(f"err {EVIL}", file=sys.stderr)
    written = capsys.readouterr()
    assert steering(written.out) == steering(written.err) == []
    assert "\\x1b[2J" in written.out


def test_a_traceback_steers_nothing_and_shows_no_password(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError(f"{EVIL} postgresql://app:canary@db/agents")

    monkeypatch.setattr("perdure.stores.threads.Threads.list", broken)
    done = program.run("threads", screen=True, PERDURE_DEBUG="1")
    assert done.code == 70
    assert "Traceback" in done.err
    assert "canary" not in done.err
    assert steering_on_screen(done.err) == []


@given(st.text())
def test_visible_text_steers_nothing_and_stays_as_it_is(text: str) -> None:
    assert steering(visible(text)) == []
    assert visible(visible(text)) == visible(text)


def test_every_category_that_steers_or_hides_is_escaped() -> None:
    every = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    assert [hex(ord(c)) for c in every if visible(f"a{c}b").isascii() is False] == []


def test_hidden_text_is_escaped_alike_for_people_and_in_json() -> None:
    assert visible(HIDDEN).isprintable()
    assert TAGS[0] not in visible(HIDDEN)
    document = json.dumps({"k": HIDDEN}, ensure_ascii=False)
    shown = harmless_json(document)
    assert steering(shown) == []
    assert TAGS[0] not in shown
    assert "\U000e0101" not in shown
    assert json.loads(shown) == {"k": HIDDEN}


def test_readable_text_is_left_alone() -> None:
    kept = [
        "👩‍👩‍👧 ❤️‍🔥 1️⃣ ☎︎ 👍🏽",
        "می‌خواهم",  # Persian needs the non-joiner
        "क्‍ष",
        "葛\U000e0100城",
        "שלום عالم 京都　東京 a\u00a0b",
    ]
    for text in kept:
        assert visible(text) == text
        assert harmless_json(f'"{text}"') == f'"{text}"'


def test_tag_characters_are_escaped_in_json_output(program: Program) -> None:
    async def fill() -> None:
        async with perdure.open(program.url) as store:
            await store.threads.create("tagged", title=HIDDEN)
            await store.commit("tagged", messages=[Message.user(HIDDEN)])

    asyncio.run(fill())
    for arguments in (["show", "tagged"], ["log", "tagged"], ["tree", "tagged"]):
        line = program(*arguments, "--json")
        assert steering(line) == []
        assert TAGS[0] not in line
    assert program.json("show", "tagged")["thread"]["title"] == HIDDEN


def test_a_file_name_that_is_no_utf8_is_named_in_json(program: Program, tmp_path: Path) -> None:
    name = str(tmp_path / "caf\udce9.jsonl")
    assert program.json("export", "kyoto", "--out", name)["file"] == name


MARKUP = ["thr[/x]eads", "[link=evil]x[/link]", ":smile:", "[bold]x", "\x1b[2J", "{0}%s{task}"]


@pytest.mark.parametrize("word", MARKUP)
def test_a_usage_error_echoes_words_as_they_are(program: Program, word: str) -> None:
    for arguments in ([word], ["show", "kyoto", word], ["threads", "--limit", word], ["threads", f"--{word}"]):
        done = program.run(*arguments, screen=True)
        assert (done.code, done.out) == (2, ""), arguments
        assert steering_on_screen(done.err) == []
        if arguments == [word]:
            assert visible(word) in done.err
