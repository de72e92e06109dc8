"""Hostile export files: a valid one, damaged in one place at a time.

Every column of every kind of line is replaced by each of `VALUES` or left out; lines are doubled, dropped and moved;
and some files are built whole, where one line says nothing wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.audit.lines import Line, parse, spell

from perdure import limits
from perdure.stores.schema import SCHEMA

Hostile = tuple[str, list[bytes]]
_MISSING = object()


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "text": "abc",
    "number": 7,
    "null": None,
    "empty": "",
    "blank": "  ",
    "untrimmed": " u ",
    "NUL": "a\x00b",
    "ESC": "a\x1b[2Jb",
    "surrogate": "a\ud800b",
    "1 MB": "x" * 1_000_000,
    "2^51+1": 2**51 + 1,
    "2^52": 2**52,
    "2^53": 2**53,
    "negative": -1,
    "bool": True,
    "float": 1.5,
    "deep": _nested(200),
    "missing": _MISSING,
}
BODIES: dict[str, Any] = {
    **VALUES,
    "object": {},
    "list": [],
    "foreign": {"\x1b[2J": "\x00"},
    "wide": {"k" * 60_000: [0] * 2_000},
    "big number": 10**2_000,
}


def hostile_files(lines: list[bytes]) -> Iterator[Hostile]:
    """Every damaged file, with a name that says what was done."""
    parsed = parse(lines)
    for place in _one_of_each(parsed):
        for what, line in (*_columns(parsed[place]), *_keys(parsed[place]), *_fields(parsed[place])):
            yield f"{_kind(parsed[place])} {what}", _with(lines[0], parsed, place, [line])
    for place, line in enumerate(parsed):
        name = f"line {place + 2} ({_kind(line)})"
        yield f"{name} doubled", _with(lines[0], parsed, place, [line, line])
        yield f"{name} dropped", _with(lines[0], parsed, place, [])
        if place:
            moved = [*parsed[: place - 1], line, parsed[place - 1], *parsed[place + 1 :]]
            yield f"{name} moved up", spell(lines[0], moved)
        yield f"{name} at the end", spell(lines[0], [*parsed[:place], *parsed[place + 1 :], line])
    for cut in range(0, len(lines), 7):
        yield f"cut after {cut} lines", lines[:cut]
    yield from whole_files(lines)


def _with(header: bytes, parsed: list[Line], place: int, instead: list[Line]) -> list[bytes]:
    return spell(header, [*parsed[:place], *instead, *parsed[place + 1 :]])


def _kind(line: Line) -> str:
    return str(line.get("table") or line["log"])


def _one_of_each(parsed: list[Line]) -> Iterator[int]:
    """One line of every table and log, of the thread that has most of everything where it can be."""
    for name in [shape.name for shape in (*SCHEMA.tables, *SCHEMA.logs)]:
        places = [place for place, line in enumerate(parsed) if _kind(line) == name]
        yield next((place for place in places if '"t"' in json.dumps(parsed[place])), places[0])


def _columns(line: Line) -> Iterator[tuple[str, Line]]:
    name = _kind(line)
    shape = SCHEMA.log[name] if "log" in line else SCHEMA.table[name]
    for column in shape.column_names:
        for what, value in VALUES.items():
            columns = {**line["columns"], column: value}
            if value is _MISSING:
                del columns[column]
            yield f"{column}: {what}", {**line, "columns": columns}
    yield "an unknown column", {**line, "columns": {**line["columns"], "gold": 1}}


def _keys(line: Line) -> Iterator[tuple[str, Line]]:
    for part in range(len(line.get("key", ()))):
        for what, value in VALUES.items():
            key = list(line["key"])
            key[part : part + 1] = [] if value is _MISSING else [value]
            yield f"key {part}: {what}", {**line, "key": key}


def _fields(line: Line) -> Iterator[tuple[str, Line]]:
    own = ("body", "partition", "seq", "columns") if "log" in line else ("body", "key", "columns")
    for field in own:
        for what, value in (BODIES if field == "body" else VALUES).items():
            changed = {**line, field: value}
            if value is _MISSING:
                del changed[field]
            if changed != line:
                yield f"{field}: {what}", changed
    yield "a field of another line", {**line, **({"key": ["t"]} if "log" in line else {"partition": "t", "seq": 1})}
    yield "an unknown field", {**line, "gold": 1}
    yield "an end in it", {**line, "end": {"threads": 1, "lines": 1}}


def whole_files(lines: list[bytes]) -> Iterator[Hostile]:
    """Files in which no line is wrong in itself."""
    header, parsed = lines[0], parse(lines)
    by_kind = {name: [line for line in parsed if _kind(line) == name] for name in ("runs", "pending", "queues", "keys")}
    yield "a run in two threads", spell(header, [*parsed, *_thread("zz", runs=[by_kind["runs"][0]])])
    chain = [line for n in range(300) for line in _thread(f"c{n}", parent=f"c{n - 1}" if n else None)]
    yield "300 generations", spell(header, chain)
    pending = by_kind["pending"][0]
    queue = {"table": "queues", "key": ["zz"], "columns": {"count": 1_001, "revision": 1, "waiting": "zz"}}
    many = [_pending(pending, n) for n in range(1, limits.PENDING_PER_THREAD + 2)]
    yield "1,001 pending messages", spell(header, [*parsed, *_thread("zz", rows=[*many, queue])])
    yield "a message of too many bytes", spell(header, [*parsed, *_thread("zz", text="x" * limits.MESSAGE_BYTES)])
    yield "a member twice", [line.replace(b'"content":', b'"content":7,"content":') for line in lines]
    yield "spaces in bodies", [json.dumps(json.loads(line)).encode() for line in lines]


def _pending(line: Line, number: int) -> Line:
    message = {**line["body"]["message"], "id": f"p{number}"}
    columns = {**line["columns"], "position": number}
    return {**line, "key": ["zz", f"p{number}"], "columns": columns, "body": {**line["body"], "message": message}}


def _thread(
    name: str,
    *,
    parent: str | None = None,
    runs: list[Line] | None = None,
    rows: list[Line] | None = None,
    text: str | None = None,
) -> list[Line]:
    """The lines of a small thread that is sound in itself."""
    lineage = {} if parent is None else {"parent": parent}
    branch: dict[str, Any] = {"fork_seq": 0, "head_seq": 0, "length": 0, "created_at": 1, "name": "main"}
    head: dict[str, Any] = {"version": 0, "branch": 0, "branches": 1, "created_at": 1, "updated_at": 1, **lineage}
    said: list[Line] = []
    if text is not None:
        columns = {"id": "m", "role": "user", "branch": 0, "visibility": "all", "at": 1}
        body = {"content": [{"type": "text", "text": text}]}
        said.append({"log": "messages", "partition": name, "seq": 1, "columns": columns, "body": body})
        branch |= {"head": "m", "head_seq": 1, "length": 1}
        head["version"] = 1
    own = [{**run, "columns": {**run["columns"], "thread": name, **_QUIET}, "body": {}} for run in runs or ()]
    if own:
        head["latest_run"] = own[0]["key"][0]
    return [
        {"table": "threads", "key": [name], "columns": {"created_at": 1, **lineage}, "body": {}},
        {"table": "branches", "key": [name, 0], "columns": branch},
        *own,
        *(rows or ()),
        *said,
        {"table": "thread_heads", "key": [name], "columns": head},
    ]


_QUIET = {
    "status": "created",
    "branch": 0,
    "started_at": None,
    "finished_at": None,
    "input_first": None,
    "input_last": None,
    "output_first": None,
    "output_last": None,
    "output_count": 0,
}
"""Columns of a run that was given nothing and did nothing."""
