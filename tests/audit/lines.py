"""The damage of `mutations`, done to the lines of an export instead of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.audit.mutations import BODIES, INTEGERS, ONCE, TEXTS, Damage, other

from perdure.stores.schema import SCHEMA
from perdure.stores.transfer.lines import NOT_CARRIED

Line = dict[str, Any]
Damaged = tuple[Damage, list[bytes]]
_TORN = object()


def parse(lines: list[bytes]) -> list[Line]:
    """The lines between header and end."""
    return [json.loads(line) for line in lines[1:-1]]


def spell(header: bytes, parsed: list[Line]) -> list[bytes]:
    """A file of these lines, with the end that belongs to them."""
    threads = sum(line.get("table") == "thread_heads" for line in parsed)
    end = {"end": {"threads": threads, "lines": len(parsed)}}
    return [header, *[_spell(line) for line in parsed], json.dumps(end).encode()]


def _spell(line: Line) -> bytes:
    if line.get("body") is _TORN:
        return json.dumps({**line, "body": None}).encode()[:-5]
    raw = line.get("body")
    if isinstance(raw, _Deep):
        return json.dumps({**line, "body": 0}).encode()[:-2] + raw.text.encode() + b"}"
    return json.dumps(line).encode()


class _Deep:
    def __init__(self, text: str) -> None:
        self.text = text


def line_mutations(lines: list[bytes]) -> Iterator[Damaged]:
    """Every damage of every line; what is tried once is tried on the lines of `t` first."""
    parsed = parse(lines)
    done: set[tuple[str, str, str]] = set()
    places = sorted(range(len(parsed)), key=lambda place: _thread(parsed[place]) != "t")
    for place in places:
        for damage, instead in (*_columns(parsed, place), *_bodies(parsed[place]), *_whole(parsed[place])):
            if damage.kind not in ONCE or damage.cell not in done:
                done.add(damage.cell)
                yield damage, spell(lines[0], [*parsed[:place], *instead, *parsed[place + 1 :]])


def _thread(line: Line) -> str:
    if "log" in line:
        return str(line["partition"])
    return str(line["columns"]["thread"] if line["table"] == "runs" else line["key"][0])


def _name(line: Line) -> str:
    return f"{line['partition']}/{line['seq']}" if "log" in line else "/".join(map(str, line["key"]))


def _about(line: Line, column: str, kind: str) -> Damage:
    return Damage(line.get("table") or line["log"], column, kind, _name(line))


def _columns(parsed: list[Line], place: int) -> Iterator[tuple[Damage, list[Line]]]:
    line = parsed[place]
    table = line.get("table") or line["log"]
    types = SCHEMA.log[table].types if "log" in line else SCHEMA.table[table].value_types
    for column, kind in types.items():
        if column in NOT_CARRIED.get(table, ()):
            continue
        value = line["columns"].get(column)
        values = {**(INTEGERS if kind == "int" else TEXTS), "other": other(value, kind)}
        values["type"] = "abc" if kind == "int" else 7
        rivals = [rival["columns"].get(column) for rival in parsed if table in (rival.get("table"), rival.get("log"))]
        swapped = next((rival for rival in rivals if rival != value), None)
        if swapped is not None:
            values["swapped"] = swapped
        for name, instead in values.items():
            if instead != value:
                yield _about(line, column, name), [{**line, "columns": {**line["columns"], column: instead}}]


def _bodies(line: Line) -> Iterator[tuple[Damage, list[Line]]]:
    bare = {name: value for name, value in line.items() if name != "body"}
    for kind, text in BODIES.items():
        if kind == "null":
            changed = bare
        elif kind == "deep":
            changed = {**bare, "body": _Deep(text)}
        elif kind == "torn":
            changed = {**bare, "body": _TORN}
        else:
            changed = {**bare, "body": json.loads(text)}
        if changed != line:
            yield _about(line, "body", kind), [changed]


def _whole(line: Line) -> Iterator[tuple[Damage, list[Line]]]:
    yield _about(line, "*", "deleted"), []
    if "log" in line:
        twin = {**line, "seq": line["seq"] + 100, "columns": {**line["columns"], "id": f"{line['columns']['id']}x"}}
        yield _about(line, "*", "orphan"), [line, {**twin, "partition": "nobody"}]
    else:
        last = line["key"][-1]
        twin = {**line, "key": [*line["key"][:-1], last + (100 if isinstance(last, int) else "x")]}
        if line["table"] == "runs":
            yield _about(line, "*", "orphan"), [line, {**twin, "columns": {**line["columns"], "thread": "nobody"}}]
    yield _about(line, "*", "twin"), [line, twin]
