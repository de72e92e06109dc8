"""Cases: due times and leases in the kernel. Bounds are the engine's clock, judged in the transaction.

No store uses these operations yet, so the cases call the engine: rows of `profiles` stand for any rows that become due.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, AtMost, Check, Delete, Get, Inc, Max, Min, Now, Op, Patch, Put, Row, Scan, Taken
from perdure.kernel.validate import Kernel
from perdure.stores.store import Store
from perdure.testkit.kit import Kit, case, equal, expect, raises

TABLE, OWNER = "profiles", "queue"


def due_scan(upto: int | Now = NOW, limit: int = 1, **more: int | Now) -> Scan:
    """The first rows that are due."""
    return Scan(TABLE, "expiry", (), limit=limit, upto={"expires_at": upto, **more})


class Queue:
    """Rows with a due time (`expires_at`) and a counter (`schema`), through one client."""

    def __init__(self, store: Store) -> None:
        self.scope = store.scope
        self.engine = store.engine
        self.kernel = Kernel(store.engine)

    async def fill(self, dues: Mapping[str, int | Now | None]) -> None:
        """One row for each due time."""
        await self.do(*[Put(TABLE, (OWNER, key), {"expires_at": due, "schema": 0}) for key, due in dues.items()])

    async def do(self, *ops: Op) -> Any:
        """One transaction."""
        return await self.kernel.transact(self.scope, ops)

    async def change(self, key: str, changes: Mapping[str, Any], condition: Any) -> bool:
        """Patch a row; False if the condition was not met."""
        try:
            await self.do(Patch(TABLE, (OWNER, key), dict(changes), condition))
        except Conflict:
            return False
        return True

    async def take(self, scan: Scan, hints: tuple[str, ...] = (), **changes: Any) -> Taken:
        """Take rows."""
        return await self.kernel.take(self.scope, scan, changes, hints)

    async def keys(self, scan: Scan, **changes: Any) -> list[str]:
        """The keys of the rows that a take gets, in order."""
        return [str(row.key[1]) for row in (await self.take(scan, **changes)).rows]

    async def rows(self, scan: Scan) -> list[Row]:
        """The rows of a scan, which only reads."""
        (rows,) = await self.kernel.view(self.scope, scan)
        return list(rows)

    async def column(self, key: str, name: str) -> Any:
        """What a row has in a column."""
        ((row,),) = await self.engine.view(self.scope, [Get(TABLE, [(OWNER, key)])])
        return None if row is None else row[name]


@case("kernel", "due-conditions", covers=("kernel.transact",))
async def case_due_conditions(kit: Kit) -> None:
    """`AtMost(Now(+ms))` compares a column with the engine's time; NULL is below every time."""
    queue, start = Queue(kit.store), kit.clock.now
    await queue.fill({"lease": start + 1_000, "free": None})
    for limit, met in ((NOW, False), (Now(999), False), (Now(1_000), True), (Now(-1), False)):
        condition = {"expires_at": AtMost(limit)}
        equal(await queue.change("lease", {"schema": Inc(1)}, condition), met, f"the lease at {limit}")
        equal(await queue.change("free", {"schema": Inc(1)}, condition), True, f"what is free at {limit}")
    refusal = await raises(Conflict, queue.do(Check(TABLE, (OWNER, "lease"), {"expires_at": AtMost(NOW)})))
    equal(refusal.actual, {"expires_at": start + 1_000}, "what the conflict reports")
    kit.clock.advance(1_000)
    await queue.do(Check(TABLE, (OWNER, "lease"), {"expires_at": AtMost(NOW)}))
    held = {"expires_at": Now(1_000)}
    equal(await queue.change("lease", held, {"expires_at": AtMost(NOW)}), True, "an expired lease is taken")
    equal(await queue.change("lease", held, {"expires_at": AtMost(NOW)}), False, "and then it is held")
    await raises(Conflict, queue.do(Delete(TABLE, (OWNER, "lease"), {"expires_at": AtMost(NOW)})))
    kit.clock.advance(1_000)
    await queue.do(Delete(TABLE, (OWNER, "lease"), {"expires_at": AtMost(NOW)}))


