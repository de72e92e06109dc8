"""Measure every public call with content built to hurt, and print what costs most.

python -m tests.budget.run [memory sqlite …] [--all]
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.budget.calls import CALLS, Call, fill
from tests.budget.contents import HURTFUL, PLAIN, REFUSED, Material
from tests.budget.measuring import Bench, Cost, memory_cost, time_cost

from perdure import Store
from perdure.clock import ManualClock
from perdure.errors import InvalidError
from perdure.testkit.providers import provider_named

START = 1_700_000_000_000
ATTEMPTS_PLAIN = 4
TRACED_PART = 8


@asynccontextmanager
async def opened(engine: str) -> AsyncIterator[Store]:
    """A store on fresh data."""
    provider, clock = provider_named(engine), ManualClock(START)
    await provider.start(clock)
    store = await provider.open(clock)
    try:
        yield store
    finally:
        gc.unfreeze()
        await store.close()
        await provider.stop()


async def measure_time(engine: str) -> list[Cost]:
    """Every call with every material, beside plain content; each material has a scope of its own."""
    async with opened(engine) as store:
        plain = await _bench(store.scoped("plain"), PLAIN)
        known = {name: await plain.seconds(call, ATTEMPTS_PLAIN) for name, call in CALLS.items()}
        costs = []
        async for name, call, hurt in _benches(store, (*HURTFUL, *REFUSED)):
            costs.append(await time_cost(name, call, plain, hurt, known[name]))
        return costs


async def measure_memory(engine: str) -> list[Cost]:
    """The same for memory, which has no need of plain content."""
    materials = [dataclasses.replace(material, part=TRACED_PART) for material in (*HURTFUL, *REFUSED)]
    async with opened(engine) as store:
        return [await memory_cost(name, call, hurt) async for name, call, hurt in _benches(store, materials)]


async def _benches(store: Store, materials: Sequence[Material]) -> AsyncIterator[tuple[str, Call, Bench]]:
    for number, material in enumerate(materials):
        hurt = await _bench(store.scoped(f"hurt-{number}"), material)
        # What is there already is no cost of a call: without this each would pay for walks over all materials.
        gc.collect()
        gc.freeze()
        for name, call in CALLS.items():
            if not material.refused or _takes(call, material):
                yield name, call, hurt


async def _bench(store: Store, material: Material) -> Bench:
    await fill(store, PLAIN if material.refused else material)
    return Bench(store, material, InvalidError if material.refused else None)


def _takes(call: Call, material: Material) -> bool:
    """Is a call given the part of a material that is refused?"""
    return call.takes and (material.blocks is None or "message" in call.parts)


def table(costs: Sequence[Cost], most: int | None = 12) -> str:
    """The costs as lines, the dearest first."""
    dearest = sorted(costs, key=lambda cost: -cost.multiple)
    return "\n".join(f"  {cost.multiple:6.1f} x  {cost.call:30} {cost.material}" for cost in dearest[:most])


def main(arguments: Sequence[str]) -> int:
    """Print the costs on each engine; 1 if something is beyond the budget."""
    parser = argparse.ArgumentParser(prog="python -m tests.budget.run")
    parser.add_argument("engines", nargs="*", default=["memory", "sqlite"])
    parser.add_argument("--all", action="store_true", help="every cost, not only the dearest")
    options = parser.parse_args(arguments)
    beyond = 0
    for engine in options.engines:
        for what, measure in (("time of plain content", measure_time), ("bytes of content", measure_memory)):
            costs = asyncio.run(measure(engine))
            beyond += sum(not cost.within for cost in costs)
            sys.stdout.write(f"{engine}: {len(costs)} costs, as multiples of the {what}\n")
            sys.stdout.write(table(costs, None if options.all else 12) + "\n\n")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
