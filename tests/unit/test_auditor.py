"""Every check of the auditor is seen to bite: damage of one kind, and exactly the finding it deserves.

Most damage is done through kernel operations on memory; damage to the log, which the kernel cannot do, is done in raw
SQL on a closed file. A check without a damage is a failure, so the list cannot fall behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import perdure
from perdure import Message, ToolUse
from perdure.audit import CHECKS, Finding, digest, verify, verify_engine, verify_threads
from perdure.engines.memory import open_memory
from perdure.kernel.ops import NOW, Append, Delete, Drop, Get, Inc, Op, Patch, Put, Row
from perdure.rules import views
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store

Damage = Callable[[Store], Awaitable[list[Op]]]
DAMAGES: dict[str, tuple[set[str], Damage]] = {}
SQL_DAMAGES: dict[str, tuple[set[str], str]] = {}
SCOPE = "default"


async def sound(store: Store) -> None:
    """Threads with everything that can be audited: a tree, runs in every status, state, keys, labels, a queue."""
    await store.threads.create("parent", title="p")
    await store.threads.create("t", parent_thread_id="parent", resource_id="r", custom={"a": 1})
    run = await store.runs.start("t", "agent", run_id="run", messages=[Message.user("hi", id="m1")])
    receipt = await store.commit(
        "t",
        messages=[Message.assistant([ToolUse("c1", "look")], id="m2"), Message.tool("c1", "seen", id="m3")],
        run=run.step(),
        run_state={"memo": 1},
        state={"plan": {"a": [1]}},
        key="k1",
    )
    await store.branches.fork("t", at="m1", name="side", switch=True)
    await store.commit("t", messages=[Message.user("other way", id="m4")], key="k2")
    await store.branches.fork("t", at="m4", name="twig")
    await store.branches.fork("t", at=None, name="gone")
    await store.branches.delete("t", "gone")
    await store.branches.label("t", "m2", "here")
    await store.pending.append("t", [Message.user("one", id="p1"), Message.user("two", id="p2")])
    if receipt.run is None:
        raise AssertionError("the run was lost")
    waiting = await store.runs.start("t", "agent", run_id="waits")
    await store.commit("t", run=waiting.wait())
    done = await store.runs.create("t", "agent", run_id="done")
    await store.commit("t", run=done.finish("ok"))
    await store.commit("t", run=receipt.run.step())
    await store.runs.create("t", "agent", run_id="created")
    await store.threads.create("dead")
    await store.commit("dead", messages=[Message.user("x")])
    await store.threads.delete("dead")
    await store.profiles.put("user:ann", "prefs", {"tone": "short"}, ttl_ms=1_000)
    await store.profiles.put("app", "motd", 1)
    await store.scoped("other").commit("t", messages=[Message.user("another tenant")])


async def row(store: Store, table: str, *key: str | int) -> Row:
    found: Row | None = (await store.engine.view(SCOPE, [Get(table, [key])]))[0][0]
    if found is None:
        raise AssertionError(f"{table} {key} is not there")
    return found


def damage(name: str, *checks: str) -> Callable[[Damage], Damage]:
    def register(function: Damage) -> Damage:
        DAMAGES[name] = (set(checks), function)
        return function

    return register


def patch(name: str, checks: str, table: str, key: tuple[str | int, ...], /, **columns: object) -> None:
    """Register the damage of some columns, or of the body, of one row."""

    async def ops(store: Store) -> list[Op]:
        body = columns.pop("body", None)
        return [Patch(table, key, dict(columns), body=body if isinstance(body, bytes) else None)]

    DAMAGES[name] = (set(checks.split()), ops)


patch("a thread claims one message more", "log.version", "thread_heads", ("t",), version=Inc(1))
patch("a thread forgets a child", "thread.children", "thread_heads", ("parent",), children=0)
patch("the copies of the resource differ", "thread.copies", "thread_heads", ("t",), resource="other")
patch("the parent of the cold row is gone", "thread.copies", "threads", ("t",), parent=None)
patch("metadata is not an object", "thread.body", "threads", ("t",), body=b"[]")
patch("a living thread is marked as deleted", "thread.rows", "threads", ("t",), deleted_at=NOW)
patch("a tombstone keeps a title", "thread.tombstone", "threads", ("dead",), title="kept")
patch("a thread counts too many branches", "branch.number", "thread_heads", ("t",), branches=9)
patch("the current branch was never made", "branch.current", "thread_heads", ("t",), branch=7)
patch("the current branch is deleted", "branch.current", "thread_heads", ("t",), branch=3)
patch("a branch hangs under a younger one", "branch.parent", "branches", ("t", 1), parent=2)
patch("two branches hang under each other", "branch.parent log.branch", "branches", ("t", 1), parent=2, fork_seq=4)
patch("a branch hangs under nothing known", "branch.parent", "branches", ("t", 2), parent=8)
patch("a fork point has another id", "branch.fork", "branches", ("t", 1), fork="m3")
patch("a fork point is on another branch", "branch.fork", "branches", ("t", 2), parent=0)
patch("a fork point is beyond the log", "branch.fork branch.head", "branches", ("t", 2), fork_seq=99)
patch("a fork point stands after the branch's own records", "branch.fork log.branch", "branches", ("t", 1), fork_seq=5)
patch("a root has a fork point", "branch.fork", "branches", ("t", 0), fork="m1")
patch("a head is an older message", "branch.head", "branches", ("t", 0), head="m2", head_seq=2)
patch("a head has the wrong seq", "branch.head", "branches", ("t", 1), head_seq=3)
patch("an empty branch has a head of its own", "branch.head", "branches", ("t", 2), head="m3", head_seq=3)
patch("a branch counts one message more", "branch.length", "branches", ("t", 1), length=Inc(1))
patch("a living branch has no name", "branch.name", "branches", ("t", 1), name=None)
patch("a deleted branch has a name", "branch.name", "branches", ("t", 3), name="zombie")
patch("a label points elsewhere", "label", "labels", ("t", "m2"), seq=3)
patch("active names a run that waits", "pointer", "thread_heads", ("t",), active_run="waits")
patch("open names a run that is done", "pointer", "thread_heads", ("t",), open_run="done")
patch("latest names a run that never was", "pointer", "thread_heads", ("t",), latest_run="nobody")
patch("a thread with runs has no latest one", "pointer", "thread_heads", ("t",), latest_run=None)
patch("a status that nobody knows", "column", "runs", ("done",), status="lost")
patch("a finished run is running again", "run.body run.times", "runs", ("done",), status="running")
patch("a run was resumed, never started", "run.body", "runs", ("created",), body=b'{"resumed_from":{"reason":"x"}}')
patch("a waiting run waits for nothing", "run.body", "runs", ("waits",), body=b"{}")
patch("a run's body is torn", "run.body", "runs", ("run",), body=b'{"waiting": ')
patch("a running run never started", "run.times", "runs", ("run",), started_at=None)
patch("a running run has finished", "run.times", "runs", ("run",), finished_at=NOW)
patch("a counter is negative", "column", "runs", ("run",), input_tokens=-1)
patch("a counter is missing", "column", "runs", ("run",), steps=None)
patch("a run is pinned to nothing", "run.branch", "runs", ("run",), branch=9)
patch("an input lies beyond the log", "run.input", "runs", ("run",), input_last=40)
patch("an input has one end", "run.input", "runs", ("run",), input_first=None)
patch("an output counts too many", "run.output", "runs", ("run",), output_count=3)
patch("an output starts at a message of somebody else", "run.output", "runs", ("run",), output_first=1)
patch("an output ends in the wrong place", "run.output", "runs", ("run",), output_last=4)
patch("an output is there but not counted", "run.output", "runs", ("run",), output_count=0)
patch("a key names another version", "key", "keys", ("t", "k1"), version=4)
patch("a key names another run", "key", "keys", ("t", "k1"), run="nobody")
patch("a key was not written with its message", "key", "keys", ("t", "k2"), at=NOW)
patch("a key names other ids", "key", "keys", ("t", "k1"), body=b'["m1","m2"]')
patch("a key's ids are torn", "key", "keys", ("t", "k1"), body=b'["m1')
patch("a document is torn", "state.body", "state", ("t", "", "plan"), body=b'{"a":')
patch("a document has schema 0", "column", "state", ("t", "", "plan"), schema=0)
patch("a queue counts one more", "queue", "queues", ("t",), count=3)
patch("a queue does not say that it waits", "queue", "queues", ("t",), waiting=None)
patch("two pending messages share a place", "pending.place", "pending", ("t", "p2"), position=1)
patch("a pending message is torn", "pending.body", "pending", ("t", "p1"), body=b"{")
patch("a pending message has another id inside", "pending.body", "pending", ("t", "p1"),
      body=b'{"message":{"role":"user","content":[],"id":"p9"}}')  # fmt: skip


@damage("a cold row is missing", "thread.rows")
async def _(store: Store) -> list[Op]:
    return [Delete("threads", ("t",))]


@damage("a hot row is missing", "thread.rows", "thread.children", "orphan")
async def _(store: Store) -> list[Op]:
    return [Delete("thread_heads", ("t",))]


@damage("a parent is missing", "thread.parent")
async def _(store: Store) -> list[Op]:
    return [Delete("thread_heads", ("parent",)), Delete("threads", ("parent",)), Delete("branches", ("parent", 0))]


patch("a profile is torn", "profile", "profiles", ("user:ann", "prefs"), body=b'{"a')
patch("a profile expired before it was written", "profile", "profiles", ("user:ann", "prefs"), expires_at=1)
patch("a profile lives longer than any may", "profile", "profiles", ("app", "motd"), expires_at=2**52)
patch("a profile has no schema", "column", "profiles", ("app", "motd"), schema=None)


@damage("two threads are each other's parent", "thread.parent")
async def _(store: Store) -> list[Op]:
    return [
        Patch("threads", ("parent",), {"parent": "t"}),
        Patch("thread_heads", ("parent",), {"parent": "t", "child": 1}),
        Patch("thread_heads", ("t",), {"children": 1}),
    ]


@damage("an erased thread still has messages", "thread.tombstone")
async def _(store: Store) -> list[Op]:
    return [Append("messages", "dead", [("m", "user", 0, "all", None, None, NOW, b'{"content":[]}')])]


@damage("a row of an erased thread is left", "orphan")
async def _(store: Store) -> list[Op]:
    return [Put("labels", ("dead", "m1"), {"seq": 1, "at": NOW, "label": "x"})]


@damage("a row of a thread that never was", "orphan")
async def _(store: Store) -> list[Op]:
    return [Put("state", ("never", "", "plan"), {"schema": 1, "at": NOW}, b"1")]


@damage("a branch row is missing", "branch.number", "log.branch", "branch.current", "branch.parent", "run.branch")
async def _(store: Store) -> list[Op]:
    return [Delete("branches", ("t", 1))]


@damage("a label is on a message that never was", "label")
async def _(store: Store) -> list[Op]:
    return [Put("labels", ("t", "nobody"), {"seq": 50, "at": NOW, "label": "x"})]


@damage("a state document belongs to a run that never was", "state.owner")
async def _(store: Store) -> list[Op]:
    return [Put("state", ("t", "nobody", "memo"), {"schema": 1, "at": NOW}, b"1")]


@damage("a queue row is missing", "queue")
async def _(store: Store) -> list[Op]:
    return [Delete("queues", ("t",))]


@damage("a pending message was consumed already", "pending.body", "pending.place", "queue")
async def _(store: Store) -> list[Op]:
    body = (await row(store, "pending", "t", "p1")).body
    columns = {"position": 9, "revision": 1, "created_at": NOW, "updated_at": NOW}
    text = body if isinstance(body, bytes) else str(body).encode()
    return [Put("pending", ("t", "m1"), columns, text.replace(b"p1", b"m1"))]


@damage("the whole log is gone", "log.version", "branch.length", "branch.head", "branch.fork", "label", "key",
        "run.input", "run.output")  # fmt: skip
async def _(store: Store) -> list[Op]:
    return [Drop("messages", "t")]


@damage("a message has a shape that no commit allows", "log.body", "log.version", "branch.head", "branch.length")
async def _(store: Store) -> list[Op]:
    return [Append("messages", "t", [("m9", "tool", 0, "all", None, None, NOW, b'{"content":[]}')])]


def sql(name: str, checks: str, statements: str) -> None:
    """Register the damage that some SQL does."""
    SQL_DAMAGES[name] = (set(checks.split()), statements)


sql("a message is missing", "log.gap branch.length key run.output label", "DELETE FROM messages WHERE id = 'm2'")
sql("a message moved", "log.gap branch.head branch.fork key log.version", "UPDATE messages SET seq = 7 WHERE id = 'm4'")
sql("a message is torn", "log.body", "UPDATE messages SET body = substr(body, 1, 9) WHERE id = 'm2'")
sql(
    "a message moved to another branch",
    "branch.length branch.head branch.fork",
    "UPDATE messages SET branch = 0 WHERE id = 'm4'",
)
sql(
    "a message stands on an unknown branch",
    "log.branch branch.length branch.head branch.fork",
    "UPDATE messages SET branch = 9 WHERE id = 'm4'",
)


def no_longer_unique(name: str, rest: str) -> str:
    """Statements that make a unique index a plain one, which still says that it is unique: the file opens."""
    forged = f'CREATE UNIQUE INDEX "{name}" ON {rest}'
    return (
        f'DROP INDEX {name}; CREATE INDEX "{name}" ON {rest}; PRAGMA writable_schema=ON;'
        f"UPDATE sqlite_master SET sql = '{forged}' WHERE name = '{name}';"
    )


sql(
    "an id is there twice",
    "log.id key branch.head",
    no_longer_unique("messages__id", '"messages" ("scope", "id", "thread")')
    + "UPDATE messages SET id = 'm2' WHERE id = 'm3'",
)
sql(
    "two branches have one name",
    "branch.name",
    no_longer_unique("branches__unique_thread_name", '"branches" ("scope", "thread", "name") WHERE "name" IS NOT NULL')
    + "UPDATE branches SET name = 'side' WHERE thread = 't' AND branch = 0",
)


def checks(findings: list[Finding]) -> set[str]:
    return {finding.check for finding in findings}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_to_rows_is_found_and_nothing_else(name: str) -> None:
    expected, ops = DAMAGES[name]

    async def scenario() -> None:
        store = Store(await open_memory(SCHEMA), SCOPE)
        await sound(store)
        if found := await verify_engine(store.engine):
            raise AssertionError(f"sound data was reported: {found}")
        await store.engine.transact(SCOPE, await ops(store))
        findings = await verify(store)
        if checks(findings) != expected:
            raise AssertionError(f"expected {expected}, found {[str(f) for f in findings]}")

    asyncio.run(scenario())


@pytest.mark.parametrize("name", SQL_DAMAGES)
def test_damage_to_the_file_is_found_and_nothing_else(name: str, tmp_path: Path) -> None:
    expected, statements = SQL_DAMAGES[name]

    async def scenario() -> None:
        path = tmp_path / "store.db"
        async with perdure.open(str(path)) as store:
            await sound(store)
            if found := await verify_engine(store.engine):
                raise AssertionError(f"sound data was reported: {found}")
        with contextlib.closing(sqlite3.connect(path)) as raw:
            raw.executescript(statements)
        async with perdure.open(str(path)) as store:
            findings = await verify(store)
        if checks(findings) != expected:
            raise AssertionError(f"expected {expected}, found {[str(f) for f in findings]}")

    asyncio.run(scenario())


def test_an_index_that_lost_a_row_is_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "store.db"
        async with perdure.open(str(path)) as store:
            await sound(store)
        with contextlib.closing(sqlite3.connect(path)) as raw:
            _forge_index(raw, "runs__created", '"created_at" IS NOT NULL', "\"run\" <> 'done' AND created_at > 0")
        async with perdure.open(str(path)) as store:
            findings = await verify(store)
            engine = await verify_engine(store.engine)
        if checks(findings) != {"index"} or "('done',)" not in findings[0].record:
            raise AssertionError([str(f) for f in findings])
        if "engine.check" not in checks(engine):
            raise AssertionError("the engine's own check saw nothing")

    asyncio.run(scenario())


def _forge_index(raw: sqlite3.Connection, name: str, honest: str, forged: str) -> None:
    """Build an index that leaves rows out, then declare it as the whole one: what a lost page leaves behind."""
    raw.execute("PRAGMA writable_schema=ON")
    (sql,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    if honest not in sql:
        raise AssertionError(f"{name} is declared otherwise: {sql}")
    raw.execute(f"DROP INDEX {name}")
    raw.execute(sql.replace(honest, forged))
    raw.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, name))
    raw.commit()


def test_an_index_out_of_order_is_found() -> None:
    async def scenario() -> None:
        engine = await open_memory(SCHEMA)
        store = Store(engine, SCOPE)
        await sound(store)
        engine._scopes[SCOPE].tables["runs"].order("created").entries.reverse()
        findings = await verify(store)
        if checks(findings) != {"index"}:
            raise AssertionError([str(f) for f in findings])

    asyncio.run(scenario())


def test_a_history_with_an_unpaired_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = Store(await open_memory(SCHEMA), SCOPE)
        await sound(store)
        await store.commit("t", messages=[Message.tool("never-asked", "?")])
        if found := await verify(store):
            raise AssertionError(f"the history strips it, and still: {found}")
        monkeypatch.setattr(views, "history", list)
        monkeypatch.setattr(views, "newest_of_history", lambda shown, limit: shown[-limit:])
        if checks(found := await verify(store)) != {"history"}:
            raise AssertionError([str(f) for f in found])

    asyncio.run(scenario())


def test_every_check_has_a_damage() -> None:
    seen = set().union(*(expected for expected, _ in [*DAMAGES.values(), *SQL_DAMAGES.values()]))
    missing = set(CHECKS) - seen - {"index", "engine.check", "history"}
    if missing or seen - set(CHECKS):
        raise AssertionError(f"no damage shows {missing}; unknown: {seen - set(CHECKS)}")


def test_other_scopes_are_left_out_of_sight_and_untouched() -> None:
    async def scenario() -> None:
        store = Store(await open_memory(SCHEMA), SCOPE)
        await sound(store)
        before = await digest(store.engine, "other")
        await store.engine.transact(SCOPE, [Patch("thread_heads", ("t",), {"version": 99})])
        if await verify(store, scope="other") or checks(await verify(store)) != {"log.version"}:
            raise AssertionError("an audit of one scope must see that scope only")
        await store.threads.delete("t")
        if await digest(store.engine, "other") != before or before == await digest(store.engine, SCOPE):
            raise AssertionError("the digest of a scope follows its bytes and nothing else")
        await store.scoped("other").commit("t", messages=[Message.user("more")])
        if await digest(store.engine, "other") == before:
            raise AssertionError("the digest did not notice a commit")

    asyncio.run(scenario())


def test_a_thread_being_erased_is_no_finding() -> None:
    async def scenario() -> None:
        store = Store(await open_memory(SCHEMA), SCOPE)
        await sound(store)
        await store.engine.transact(
            SCOPE,
            [
                Delete("thread_heads", ("t",)),
                Patch(
                    "threads", ("t",), {**dict.fromkeys(("parent", "resource", "title")), "deleted_at": NOW}, body=b"{}"
                ),
                Patch("thread_heads", ("parent",), {"children": 0}),
            ],
        )
        if found := await verify(store):
            raise AssertionError(found)

    asyncio.run(scenario())


def test_it_reports_progress_and_audits_single_threads() -> None:
    async def scenario() -> None:
        store = Store(await open_memory(SCHEMA), SCOPE)
        await sound(store)
        seen: list[tuple[str, int, int]] = []
        await verify(store, progress=lambda what, done, total: seen.append((what, done, total)))
        if seen[-1][1] != seen[-1][2] or not any("threads" in what for what, _, _ in seen):
            raise AssertionError(seen)
        await store.engine.transact(SCOPE, [Patch("thread_heads", ("t",), {"version": 99})])
        if await verify_threads(store, ["parent"]) or checks(await verify_threads(store, ["t"])) != {"log.version"}:
            raise AssertionError("only the threads named are checked")

    asyncio.run(scenario())


def test_a_long_log_is_read_in_chunks() -> None:
    async def scenario() -> None:
        store = Store(await open_memory(SCHEMA), SCOPE)
        for start in range(0, 1_000, 250):
            await store.commit("t", messages=[Message.user(str(start + i)) for i in range(250)])
        if found := await verify(store):
            raise AssertionError(found)
        entries = store.engine._scopes[SCOPE].logs["messages"].partitions["t"].entries  # type: ignore[attr-defined]
        entries[700] = (702, *entries[700][1:])
        if checks(found := await verify(store)) != {"log.gap"}:
            raise AssertionError([str(f) for f in found])

    asyncio.run(scenario())


def test_a_store_in_use_is_judged_fairly(tmp_path: Path) -> None:
    """Threads come, grow, fork, queue and go while the audit is under way; none of that is a finding."""

    async def write(store: Store) -> None:
        for number in range(60):
            thread = f"t{number % 7}"
            receipt = await store.commit(thread, messages=[Message.user("a"), Message.user("b")], key=f"k{number}")
            await store.branches.fork(thread, at=receipt.message_ids[0], switch=True)
            run = await store.runs.start(thread, "agent", messages=[Message.user("c")])
            await store.pending.append(thread, [Message.user("later")])
            await store.commit(thread, messages=[Message.assistant("d")], run=run.finish("done"))
            if number % 3 == 0:
                await store.threads.delete(thread)
                await store.threads.create(thread, resource_id="r")

    async def scenario() -> None:
        async with perdure.open(str(tmp_path / "busy.db"), durability="process") as store:
            writing = asyncio.create_task(write(store))
            audits = 0
            while not writing.done():
                findings = await verify(store)
                audits += 1
                if findings:
                    raise AssertionError([str(f) for f in findings])
            await writing
            if audits < 3 or await verify_engine(store.engine):
                raise AssertionError(f"{audits} audits")

    asyncio.run(scenario())


def test_it_changes_nothing() -> None:
    """An interrupted deletion is left as it is, to be finished by somebody who writes."""

    async def scenario() -> None:
        store = Store(await open_memory(SCHEMA), SCOPE)
        await sound(store)
        await store.engine.transact(SCOPE, [Delete("thread_heads", ("parent",)), Delete("thread_heads", ("t",))])
        await store.engine.transact(SCOPE, [Patch("threads", ("t",), {"deleted_at": NOW, "parent": None})])
        before = await digest(store.engine, SCOPE)
        await verify_engine(store.engine)
        if await digest(store.engine, SCOPE) != before:
            raise AssertionError("the audit wrote something")

    asyncio.run(scenario())
