"""Cases: logs whose oldest entries are removed. No store declares one yet, so the kit does, beside the stores' own."""

from __future__ import annotations

from typing import Any

from perdure import failpoints, limits
from perdure.audit.store import digest
from perdure.errors import CursorExpired, InvalidError
from perdure.kernel.engine import Conflict, Engine
from perdure.kernel.ops import Append, Check, Drop, Heads, LogEntry, Op, Put, Read, Segment, Trim
from perdure.kernel.schema import Log, Schema, integer, text
from perdure.kernel.validate import Kernel
from perdure.model.message import Message
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines
from perdure.testkit.helpers import Died, die
from perdure.testkit.kit import Kit, case, equal, raises

_COLUMNS = text("id", "kind") + integer("branch", "at")
TRAILS = Schema(
    SCHEMA.version + 1,
    SCHEMA.tables,
    (
        *SCHEMA.logs,
        Log("trail", "whose", _COLUMNS, unique=("id",), segment="branch", owner="whose", trim=True),
        Log("whole", "whose", _COLUMNS, unique=("id",), segment="branch", owner="whose"),
    ),
)
"""The declarations of the stores, a log that is trimmed, and one like it that is not."""
SCOPE = "default"


def some(first: int, count: int) -> list[tuple[Any, ...]]:
    """Entries of two kinds and three segments, each with its number as its id."""
    return [(f"n{n}", "xy"[n % 2], n // 3 % 3, n, b'{"n":%d}' % n) for n in range(first, first + count)]


def seqs(entries: list[LogEntry]) -> list[int]:
    """The seqs of entries."""
    return [entry[0] for entry in entries]


async def trail(engine: Engine, **options: Any) -> list[int]:
    """The seqs that a read of the trimmed log brings, whatever was trimmed."""
    (entries,) = await engine.view(SCOPE, [Read("trail", "t", **options)])
    return seqs(entries)


async def last(engine: Engine) -> int:
    """The last seq of the trimmed log."""
    return int((await engine.view(SCOPE, [Heads("trail", ["t"])]))[0][0])


@case("kernel", "trim", covers=("kernel.transact", "kernel.trim", "kernel.bases"), needs=("schemas",))
async def case_trim(kit: Kit) -> None:
    """A trim removes the oldest entries, at most 1,000 of them and never the newest, and frees their unique values."""
    engine, most = await kit.engine(TRAILS), limits.TRIM_ENTRIES
    kernel = Kernel(engine)
    await kernel.transact(SCOPE, [Trim("trail", "t", 7)])
    equal((await trail(engine), await last(engine)), ([], 0), "nothing to trim")
    await kernel.transact(SCOPE, [Append("trail", "t", some(1, 5)), Append("trail", "u", some(1, 1))])
    for upto, left in ((0, [1, 2, 3, 4, 5]), (2, [3, 4, 5]), (1, [3, 4, 5]), (9, [5]), (9, [5])):
        await kernel.transact(SCOPE, [Trim("trail", "t", upto)])
        equal((await trail(engine), await last(engine)), (left, 5), f"trimmed to {upto}")
    equal((await kernel.transact(SCOPE, [Append("trail", "t", some(1, 4), 5)])).seqs, {("trail", "t"): 9}, "appended")
    conflict = await raises(Conflict, kernel.transact(SCOPE, [Append("trail", "t", some(5, 1))]), "an id that is left")
    equal((conflict.kind, conflict.actual), ("unique", {"id": "n5"}), "the conflict")
    await kernel.transact(SCOPE, [Append("trail", "t", some(6, most + 20))])
    await kernel.transact(SCOPE, [Trim("trail", "t", most + 25)])
    equal((await trail(engine, limit=1), await last(engine)), ([most + 5], most + 29), "a limited number at once")
    equal(await kernel.trim(SCOPE, "trail", "t", 9 * most), most + 28, "in as many as it takes")
    equal(await kernel.bases(SCOPE, "trail", ["t", "u", "none"]), [most + 28, 0, 0], "the bases")
    equal(await engine.check(), [], "what the engine finds")


@case("kernel", "trim-guarded", covers=("kernel.transact", "kernel.trim"), needs=("schemas",))
async def case_trim_guarded(kit: Kit) -> None:
    """A trim stands beside checks alone, and is made only if they hold; no other log can be trimmed."""
    engine = await kit.engine(TRAILS)
    kernel = Kernel(engine)
    await kernel.transact(SCOPE, [Append("trail", "t", some(1, 5)), Append("whole", "t", some(1, 5))])
    await kernel.transact(SCOPE, [Put("keys", ("t", "k"), {}, b"[]")])
    holds, fails = Check("keys", ("t", "k"), {"digest": None}), Check("keys", ("t", "k"), {"digest": "x"})
    await raises(Conflict, kernel.transact(SCOPE, [fails, Trim("trail", "t", 2)]), "a check that fails")
    await raises(Conflict, kernel.trim(SCOPE, "trail", "t", 2, checks=[fails]), "for a loop, too")
    equal(await trail(engine), [1, 2, 3, 4, 5], "nothing was trimmed")
    await kernel.transact(SCOPE, [holds, Trim("trail", "t", 2)])
    equal(await trail(engine), [3, 4, 5], "trimmed")
    put, append = Put("keys", ("t", "l"), {}), Append("whole", "u", some(1, 1))
    others: tuple[Op, ...] = (put, append, Drop("whole", "t"), Trim("trail", "u", 1))
    for other in others:
        await raises(InvalidError, kernel.transact(SCOPE, [Trim("trail", "t", 4), other]), f"{other}")
    for log in ("messages", "whole"):
        await raises(InvalidError, kernel.transact(SCOPE, [Trim(log, "t", 2)]), log)
        await raises(InvalidError, kernel.transact(SCOPE, [Append(log, "u", some(1, 1), start=4)]), log)
    equal(await trail(engine), [3, 4, 5], "nothing more was trimmed")


@case("kernel", "trim-reads", covers=("kernel.view",), needs=("schemas",))
async def case_trim_reads(kit: Kit) -> None:
    """Every read of a trimmed log brings what is left, and one that begins before it has an expired cursor."""
    engine = await kit.engine(TRAILS)
    kernel = Kernel(engine)
    await kernel.transact(SCOPE, [Append("trail", "t", some(1, 30)), Append("whole", "t", some(1, 30))])
    filters: list[dict[str, Any]] = [{}, {"where": {"kind": "x"}}, {"where": {"id": ("n2", "n9", "n28", "n30")}}]
    filters += [{"segments": (Segment(1, 0, 9), Segment(0, 9, None))}, {"segments": (Segment(2, 0),)}]
    windows: list[dict[str, Any]] = [{}, {"desc": True}, {"upto": 12}, {"limit": 2}, {"limit": 2, "desc": True}]
    for base in (0, 1, 8, 9, 20, 29):
        await kernel.trim(SCOPE, "trail", "t", base)
        for options in [{**one, **other} for one in filters for other in windows]:
            whole = (await engine.view(SCOPE, [Read("whole", "t", after=base, **options)]))[0]
            equal(await trail(engine, **options), seqs(whole), f"{base} {options}")
            left = (await kernel.view(SCOPE, Read("trail", "t", after=base, **options)))[0]
            equal(seqs(left), seqs(whole), f"from its base {base}, {options}")
            full = "limit" in options and "desc" in options and len(whole) == options["limit"]
            if base and not full and options.get("upto", 30) >= base:
                expired = kernel.view(SCOPE, Heads("trail", ["t"]), Read("trail", "t", after=base - 1, **options))
                await raises(CursorExpired, expired, f"before its base {base}, {options}")
    equal(await kernel.view(SCOPE, Read("trail", "none"), Read("trail", "t", after=30)), [[], []], "nothing there")
    equal(await engine.check(), [], "what the engine finds")


@case("kernel", "append-start", covers=("kernel.transact", "kernel.view"), needs=("schemas",))
async def case_append_start(kit: Kit) -> None:
    """Entries start at any seq in an empty partition, and otherwise only where it ends."""
    engine = await kit.engine(TRAILS)
    kernel = Kernel(engine)
    applied = await kernel.transact(SCOPE, [Append("trail", "t", some(1, 4), start=7)])
    equal((applied.seqs, await trail(engine)), ({("trail", "t"): 10}, [7, 8, 9, 10]), "an empty partition")
    for start in (1, 7, 10, 12):
        conflict = await raises(Conflict, kernel.transact(SCOPE, [Append("trail", "t", some(5, 1), start=start)]))
        equal((conflict.kind, conflict.expected, conflict.actual), ("length", start - 1, 10), f"at {start}")
    both: list[Op] = [Append("trail", "t", some(5, 2), start=11), Append("trail", "u", some(1, 1), start=1)]
    await kernel.transact(SCOPE, both)
    await kernel.transact(SCOPE, [Append("trail", "t", some(7, 1), 12)])
    equal(await trail(engine, segments=(Segment(1, 0),)), [9, 10, 11], "its segments")
    equal(await trail(engine, where={"id": ("n1", "n7")}), [7, 13], "its unique values")
    await kernel.transact(SCOPE, [Drop("trail", "t", 8)])
    equal((await trail(engine), await last(engine)), ([7, 8], 8), "its end was dropped")
    await kernel.transact(SCOPE, [Drop("trail", "t", 6)])
    equal((await last(engine), await engine.partitions(SCOPE, "trail", limit=9)), (0, ["u"]), "all was dropped")
    applied = await kernel.transact(SCOPE, [Append("trail", "t", some(1, 1))])
    equal(applied.seqs, {("trail", "t"): 1}, "it begins anew")
    equal(await engine.check(), [], "what the engine finds")


@case("kernel", "trim-transfer", covers=("kernel.transact", "threads.delete"), needs=("schemas",))
async def case_trim_transfer(kit: Kit) -> None:
    """A thread with a trimmed log is exported, imported (in spite of an import that died) and deleted as it is."""
    engine, other = await kit.engine(TRAILS), await kit.engine(TRAILS)
    store, copy = Store(engine, owner=False), Store(other, owner=False)
    for thread, count in (("t", 1_300), ("u", 3)):
        await store.commit(thread, messages=[Message.user("hello")])
        await engine.transact(SCOPE, [Append("trail", thread, some(1, count)), Append("whole", thread, some(1, count))])
        await Kernel(engine).trim(SCOPE, "trail", thread, 40)
    lines = [line async for line in export_lines(store)]
    for crossing in (1, 2, 3):
        failpoints.arm("import.between_chunks", die, after=crossing)
        await raises(Died, import_lines(copy, lambda: lines), f"died at {crossing}")
        failpoints.disarm()
    await import_lines(copy, lambda: lines)
    equal([line async for line in export_lines(copy)], lines, "exported again")
    equal((await trail(other))[0], 41, "where it begins")
    equal((await other.transact(SCOPE, [Append("trail", "t", some(1, 1))])).seqs, {("trail", "t"): 1_301}, "it goes on")
    equal([await each.check() for each in (engine, other)], [[], []], "what the engines find")
    before = await digest(engine, SCOPE)
    await engine.transact(SCOPE, [Trim("trail", "t", 41)])
    equal(await digest(engine, SCOPE) == before, False, "an audit sees what was trimmed")
    await copy.threads.delete("t")
    equal((await last(other), await other.partitions(SCOPE, "trail", limit=9)), (0, ["u"]), "deleted")
    equal(await other.check(), [], "what the engine finds")
