"""Imports: the lines of a real export after a few edits.

A file that is refused changes nothing. One that is taken leaves a store that passes the audit, can be read, shown and
exported to the same lines, takes commits, and loses all of it again when its threads are deleted.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.comparing import check_json_output, check_shown
from tests.fuzz.mutate import SCALARS, spliced, values
from tests.fuzz.target import Broken, Target, refusal

from perdure import Message
from perdure.audit import digest, verify
from perdure.cli.documents import branch_document, label_document, run_document, state_document, thread_document
from perdure.engines.memory import open_memory
from perdure.errors import PerdureError
from perdure.kernel.ops import Scan
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import check_lines, export_lines, import_lines

EXPORTS = Path(__file__).parent / "exports"
_WITNESS = "witness"
_SOON = 1_700_003_600_000
"""A document that expires before this time may have done so during the test."""
_WORDS = ("t", "parent", "leaf", "nobody", _WITNESS, "m1", "m7", "running", "done", "k1", "user", "tool", "main")
_RAW = (b"", b"{}", b"null", b"\xff", b"[" * 5_000, b'{"table":"threads"}', b'{"table":1e400}', b"\xef\xbb\xbf{}")


@cache
def _base(name: str) -> list[Any]:
    """Header and lines of a stored export, without its end."""
    text = (EXPORTS / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()][:-1]


@st.composite
def _cases(draw: Any, _: Sequence[Any]) -> Any:
    base = draw(st.sampled_from(("small", "rich")))
    lines = _base(base)
    edits = [_edit(draw, lines) for _ in range(draw(st.integers(0, 3)))]
    return {"base": base, "edits": edits}


def _edit(draw: Any, lines: list[Any]) -> list[Any]:
    line, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    kind = draw(st.sampled_from(("set", "set", "set", "set", "take", "unset", "drop", "copy", "move", "raw", "end")))
    if kind in ("set", "unset", "take"):
        path = draw(st.sampled_from(_paths(lines[line])))
        if kind == "unset":
            return [kind, line, path]
        if kind == "take":
            return [kind, line, path, other]
        return [kind, line, path, draw(st.sampled_from((*_WORDS, *SCALARS)) | values)]
    if kind == "raw":
        spelled = json.dumps(lines[line]).encode()
        return [
            kind,
            line,
            draw(st.sampled_from(_RAW) | spliced([spelled], (b"\x00", b"\xff", b'"', b"9" * 4_400, b"\n"))),
        ]
    if kind == "end":
        return [kind, draw(st.sampled_from(SCALARS)), draw(st.integers(-1, 60))]
    return [kind, line, other]


def _paths(line: Any) -> list[list[Any]]:
    """Every place in a line, and the columns that it leaves out."""
    paths: list[list[Any]] = [["body"]]
    waiting: list[tuple[Any, list[Any]]] = [(line, [])]
    while waiting:
        value, path = waiting.pop()
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            paths.append([*path, key])
            waiting.append((value[key], [*path, key]))
    name = line.get("table") or line.get("log")
    shape = SCHEMA.table.get(name) or SCHEMA.log.get(name)
    return paths + [["columns", column] for column in (shape.column_names if shape else ())]


def build(case: dict[str, Any]) -> list[bytes]:
    """The lines of a case; the end counts them right, unless an edit says otherwise."""
    lines: list[Any] = copy.deepcopy(_base(case["base"]))
    end: Any = None
    for kind, *rest in case["edits"]:
        if kind == "end":
            end = {"threads": rest[0], "lines": rest[1]}
        elif lines:
            _apply(lines, kind, *rest)
    threads = sum(isinstance(line, dict) and line.get("table") == "thread_heads" for line in lines)
    lines.append({"end": end or {"threads": threads, "lines": len(lines) - 1}})
    return [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]


def _apply(lines: list[Any], kind: str, line: int, *rest: Any) -> None:
    line %= len(lines)
    if kind == "drop":
        del lines[line]
    elif kind == "copy":
        lines.insert(rest[0] % len(lines), copy.deepcopy(lines[line]))
    elif kind == "move":
        lines.insert(rest[0] % len(lines), lines.pop(line))
    elif kind == "raw":
        lines[line] = rest[0]
    else:
        _set(lines, kind, line, *rest)


def _set(lines: list[Any], kind: str, line: int, path: list[Any], value: Any = None) -> None:
    *way, last = path
    if kind == "take":
        value = copy.deepcopy(_at(lines[value % len(lines)], path))
    holder = _at(lines[line], way)
    if kind == "unset" and isinstance(holder, dict):
        holder.pop(last, None)
    elif isinstance(holder, dict) or (isinstance(holder, list) and isinstance(last, int) and last < len(holder)):
        holder[last] = value


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value


async def _store() -> Store:
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 1_000))
    store = Store(await open_memory(SCHEMA, clock=lambda: next(ticks)), "default")
    await store.threads.create(_WITNESS)
    await store.commit(_WITNESS, messages=[Message.user("seen", id="w1")])
    return store


def _check(case: Any) -> str:
    return asyncio.run(_import(build(case)))


async def _import(lines: list[bytes]) -> str:
    store = await _store()
    before = await digest(store.engine, "default")
    refused = None
    try:
        await check_lines(store, lambda: lines)
    except PerdureError as error:
        refused = error
    try:
        await import_lines(store, lambda: lines)
    except PerdureError as error:
        if await digest(store.engine, "default") != before:
            raise Broken("a refused file changed something", str(error)) from error
        if refused is None:
            raise Broken("a file passes its check and is refused later", str(error)) from error
        return refusal(error)
    if refused is not None:
        raise Broken("a file is imported that its check refuses", str(refused))
    await _inspect(store, lines)
    return "imported"


async def _inspect(store: Store, lines: list[bytes]) -> None:
    for finding in await verify(store):
        raise Broken("the audit finds fault with an import", str(finding))
    threads = [thread.id for thread in (await store.threads.list(limit=200)).items]
    for thread in threads:
        await _read(store, thread)
    again = [line async for line in export_lines(store, [name for name in threads if name != _WITNESS])]
    everything = [line async for line in export_lines(store)]
    again[-1:-1] = [line for line in everything if b'"table":"profiles"' in line]
    before, after = _normal(lines), _normal(again)
    if sorted(before) != sorted(after):
        changed = next(iter(set(before) ^ set(after)))
        raise Broken("an export of an import differs", changed)
    for thread in threads:
        await _commit(store, thread)
        await store.threads.delete(thread)
    for line in everything[1:-1]:
        if (row := json.loads(line)).get("table") == "profiles":
            await store.profiles.clear(row["key"][0])
    for table in SCHEMA.tables:
        rows = (await store._context.view(Scan(table.name)))[0]
        if table.name != "threads" and rows:
            raise Broken("an import cannot be removed", f"{table.name} {rows[0].key}")


def _normal(lines: list[bytes]) -> list[str]:
    """The rows and entries, spelled in one way; without columns that an import counts anew, and what expires soon."""
    kept = [json.loads(line) for line in lines[1:-1]]
    kept = [line for line in kept if (line["columns"].get("expires_at") or _SOON) >= _SOON]
    for line in kept:
        line["columns"] = {name: value for name, value in line["columns"].items() if value is not None}
    return [json.dumps(line, sort_keys=True) for line in kept]


async def _read(store: Store, thread: str) -> None:
    """Everything that a thread holds can be read and shown; any error here is one too many."""
    try:
        check_json_output(thread_document(await store.threads.get(thread)))
        await store.load(thread)
        for record in (await store.messages.list(thread, limit=200)).items:
            check_shown(record)
        for branch in await store.branches.list(thread):
            check_json_output(branch_document(branch))
        for label in await store.branches.labels(thread):
            check_json_output(label_document(label))
        for run in (await store.runs.list(thread_id=thread, limit=200)).items:
            check_json_output(run_document(await store.runs.get(run.id)))
        for doc in await store.state.list(thread):
            check_json_output(state_document(doc))
            await store.state.get(thread, doc.name, run_id=doc.run_id)
        await store.pending.list(thread)
        await store.messages.unfinished_calls(thread)
    except PerdureError as error:
        raise Broken("what was imported cannot be read", f"{type(error).__name__}: {error}") from error


async def _commit(store: Store, thread: str) -> None:
    """The thread goes on: a worker with the next fence can write to it."""
    try:
        fence = (await store.threads.get(thread)).fence
        await store.commit(thread, messages=[Message.user("more")], fence=(fence or 0) + 1, key="fuzz")
    except PerdureError as error:
        raise Broken("an imported thread takes no commit", f"{type(error).__name__}: {error}") from error


IMPORTS = Target("imports", "edited lines of an export", _cases, _check, short=60)
