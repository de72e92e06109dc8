"""Files that were damaged, cut off or made up: each is refused with the line named, and nothing is written."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.samples import conversation
from tests.cli.transfers import Lines, edited, exported, fresh, number_of, refuse, run

from perdure import InvalidError


def second_line(**fields: Any) -> Callable[[Lines], Lines]:
    return lambda lines: edited(lines, 2, lambda line: line.update(fields))


def columns(**values: Any) -> Callable[[Lines], Lines]:
    return lambda lines: edited(lines, 2, lambda line: line["columns"].update(values))


def in_encoding(lines: Lines, encoding: str, mark: bytes = b"") -> bytes:
    """The first line as an editor or a shell saves it that was not told to use UTF-8."""
    return mark + lines[0].decode().encode(encoding)


DAMAGE: list[tuple[str, Callable[[Lines], Lines]]] = [
    ("line 1: not a line of an export", lambda lines: [b"hello", *lines]),
    ("line 1: an export begins with a header", lambda lines: lines[1:]),
    ("line 1: it has format 2", lambda lines: edited(lines, 1, lambda line: line.update(perdure=2))),
    ("schema 99", lambda lines: edited(lines, 1, lambda line: line.update(schema=99))),
    ("the file is empty", lambda lines: []),
    ("the file begins with a byte order mark", lambda lines: [codecs.BOM_UTF8 + lines[0], *lines[1:]]),
    ("the file is encoded in UTF-16", lambda lines: [in_encoding(lines, "utf-16-le", codecs.BOM_UTF16_LE)]),
    ("the file is encoded in UTF-16", lambda lines: [in_encoding(lines, "utf-16-be", codecs.BOM_UTF16_BE)]),
    ("the file is encoded in UTF-16", lambda lines: [in_encoding(lines, "utf-16-le")]),
    ("the file is encoded in UTF-16", lambda lines: [in_encoding(lines, "utf-16-be")]),
    ("the file is encoded in UTF-32", lambda lines: [in_encoding(lines, "utf-32-le", codecs.BOM_UTF32_LE)]),
    ("its last line is missing", lambda lines: lines[:-1]),
    ("lines are missing", lambda lines: [*lines[:1], lines[-1]]),
    ("more after the end", lambda lines: [*lines, lines[1]]),
    ("a second header", lambda lines: [lines[0], *lines]),
    ("line 2: not a line", lambda lines: [lines[0], lines[1][:-7], *lines[2:]]),
    ("line 2: not a line", lambda lines: [lines[0], b"\xff\xfe", *lines[2:]]),
    ("line 2: not a line", lambda lines: [lines[0], b"", *lines[1:]]),
    ("line 2: not a line", lambda lines: [lines[0], b"[" * 200_000, *lines[1:]]),
    ("line 2: longer than", lambda lines: [lines[0], b" " * 9_000_000, *lines[1:]]),
    ("line 2: there is no table 'treasure'", second_line(table="treasure")),
    ("line 2: not a line", second_line(table=None)),
    ("line 2: neither a row nor", lambda lines: edited(lines, 2, lambda line: line.pop("table"))),
    ("line 2: the field seq does not belong", second_line(seq=1)),
    ("line 2: threads has no column", columns(gold=1)),
    ("line 2: not a line", columns(title=True)),
    ("line 2: title must be text", columns(title=7)),
    ("line 2: created_at must be an int", columns(created_at=2**60)),
    ("line 2: threads.created_at is missing", columns(created_at=None)),
    ("line 2: threads.deleted_at cannot", columns(deleted_at=1)),
    ("line 2: the key of threads", lambda lines: edited(lines, 2, lambda line: line["key"].append(1))),
    ("line 2: threads.thread must not contain control", second_line(key=["a\x1b[2J"])),
    ("thread 'kyoto' is not complete", lambda lines: edited(lines, 3, lambda line: line.update(key=["other", 0]))),
    ("is there twice", lambda lines: [*lines[:2], lines[1], *lines[2:]]),
]


@pytest.mark.parametrize(("words", "damage"), DAMAGE, ids=[words for words, _ in DAMAGE])
def test_damage_is_named_and_changes_nothing(words: str, damage: Callable[[Lines], Lines]) -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await conversation(one)
            await refuse(two, damage(await exported(one)), InvalidError, words)

    run(scenario)


LIES: list[tuple[str, str, Callable[[dict[str, Any]], None]]] = [
    ('"thread_heads"', "counts 99 messages", lambda line: line["columns"].update(version=99)),
    ('"thread_heads"', "current branch 7 is not there", lambda line: line["columns"].update(branch=7)),
    ('"thread_heads"', "current branch 3 is not there", lambda line: line["columns"].update(branch=3)),
    ('"thread_heads"', "counts 2 branches", lambda line: line["columns"].update(branches=2)),
    ('"thread_heads"', "two values of resource", lambda line: line["columns"].update(resource="x")),
    ('"thread_heads"', "latest_run names 'x'", lambda line: line["columns"].update(latest_run="x")),
    ('"thread_heads"', "children cannot be imported", lambda line: line["columns"].update(children=3)),
    ('"branches","key":["kyoto",1]', "its parent is branch 1", lambda line: line["columns"].update(parent=1)),
    ('"branches","key":["kyoto",1]', "its parent is branch 2", lambda line: line["columns"].update(parent=2)),
    ('"branches","key":["kyoto",1]', "forks from branch 0", lambda line: line["columns"].update(fork="kyoto-call")),
    ('"branches","key":["kyoto",1]', "is called 'main' too", lambda line: line["columns"].update(name="main")),
    ('"branches","key":["kyoto",1]', "its name is None", lambda line: line["columns"].pop("name")),
    ('"branches","key":["kyoto",2]', "a root with a fork point", lambda line: line["columns"].update(fork_seq=1)),
    ('"branches","key":["kyoto",0]', "counts 3 messages, the log has 4", lambda line: line["columns"].update(length=3)),
    ('"branches","key":["kyoto",0]', "its head is", lambda line: line["columns"].update(head_seq=1)),
    ('"seq":2,', "stands where 2 should", lambda line: line.update(seq=3)),
    ('"seq":2,', "is there twice", lambda line: line["columns"].update(id="kyoto-ask")),
    ('"seq":2,', "lower-case word", lambda line: line["columns"].update(role="\x1b[2J")),
    ('"seq":2,', "must not hold tool calls", lambda line: line["columns"].update(role="user")),
    ('"seq":2,', "cannot be read", lambda line: line.update(body={"content": 7})),
    ('"seq":2,', "a log entry has a body", lambda line: line.pop("body")),
    ('"seq":2,', "has no column", lambda line: line["columns"].update(gold=1)),
    ('"seq":2,', "messages.branch is missing", lambda line: line["columns"].pop("branch")),
    ('"seq":2,', "on branch 9, which is not there", lambda line: line["columns"].update(branch=9)),
    ('"labels"', "points to 1, where", lambda line: line["columns"].update(seq=1)),
    ('"runs"', "must be one of .*dreaming", lambda line: line["columns"].update(status="dreaming")),
    ('"runs"', "runs.steps must be an integer of at least 0", lambda line: line["columns"].update(steps=-1)),
    ('"runs"', "runs.thread is missing", lambda line: line["columns"].pop("thread")),
    ('"runs"', "has an outcome: True", lambda line: line["columns"].update(status="running")),
    ('"threads"', "threads.resource must not contain control", lambda line: line["columns"].update(resource="a\x1bb")),
    ('"runs"', "pinned to branch 9, which is not there", lambda line: line["columns"].update(branch=9)),
    ('"runs"', "cannot be read", lambda line: line.update(body={"waiting": 3})),
    ('"state","key":["kyoto","', "which is not there", lambda line: line.update(key=["kyoto", "r", "n"])),
    ('"keys"', "names messages that are not there", lambda line: line["columns"].update(version=99)),
    ('"keys"', "counts 1 messages up to version", lambda line: line.update(body=["a", "b"])),
    ('"queues"', "the queue does not count", lambda line: line["columns"].update(count=2)),
    ('"pending"', "do not stand at 1, 2, 3", lambda line: line["columns"].update(position=4)),
]


@pytest.mark.parametrize(("which", "words", "lie"), LIES, ids=[f"{which} {words}" for which, words, _ in LIES])
def test_a_thread_that_does_not_hold_together_is_refused(
    which: str, words: str, lie: Callable[[dict[str, Any]], None]
) -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await conversation(one)
            lines = await exported(one)
            await refuse(two, edited(lines, number_of(lines, which), lie), InvalidError, f"line .*{words}")

    run(scenario)


def test_a_thread_twice_in_a_file_is_refused() -> None:
    async def scenario() -> None:
        async with fresh() as one, fresh() as two:
            await conversation(one)
            header, *block, _ = await exported(one)
            end = json.dumps({"end": {"threads": 2, "lines": 2 * len(block)}}).encode()
            await refuse(two, [header, *block, *block, end], InvalidError, "line .*in the file twice")

    run(scenario)
