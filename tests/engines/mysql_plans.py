"""How MySQL finds the rows of every statement, in a store that its server has never analysed.

    python -m tests.engines.mysql_plans --threads 10000 --messages 50

Statistics are taken while the tables are empty and not renewed, which is what a store that is being filled looks like
to the planner; after a restart the server even believes that they are empty. Every public method is called, each
statement is recorded, explained, and run once more to count the rows that the server touches for it. Prints figures;
raises `BadPlan`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tests.engines.every_call import call_everything, fill
from tests.engines.mysql_place import connect, sql
from tests.support.servers.local import LocalServer
from tests.support.servers.mysql import MysqlRecipe

import perdure
from perdure import Store
from perdure.engines.mysql.connections.connection import Rows, Wire
from perdure.engines.mysql.schema import heads_name, names
from perdure.stores.schema import SCHEMA

FEW = 100
"""Threads in the small store whose listing is timed."""
SPARE_ROWS = 60
"""Rows that a statement may touch beyond twice those it answers or changes: filtered ones, and ends of ranges."""
_NO_RECALCULATION = "SET GLOBAL innodb_stats_auto_recalc = 0"
_EXPLAINED = ("SELECT", "UPDATE", "DELETE")
_FORCED = re.compile(r"FORCE INDEX \(`?(\w+)`?\)")
_BY_IDS = re.compile(r"`id` IN \(")


class BadPlan(Exception):
    """Statements that do not walk their index."""


async def take_statistics(url: str) -> None:
    """Let the server analyse every table as it is, and never again."""
    heads = [heads_name(log) for log in SCHEMA.log]
    await sql(url, f"{_NO_RECALCULATION}; ANALYZE TABLE {names([*SCHEMA.table, *SCHEMA.log, *heads])}")


async def recorded(store: Store) -> list[str]:
    """The statements of every call, each once."""
    packets: list[str] = []
    real = Wire.run

    async def run(wire: Wire, text: str, **how: Any) -> list[Rows]:
        packets.append(text)
        return await real(wire, text, **how)

    with mock.patch.object(Wire, "run", run):
        await call_everything(store)
    # No text in the crowd holds a semicolon.
    statements = dict.fromkeys(one.strip() for packet in packets for one in packet.split(";"))
    return [one for one in statements if one.startswith(_EXPLAINED) and (" FROM " in one or one.startswith("UPDATE"))]


def parts(plan: Any) -> Iterator[dict[str, Any]]:
    """Every object inside an EXPLAIN in JSON."""
    if isinstance(plan, dict):
        yield plan
        for value in plan.values():
            yield from parts(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from parts(value)


def faults(statement: str, plan: Any) -> list[str]:
    """What a plan must not do: read a whole table or index, sort, or use another index than the one it names."""
    tables = [part for part in parts(plan) if "table_name" in part]
    bad = [f"reads all of {part['table_name']}" for part in tables if part.get("access_type") in ("ALL", "index")]
    # Entries that are asked for by their ids are few, and come in the order of ids.
    sorts = () if _BY_IDS.search(statement) else ("filesort", "temporary_table")
    bad += [key for part in parts(plan) for key in part if key in sorts]
    forced = _FORCED.search(statement)
    if forced:
        bad += [f"by {part['key']}, not {forced[1]}" for part in tables if part.get("key", forced[1]) != forced[1]]
    return bad


async def touched(wire: Wire, statement: str) -> tuple[int, int]:
    """Rows that a statement reads, and rows that it answers or changes."""
    look = "SHOW SESSION STATUS LIKE 'Handler_read%'"
    *answer, counters = await wire.run(f"FLUSH STATUS; START TRANSACTION; {statement}; {look}; ROLLBACK")
    *_, idle = await wire.run(f"FLUSH STATUS; START TRANSACTION; DO 0; {look}; ROLLBACK")
    reads = sum(int(n) for _, n in counters) - sum(int(n) for _, n in idle)
    return reads, len(answer[0]) if answer else 1


async def judged(url: str, statements: list[str]) -> list[str]:
    """What is wrong with the plans of these statements."""
    wire = await connect(url)
    await wire.run("SET @perdure_scope = ''")
    wrong = []
    for statement in statements:
        (((plan,),),) = await wire.run(f"EXPLAIN FORMAT=JSON {statement}")
        bad = faults(statement, json.loads(plan))
        reads, answered = await touched(wire, statement)
        if reads > 2 * answered + SPARE_ROWS:
            bad.append(f"touches {reads} rows to answer {answered}")
        wrong += [f"{'; '.join(bad)}: {statement[:400]}"] if bad else []
    await wire.goodbye()
    return wrong


async def listing_time(store: Store, times: int = 60) -> float:
    """The median time of a listing, in milliseconds."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        await store.threads.list()
        taken.append(1000 * (time.perf_counter() - begun))
    return round(statistics.median(taken), 2)


async def examine(threads: int, messages: int) -> dict[str, Any]:
    """Fill an empty store on a server of its own that is never analysed; raises `BadPlan`, returns figures."""
    figures: dict[str, Any] = {"threads": threads, "messages": messages}
    own = LocalServer(MysqlRecipe(durable=False))
    try:
        await (await perdure.open(own.url, housekeeping=False)).close()
        await take_statistics(own.url)
        async with perdure.open(own.url, housekeeping=False) as store:
            await fill(store, range(FEW), messages)
            figures[f"ms to list of {FEW}"] = await listing_time(store)
            await fill(store, range(FEW, threads), messages)
            figures[f"ms to list of {threads}"] = await listing_time(store)
            statements = await recorded(store)
        figures["statements"] = len(statements)
        wrong = await judged(own.url, statements)
        # A server that starts reads the statistics it once took: now the tables look empty.
        own.stop()
        own.restart()
        await sql(own.url, _NO_RECALCULATION)
        async with perdure.open(own.url, housekeeping=False) as store:
            figures[f"ms to list of {threads} that look like none"] = await listing_time(store)
            await _require_looking_empty(own.url)
        wrong += await judged(own.url, statements)
    finally:
        own.dispose()
    if wrong:
        raise BadPlan("\n".join([f"{len(wrong)} of {len(statements)} statements:", *wrong]))
    return figures


async def _require_looking_empty(url: str) -> None:
    which = "table_schema = DATABASE() AND table_name IN ('thread_heads', 'messages', 'state')"
    (rows,) = await sql(url, f"SELECT table_name, table_rows FROM information_schema.tables WHERE {which}")
    if any(count > 0 for _, count in rows):
        raise BadPlan(f"the server has statistics, so this proves nothing: {rows}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=50)
    asked = parser.parse_args()
    print(json.dumps(asyncio.run(examine(asked.threads, asked.messages))))
