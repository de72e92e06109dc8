"""`store.state`: JSON documents by name, owned by a thread or by one of its runs.

Documents are usually written by the commit they belong to; `put` and `delete` are commits that carry nothing else. A
document of a name or schema that this build does not know is kept and returned as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, VersionConflict
from perdure.kernel import codec
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import ABSENT, ANY, NOW, PRESENT, Check, Condition, Delete, Get, Op, Patch, Put, Scan
from perdure.model.state import Doc, StateDoc
from perdure.rules import checks
from perdure.stores.context import Context, require, thread_topic
from perdure.stores.records import state_from
from perdure.stores.retry import contention

StateDocs = list[StateDoc]


class State:
    """`store.state`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def find(self, thread_id: str, name: str, *, run_id: str | None = None) -> StateDoc | None:
        """The document, or None; raises `NotFoundError` if the thread does not exist."""
        key = _key(thread_id, name, run_id)
        heads, rows = await self._context.view(Get("thread_heads", [(thread_id,)]), Get("state", [key]))
        require(heads[0], f"thread {thread_id!r}")
        return None if rows[0] is None else state_from(rows[0])

    async def get(self, thread_id: str, name: str, *, run_id: str | None = None) -> StateDoc:
        """The document; raises `NotFoundError`."""
        doc = await self.find(thread_id, name, run_id=run_id)
        if doc is None:
            raise NotFoundError(f"thread {thread_id!r} has no state {name!r}")
        return doc

    async def list(self, thread_id: str, *, run_id: str | None = None) -> StateDocs:
        """Every document of the thread (or of the run), by name."""
        checks.check_id(thread_id, "thread id")
        owner = "" if run_id is None else checks.check_id(run_id, "run id")
        heads, rows = await self._context.view(
            Get("thread_heads", [(thread_id,)]), Scan("state", eq=(thread_id, owner))
        )
        require(heads[0], f"thread {thread_id!r}")
        return [state_from(row) for row in rows]

    async def iter(self, thread_id: str, *, run_id: str | None = None) -> AsyncIterator[StateDoc]:
        """Every document of the list, one by one."""
        for doc in await self.list(thread_id, run_id=run_id):
            yield doc

    async def put(
        self, thread_id: str, name: str, value: Any, *, run_id: str | None = None, if_rev: int | None = None
    ) -> StateDoc:
        """Write a document; with `if_rev`, only over that very revision (0: only if there is none)."""
        key = _key(thread_id, name, run_id)
        if if_rev is not None:
            checks.check_rev(if_rev, "if_rev")
        doc = value if isinstance(value, Doc) else Doc(value)
        checks.check_count(doc.schema, "schema", least=1)
        body = codec.encode_checked(doc.value, "value", limits.STATE_BYTES)
        condition: Condition = ANY if if_rev is None else ABSENT if if_rev == 0 else if_rev
        applied = await self._write(key, Put("state", key, {"schema": doc.schema, "at": NOW}, body, condition), if_rev)
        return StateDoc(
            thread_id=thread_id,
            run_id=run_id,
            name=name,
            value=codec.decode(body, "value"),
            schema=doc.schema,
            rev=applied[0],
            at=applied[1],
        )

    async def delete(self, thread_id: str, name: str, *, run_id: str | None = None, if_rev: int | None = None) -> None:
        """Remove a document; a missing one is ignored, unless `if_rev` is passed."""
        key = _key(thread_id, name, run_id)
        if if_rev is not None:
            checks.check_rev(if_rev, "if_rev")
        if if_rev == 0:
            raise InvalidError("if_rev=0 means that there is no document, so there is nothing to delete")
        await self._write(key, Delete("state", key, ANY if if_rev is None else if_rev), if_rev)

    async def _write(self, key: tuple[str, str, str], op: Op, if_rev: int | None) -> tuple[int, int]:
        thread, run, _ = key
        ops: list[Op] = [Patch("thread_heads", (thread,), {"updated_at": NOW}, PRESENT), op]
        if run:
            ops.append(Check("runs", (run,), {"thread": thread}))
        try:
            applied = await self._context.transact(ops, thread_topic(thread))
        except Conflict:
            await self._explain(key, if_rev)
            raise contention("state", key[2]) from None
        return applied.rev, applied.now

    async def _explain(self, key: tuple[str, str, str], if_rev: int | None) -> None:
        thread, run, name = key
        heads, docs, runs = await self._context.view(
            Get("thread_heads", [(thread,)]), Get("state", [key]), Get("runs", [(run,)] if run else [])
        )
        require(heads[0], f"thread {thread!r}")
        if run and (runs[0] is None or runs[0]["thread"] != thread):
            raise NotFoundError(f"thread {thread!r} has no run {run!r}")
        actual = 0 if docs[0] is None else docs[0].rev
        if if_rev is not None and actual != if_rev:
            raise VersionConflict(f"state {name!r} changed since it was read", expected=if_rev, actual=actual)


def _key(thread_id: str, name: str, run_id: str | None) -> tuple[str, str, str]:
    checks.check_id(thread_id, "thread id")
    checks.check_id(name, "state name", most=limits.NAME_BYTES)
    return thread_id, "" if run_id is None else checks.check_id(run_id, "run id"), name
