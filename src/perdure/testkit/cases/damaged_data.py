"""Cases: damaged data. The auditor notices it, no store serves it, and no import lets it in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from perdure.audit import verify
from perdure.errors import CorruptError, InvalidError
from perdure.kernel.ops import Patch, Row, Scan
from perdure.kernel.schema import Table
from perdure.model.message import Message
from perdure.rules.columns import COLUMNS
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines
from perdure.testkit.helpers import everything
from perdure.testkit.kit import Kit, case, equal, expect, raises


async def _rows(store: Store) -> AsyncIterator[tuple[Table, Row]]:
    """The first row of every table."""
    for table in SCHEMA.tables:
        rows: list[Row] = (await store.engine.view(store.scope, [Scan(table.name, limit=1)]))[0]
        expect(rows, f"there is no row of {table.name} to damage")
        yield table, rows[0]


async def _patch(store: Store, table: str, row: Row, **columns: Any) -> None:
    await store.engine.transact(store.scope, [Patch(table, row.key, columns)])


@case("lifecycle", "damage-noticed", covers=("store.commit",))
async def case_damage_noticed(kit: Kit) -> None:
    """NULL in any column that is always there is reported, and a value below its range in any that has one."""
    await everything(kit.store)
    await kit.store.profiles.put("user:ann", "prefs", 1, ttl_ms=1_000)
    equal(await verify(kit.store), [], "the audit of sound data")
    async for table, row in _rows(kit.store):
        for name, rule in COLUMNS[table.name].items():
            if name in table.key_names or not rule.always:
                continue
            for value in (None, -1) if table.types[name] == "int" else (None, "\x1b"):
                await _patch(kit.store, table.name, row, **{name: value})
                checks = {finding.check for finding in await verify(kit.store)}
                expect("column" in checks, f"{table.name}.{name} is {value!r}, the audit found {checks or 'nothing'}")
            await _patch(kit.store, table.name, row, **{name: row[name]})
    equal(await verify(kit.store), [], "the audit after everything was mended")


@case("lifecycle", "commit-without-branch", covers=("store.commit",))
async def case_commit_without_branch(kit: Kit) -> None:
    """A commit to a thread whose current branch is missing or deleted reports the damage, and writes nothing."""
    await kit.store.commit("t", messages=[Message.user("hi")])
    row: Row = (await kit.store.engine.view(kit.store.scope, [Scan("thread_heads", limit=1)]))[0][0]
    await _patch(kit.store, "thread_heads", row, branch=99)
    await raises(CorruptError, kit.store.commit("t", messages=[Message.user("again")]))
    await _patch(kit.store, "thread_heads", row, branch=0)
    branch: Row = (await kit.store.engine.view(kit.store.scope, [Scan("branches", limit=1)]))[0][0]
    await _patch(kit.store, "branches", branch, deleted_at=1)
    await raises(CorruptError, kit.store.commit("t", messages=[Message.user("again")]))
    await _patch(kit.store, "branches", branch, deleted_at=None)
    equal((await kit.store.threads.get("t")).version, 1, "the version after two refusals")


@case("lifecycle", "sound-after-everything", covers=("store.commit", "pending.freeze"))
async def case_sound_after_everything(kit: Kit) -> None:
    """What the stores write is sound, and its export can be imported: ids brought or minted, queues used or not."""
    await everything(kit.store)
    await kit.store.profiles.put("user:ann", "prefs", {"tone": "short"}, ttl_ms=1_000)
    await kit.store.profiles.put("app", "motd", None)
    for thread in ("brought", "t"):
        for name in ("m1", "m2"):
            await kit.store.commit(thread, messages=[Message.user(name, id=f"{thread}-{name}")])
    await kit.store.pending.append("brought", [Message.user("later", id="p1")])
    await kit.store.pending.freeze("brought")
    await kit.store.threads.create("gone")
    await kit.store.threads.delete("gone")
    equal(await verify(kit.store), [], "the audit")
    lines = [line async for line in export_lines(kit.store)]
    copy = kit.store.scoped("copy")
    await import_lines(copy, lambda: lines)
    equal(await verify(copy), [], "the audit of what was imported")
    equal([line async for line in export_lines(copy)][1:], lines[1:], "the export of what was imported")


@case("lifecycle", "damage-not-served", covers=("store.commit", "threads.get", "runs.get", "pending.edit"))
async def case_damage_not_served(kit: Kit) -> None:
    """A row that lacks a column is refused with its name, by reads and by writes, and never ends in a stray error."""
    await everything(kit.store)
    await kit.store.profiles.put("app", "motd", 1)
    (item,) = (await kit.store.pending.list("t")).items
    message = Message.user("x")
    uses: dict[tuple[str, str], Callable[[Store], Any]] = {
        ("thread_heads", "updated_at"): lambda store: store.threads.get("t"),
        ("thread_heads", "branches"): lambda store: store.branches.fork("t", at=None),
        ("branches", "fork_seq"): lambda store: store.messages.history("t"),
        ("runs", "agent_id"): lambda store: store.runs.get("r"),
        ("state", "schema"): lambda store: store.state.get("t", "doc"),
        ("profiles", "schema"): lambda store: store.profiles.get("app", "motd"),
        ("profiles", "created_at"): lambda store: store.profiles.put("app", "motd", 2),
        ("labels", "seq"): lambda store: store.branches.labels("t"),
        ("keys", "at"): lambda store: store.commit("t", messages=[message], key="k"),
        ("queues", "revision"): lambda store: store.pending.append("t", [message]),
        ("pending", "revision"): lambda store: store.pending.edit("t", item.id, message),
    }
    async for table, row in _rows(kit.store):
        for name in [column for owner, column in uses if owner == table.name]:
            await _patch(kit.store, table.name, row, **{name: None})
            # A client without memories: what it saw before would let it answer.
            error = await raises(CorruptError, uses[table.name, name](await kit.second()), f"{table.name}.{name}")
            expect(f"{table.name}.{name} is missing" in error.message, f"the refusal does not say what: {error}")
            await _patch(kit.store, table.name, row, **{name: row[name]})


@case("lifecycle", "import-refuses", covers=("store.scoped",))
async def case_import_refuses(kit: Kit) -> None:
    """An import refuses, with the line, what an audit would report; and what it accepts, an audit accepts."""
    await everything(kit.store)
    lines = [line async for line in export_lines(kit.store)]
    lies: list[tuple[str, dict[str, Any], str]] = [
        ("runs", {"steps": -1}, "runs.steps must be an integer of at least 0"),
        ("runs", {"status": "done"}, "has an outcome: False"),
        ("runs", {"thread": None}, "runs.thread is missing"),
        ("runs", {"output_count": None}, "runs.output_count is missing"),
        ("threads", {"resource": "a\x1bb"}, "threads.resource must not contain control characters"),
        ("keys", {"at": -1}, "keys.at must be an integer of at least 0"),
        ("threads", {"resource": " u"}, "threads.resource must not begin or end with a space"),
        ("keys", {"count": 1_001}, "keys.count must be at most 1,000"),
        ("runs", {"branch": 10_000}, "runs.branch must be at most 9,999"),
        ("thread_heads", {"fence": 2**52}, "thread_heads.fence is 4503599627370496, the limit of an import"),
        ("state", {"at": 2**52}, "state.at is 4503599627370496, a time to come"),
    ]
    there = kit.store.scoped("copy")
    for table, columns, words in lies:
        error = await raises(InvalidError, _import(there, lines, table, columns), f"{table} with {columns}")
        expect(error.message.startswith("line ") and words in error.message, f"the refusal says {error}")
    error = await raises(InvalidError, import_lines(there, lambda: _twice(lines)), "a run in two threads")
    expect("is in the file twice" in error.message, f"the refusal says {error}")
    changed = iter((lines, [line.replace(b'"created_at":', b'"created_at": ') for line in lines]))
    error = await raises(InvalidError, import_lines(there, lambda: next(changed)), "a file that changes")
    expect("the file changed during the import" in error.message, f"the refusal says {error}")
    equal((await there.threads.list()).items, [], "threads after refused imports")
    await import_lines(there, lambda: lines)
    equal(await verify(there), [], "the audit of what was imported")


def _twice(lines: list[bytes]) -> list[bytes]:
    """The file with a second copy of its threads under other names: the runs of both have the same ids."""
    copies = []
    for text in lines[1:-1]:
        line = json.loads(text)
        if "log" in line:
            line["partition"] += "-2"
        elif line["table"] == "runs":
            line["columns"]["thread"] += "-2"
        else:
            line["key"][0] += "-2"
        for name in line["columns"].keys() & {"parent", "waiting"}:
            if line.get("table") != "branches":
                line["columns"][name] += "-2"
        copies.append(json.dumps(line).encode())
    end = json.loads(lines[-1])["end"]
    doubled = {"end": {name: 2 * count for name, count in end.items()}}
    return [*lines[:-1], *copies, json.dumps(doubled).encode()]


async def _import(store: Store, lines: list[bytes], table: str, columns: dict[str, Any]) -> None:
    changed = []
    for text in lines:
        line = json.loads(text)
        if line.get("table") == table:
            line["columns"].update(columns)
        changed.append(json.dumps(line).encode())
    await import_lines(store, lambda: changed)
