"""Audits of a whole store, of some threads, or of every scope of an engine, and a digest of a scope.

These are the public functions of the auditor. What they check is listed in `findings.CHECKS`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable

from perdure.audit.findings import CHECKS, CHUNK, UNREADABLE, Audit, Finding, Progress, problem_of
from perdure.audit.tables import check_log, check_table, partitions_of
from perdure.audit.threads import check_thread
from perdure.errors import InvalidError, UnavailableError, shortened
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Get, Heads, Read, Row
from perdure.kernel.schema import Table
from perdure.rules import checks
from perdure.rules.lineage import upward_lines
from perdure.stores.soundness import row_problems
from perdure.stores.store import Store


async def verify(store: Store, *, scope: str | None = None, progress: Progress | None = None) -> list[Finding]:
    """Check everything of the store's scope, or of another one; an empty list means that no check failed."""
    audit = _audit(store, scope)
    lineage, every = await _threads(audit)
    for done, thread in enumerate(every):
        if progress is not None:
            progress(f"threads of {audit.scope}", done, len(every))
        await _guarded(audit, f"thread {thread!r}", check_thread(audit, thread))
    alive, schema = set(lineage), audit.kernel.schema
    for done, table in enumerate(schema.tables):
        if progress is not None:
            progress(f"tables of {audit.scope}", done, len(schema.tables))
        await _guarded(audit, f"table {table.name}", check_table(audit, table, alive))
    for log in schema.logs:
        await _guarded(audit, f"log {log.name}", check_log(audit, log, alive))
    await _guarded(audit, "the tree of threads", _check_cycles(audit, lineage))
    if progress is not None:
        progress(f"tables of {audit.scope}", len(schema.tables), len(schema.tables))
    return audit.findings


async def _threads(audit: Audit) -> tuple[dict[str, str | None], list[str]]:
    """The parents of the living threads, and the ids of all threads, deleted ones included."""
    lineage: dict[str, str | None] = {}
    ids: set[str] = set()

    async def list_rows(table: Table) -> None:
        async for row in audit.rows(table.name):
            thread = row.key[0]
            if not isinstance(thread, str):
                audit.collect(row_problems(table, row))
                continue
            ids.add(thread)
            if table.name == "thread_heads":
                lineage[thread] = row["parent"]

    for name in ("thread_heads", "threads"):
        await _guarded(audit, f"table {name}", list_rows(audit.kernel.schema.table[name]))
    return lineage, sorted(ids)


async def verify_threads(store: Store, thread_ids: list[str]) -> list[Finding]:
    """Check some threads only: what a test wrote since it last looked at everything."""
    audit = _audit(store, None)
    for thread in thread_ids:
        await _guarded(audit, f"thread {thread!r}", check_thread(audit, thread))
    return audit.findings


async def verify_engine(engine: Engine, *, progress: Progress | None = None) -> list[Finding]:
    """The engine's own integrity check, then everything of every scope."""
    findings = await engine_findings(engine)
    try:
        scopes = await engine.scopes()
    except UnavailableError:
        raise
    except Exception as error:  # noqa: BLE001 - nothing that is stored may end an audit
        return [*findings, _of_engine(engine, UNREADABLE, f"its scopes cannot be read: {problem_of(error)}")]
    for scope in scopes:
        try:
            checks.check_scope(scope)
        except InvalidError as error:
            findings.append(_of_engine(engine, "column", f"{error.message}: {scope!r:.80}"))
            continue
        findings += await verify(_onlooker(engine, scope), progress=progress)
    return findings


async def engine_findings(engine: Engine) -> list[Finding]:
    """What the engine's own integrity check finds, also if that cannot come to its end."""
    try:
        problems = await engine.check()
    except UnavailableError:
        raise
    except Exception as error:  # noqa: BLE001 - nothing that is stored may end an audit
        problems = [f"its integrity check cannot be finished: {problem_of(error)}"]
    return [_of_engine(engine, UNREADABLE, problem) for problem in problems]


def _of_engine(engine: Engine, check: str, problem: str) -> Finding:
    return Finding("*", engine.capabilities.engine, check, CHECKS[check][0], shortened(problem))


def _audit(store: Store, scope: str | None) -> Audit:
    # A separate store: what the caller's store has cached is not evidence.
    return Audit(_onlooker(store.engine, store.scope if scope is None else scope))


def _onlooker(engine: Engine, scope: str) -> Store:
    """A store that only looks: it does not even finish what a crash interrupted."""
    return Store(engine, scope, owner=False)


async def _guarded(audit: Audit, record: str, check: Awaitable[None]) -> None:
    """Run a check; what cannot even be read (a torn page, text that is not UTF-8) is a finding, not the end."""
    try:
        await check
    except UnavailableError:
        raise
    except Exception as error:  # noqa: BLE001 - nothing that is stored may end an audit
        audit.report(UNREADABLE, record, problem_of(error))


async def _check_cycles(audit: Audit, lineage: dict[str, str | None]) -> None:
    for line, end in upward_lines(lineage):
        if end in line:
            await _confirm_cycle(audit, line[line.index(end) :])


async def _confirm_cycle(audit: Audit, members: list[str]) -> None:
    rows: list[Row | None] = (await audit.view(Get("thread_heads", [(thread,) for thread in members])))[0]
    parents = [None if row is None else row["parent"] for row in rows]
    if parents == members[1:] + members[:1]:
        audit.report("thread.parent", f"thread {members[0]!r}", f"it is its own ancestor: {' → '.join(members)}")


async def digest(engine: Engine, scope: str) -> str:
    """A fingerprint of every byte of a scope: equal before and after work in another scope."""
    audit = Audit(_onlooker(engine, scope))
    total = hashlib.sha256()
    for table in audit.kernel.schema.tables:
        async for row in audit.rows(table.name):
            total.update(repr((table.name, row.key, sorted(row.columns.items()), row.rev, _text(row.body))).encode())
    for log in audit.kernel.schema.logs:
        async for partition in partitions_of(audit, log):
            (reached,) = await audit.kernel.bases(scope, log.name, [partition])
            length = (await audit.view(Heads(log.name, [partition])))[0][0]
            while reached < length:
                entries = (await audit.view(Read(log.name, partition, after=reached, limit=CHUNK)))[0]
                for entry in entries:
                    total.update(repr((log.name, partition, *entry[:-1], _text(entry[-1]))).encode())
                reached = entries[-1][0]
    return total.hexdigest()


def _text(body: bytes | str | None) -> str | None:
    return body.decode() if isinstance(body, bytes) else body