@case("kernel", "due-changes", covers=("kernel.transact",))
async def case_due_changes(kit: Kit) -> None:
    """`Min(Now(+ms))` only brings a due time forward and `Max(Now(+ms))` only puts it off; NULL becomes the bound."""
    queue, start = Queue(kit.store), kit.clock.now
    for change, past, future, nothing in (
        (Min(NOW), start - 50, start, start),
        (Max(NOW), start, start + 50, start),
        (Min(Now(20)), start - 50, start + 20, start + 20),
        (Max(Now(20)), start + 20, start + 50, start + 20),
        (Min(Now(-80)), start - 80, start - 80, start - 80),
    ):
        await queue.fill({"past": start - 50, "future": start + 50, "nothing": None})
        applied = await queue.do(
            *[Patch(TABLE, (OWNER, key), {"expires_at": change}) for key in ("past", "future", "nothing")]
        )
        equal(applied.now, start, "the time of the transaction")
        columns = [await queue.column(key, "expires_at") for key in ("past", "future", "nothing")]
        equal(columns, [past, future, nothing], f"after {change}")
        due = [str(row.key[1]) for row in await queue.rows(due_scan(min(columns), limit=3))]
        equal([await queue.column(key, "expires_at") for key in due], [min(columns)] * len(due), "the index")
        equal(len(due), columns.count(min(columns)), "rows that are due first")


@case("kernel", "due-take", covers=("kernel.take",))
async def case_due_take(kit: Kit) -> None:
    """A take up to NOW gets what is due by the engine's clock, oldest first, and never a row without a due time."""
    queue, start = Queue(kit.store), kit.clock.now
    await queue.fill({"c": start, "a": start - 2, "b": start - 2, "soon": start + 1, "late": start + 90, "never": None})
    equal(await queue.keys(due_scan(limit=9), schema=Inc(1)), ["a", "b", "c"], "what is due")
    equal(await queue.keys(due_scan(start - 3, limit=9), schema=Inc(1)), [], "what was due at a certain time")
    equal(await queue.keys(due_scan(Now(-2), limit=9), schema=Inc(1)), ["a", "b"], "what was due before")
    equal(await queue.keys(due_scan(Now(1), limit=9), schema=Inc(1)), ["a", "b", "c", "soon"], "and in a moment")
    equal(await queue.keys(due_scan(limit=2, schema=2), schema=Inc(1)), ["c"], "with a second bound")
    equal(await queue.keys(due_scan(limit=2, updated_at=NOW), schema=Inc(1)), [], "which NULL never meets")
    kit.clock.advance(1)
    claim = await queue.take(due_scan(limit=9), expires_at=Now(500), updated_at=Max(NOW))
    equal([row.key[1] for row in claim.rows], ["a", "b", "c", "soon"], "a millisecond later")
    equal({(row["expires_at"], row["updated_at"]) for row in claim.rows}, {(start + 501, start + 1)}, "the one time")
    equal(claim.now, start + 1, "which take reports")
    equal(await queue.keys(due_scan(limit=9), schema=0), [], "leases that are held")
    kit.clock.advance(89)
    equal(await queue.keys(due_scan(limit=9), expires_at=None), ["late"], "the next")
    kit.clock.advance(10**10)
    equal(await queue.keys(due_scan(limit=9), expires_at=None), ["a", "b", "c", "soon"], "leases that are over")
    equal(await queue.keys(due_scan(limit=9), expires_at=None), [], "nothing is left")


@case("kernel", "take-hints", covers=("kernel.take", "kernel.watch"))
async def case_take_hints(kit: Kit) -> None:
    """A take that changes rows wakes those who watch its hints, in other clients too; an empty one wakes nobody."""
    here, there = Queue(kit.store), Queue(await kit.second())
    watch = here.engine.watch(here.scope, ["mailbox", "later"])
    try:
        await here.fill({"a": NOW, "b": NOW})
        while await watch.wait(0.5):
            pass  # listening begins
        equal((await here.take(due_scan(Now(-1)), ("mailbox",), expires_at=None)).rows, [], "nothing is due")
        await here.kernel.transact(here.scope, [Put(TABLE, (OWNER, "c"), {})], ["later"])
        equal(await watch.wait(60), frozenset({(here.scope, "later")}), "an empty take is not heard, what follows is")
        for queue, client in ((here, "this client"), (there, "another client")):
            equal(len((await queue.take(due_scan(), ("mailbox", "other"), expires_at=None)).rows), 1, "a row")
            expect(await watch.wait(60), f"a take of {client} is heard")
            while await watch.wait(0.5):
                pass
    finally:
        watch.close()
