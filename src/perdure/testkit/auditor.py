"""The auditor: does the stored data keep its invariants? `perdure doctor verify`, and the judge of every crash test.

It reads through kernel views alone, so it works on every engine, and in chunks, so it works on large stores; it may run
while others write. What it checks is listed in `auditor_findings.CHECKS`.
"""

from __future__ import annotations

import hashlib

from perdure.errors import CorruptError
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Get, Heads, Read, Row
from perdure.stores.store import Store
from perdure.testkit.auditor_findings import CHECKS, CHUNK, Audit, Finding, Progress
from perdure.testkit.auditor_tables import check_table
from perdure.testkit.auditor_threads import check_thread

__all__ = ["CHECKS", "Finding", "digest", "verify", "verify_engine", "verify_threads"]


async def verify(store: Store, *, scope: str | None = None, progress: Progress | None = None) -> list[Finding]:
    """Check everything of the store's scope, or of another one; an empty list means that all is well."""
    audit = _audit(store, scope)
    lineage: dict[str, str | None] = {}
    ids: set[str] = set()
    async for row in audit.rows("thread_heads"):
        lineage[str(row.key[0])] = row["parent"]
    async for row in audit.rows("threads"):
        ids.add(str(row.key[0]))
    every = sorted(ids | lineage.keys())
    for done, thread in enumerate(every):
        if progress is not None:
            progress(f"threads of {audit.scope}", done, len(every))
        await _guarded(audit, thread)
    tables = audit.kernel.schema.tables
    for done, table in enumerate(tables):
        if progress is not None:
            progress(f"tables of {audit.scope}", done, len(tables))
        await check_table(audit, table, set(lineage))
    await _check_cycles(audit, lineage)
    if progress is not None:
        progress(f"tables of {audit.scope}", len(tables), len(tables))
    return audit.findings


async def verify_threads(store: Store, thread_ids: list[str]) -> list[Finding]:
    """Check some threads only: what a test wrote since it last looked at everything."""
    audit = _audit(store, None)
    for thread in thread_ids:
        await _guarded(audit, thread)
    return audit.findings


async def verify_engine(engine: Engine, *, progress: Progress | None = None) -> list[Finding]:
    """The engine's own integrity check, then everything of every scope."""
    findings = [
        Finding("*", engine.capabilities.engine, "engine.check", CHECKS["engine.check"][0], problem)
        for problem in await engine.check()
    ]
    for scope in await engine.scopes():
        findings += await verify(_onlooker(engine, scope), progress=progress)
    return findings


def _audit(store: Store, scope: str | None) -> Audit:
    # A store of its own: guesses that the caller's store has made are no evidence.
    return Audit(_onlooker(store.engine, store.scope if scope is None else scope))


def _onlooker(engine: Engine, scope: str) -> Store:
    """A store that only looks: it does not even finish what a crash interrupted."""
    return Store(engine, scope, owner=False)


async def _guarded(audit: Audit, thread: str) -> None:
    try:
        await check_thread(audit, thread)
    except CorruptError as error:
        audit.report("engine.check", f"thread {thread!r}", error.message)


async def _check_cycles(audit: Audit, lineage: dict[str, str | None]) -> None:
    settled: set[str] = set()
    for thread in lineage:
        walked: list[str] = []
        current: str | None = thread
        while current is not None and current in lineage and current not in settled and current not in walked:
            walked.append(current)
            current = lineage[current]
        if current in walked:
            await _confirm_cycle(audit, walked[walked.index(current) :])
        settled.update(walked)


async def _confirm_cycle(audit: Audit, members: list[str]) -> None:
    rows: list[Row | None] = (await audit.view(Get("thread_heads", [(thread,) for thread in members])))[0]
    parents = [None if row is None else row["parent"] for row in rows]
    if parents == members[1:] + members[:1]:
        audit.report("thread.parent", f"thread {members[0]!r}", f"it is its own ancestor: {' → '.join(members)}")


async def digest(engine: Engine, scope: str) -> str:
    """A fingerprint of every byte of a scope: equal before and after work in another scope."""
    audit = Audit(_onlooker(engine, scope))
    total = hashlib.sha256()
    threads: list[str] = []
    for table in audit.kernel.schema.tables:
        async for row in audit.rows(table.name):
            total.update(repr((table.name, row.key, sorted(row.columns.items()), row.rev, _text(row.body))).encode())
            if table.name == "threads":
                threads.append(str(row.key[0]))
    for thread in threads:
        for log in audit.kernel.schema.logs:
            reached, length = 0, (await audit.view(Heads(log.name, [thread])))[0][0]
            while reached < length:
                entries = (await audit.view(Read(log.name, thread, after=reached, limit=CHUNK)))[0]
                for entry in entries:
                    total.update(repr((log.name, thread, *entry[:-1], _text(entry[-1]))).encode())
                reached = entries[-1][0]
    return total.hexdigest()


def _text(body: bytes | str | None) -> str | None:
    return body.decode() if isinstance(body, bytes) else body
