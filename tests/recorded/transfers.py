"""Export and import: the round trip into another scope, and files that are refused."""

from __future__ import annotations

import json
from typing import Any

from tests.recorded.recorder import Recorder
from tests.recorded.support import check_lines, export_lines, import_lines


async def transfers(r: Recorder) -> None:
    """Everything goes from one scope to another and is the same there; damaged files change nothing."""
    await r.do(export_lines, r.store, ["kyoto", "nowhere"], label="export")
    lines = [line async for line in export_lines(r.store, ["kyoto", "child-1", "queue", "run-thread"])]
    copy = r.store.scoped("copy")
    await r.do(import_lines, r.store, lambda: lines, label="import")
    await r.do(check_lines, copy, lambda: lines, label="check")
    for options in ({}, {}, {"skip_existing": True}):
        await r.do(import_lines, copy, lambda: lines, label="import", **options)
    child = [line async for line in export_lines(r.store, ["grandchild"])]
    await r.do(import_lines, copy, lambda: child, label="import")
    await r.do(import_lines, copy, lambda: child, label="import", detach=True)
    again = [line async for line in export_lines(copy, ["kyoto", "child-1", "queue", "run-thread"])]
    r.note("the copy exports the same lines but its header", lines[1:] == again[1:])
    for name, damaged in damages(lines).items():
        await r.do(import_lines, r.store.scoped("damaged"), lambda made=damaged: made, label=f"import {name}")
    await r.do("threads.list", on=r.store.scoped("damaged"))


def damages(lines: list[bytes]) -> dict[str, list[bytes]]:
    """An export with one thing wrong, by name."""
    hot = next(i for i, line in enumerate(lines) if b'"thread_heads"' in line)
    entry = next(i for i, line in enumerate(lines) if b'"log":"messages"' in line)
    header = json.loads(lines[0])
    made: dict[str, list[bytes]] = {
        "empty": [],
        "no header": lines[1:],
        "cut": lines[:-1],
        "more after the end": [*lines, lines[1]],
        "two headers": [lines[0], *lines],
        "no JSON": [lines[0], b"{", *lines[2:]],
        "another format": [_line({**header, "perdure": 9}), *lines[1:]],
        "a newer schema": [_line({**header, "schema": 99}), *lines[1:]],
        "a line twice": [*lines[:2], lines[1], *lines[2:]],
        "a line missing": [*lines[:entry], *lines[entry + 1 :]],
        "byte order mark": [b"\xef\xbb\xbf" + lines[0], *lines[1:]],
    }
    for name, where, change in (
        ("an unknown table", hot, {"table": "nonsense"}),
        ("an unknown field", hot, {"colour": "green"}),
        ("an unknown log", entry, {"log": "nonsense"}),
        ("another seq", entry, {"seq": 40}),
        ("no key", hot, {"key": []}),
        ("a wrong column", hot, {"columns": {"version": "two"}}),
    ):
        made[name] = [*lines[:where], _line({**json.loads(lines[where]), **change}), *lines[where + 1 :]]
    return made


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
