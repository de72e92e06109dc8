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

from tests.budget import prepared
from tests.budget.calls import CALLS, Call, fill
from tests.budget.contents import HURTFUL, PLAIN, REFUSED, Material
from tests.budget.growth import GROWING, growth_cost
from tests.budget.measuring import Bench, Cost, memory_cost, time_cost
from tests.support.providers import provider_named

from perdure import Store
from perdure.clock import ManualClock
from perdure.errors import CorruptError, InvalidError

START = 1_700_000_000_000
ATTEMPTS_PLAIN = 4
TRACED_PART = 6


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
    """Every call beside plain content; each material has a scope of its own.

    Content is checked and read above the engines, so one of them tries every material, and the others every third.
    """
    materials = (*HURTFUL, *REFUSED) if engine == "memory" else (*HURTFUL, *REFUSED)[::3]
    async with opened(engine) as store:
        plain = await _bench(store.scoped("plain"), PLAIN)
        known = {name: await plain.seconds(call, ATTEMPTS_PLAIN) for name, call in CALLS.items()}
        costs = []
        async for name, call, hurt in _benches(store, materials):
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
    return Bench(store, material, refuses=InvalidError if material.refused else None)


async def measure_growth(engine: str, names: Sequence[str] = tuple(GROWING)) -> list[Cost]:
    """Every call that takes or reads many small things."""
    async with opened(engine) as store:
        return [await growth_cost(name, GROWING[name], store) for name in names]


async def measure_prepared(engine: str) -> list[Cost]:
    """Every call that reads messages, on bodies that were put straight into the engine."""
    async with opened(engine) as store:
        plain = await _prepared(store.scoped("plain"), PLAIN.name, prepared.plain_body())
        known = {name: await plain.seconds(call, ATTEMPTS_PLAIN) for name, call in prepared.READS.items()}
        costs = []
        for number, (what, body) in enumerate((prepared.BODIES | prepared.DAMAGED).items()):
            hurt = await _prepared(store.scoped(f"hurt-{number}"), what, body())
            for name, call in prepared.READS.items():
                costs.append(await time_cost(name, call, plain, hurt, known[name]))
        return costs


async def _prepared(store: Store, name: str, body: bytes) -> Bench:
    await prepared.fill(store, body)
    return Bench(store, Material(name), body=body, may_refuse=CorruptError if name in prepared.DAMAGED else None)


def _takes(call: Call, material: Material) -> bool:
    """Is a call given the part of a material that is refused?"""
    return call.takes and (material.blocks is None or "message" in call.parts)


def table(costs: Sequence[Cost], most: int | None = 12) -> str:
    """The costs as lines, the dearest first."""
    dearest = sorted(costs, key=lambda cost: -cost.multiple)
    return "\n".join(f"  {cost.multiple:6.1f} x  {cost.call:30} {cost.material}" for cost in dearest[:most])


MEASURES = {
    "processor time, beside plain content": measure_time,
    "peak memory, beside the bytes of the content": measure_memory,
    "reading prepared bodies, processor time beside plain bodies": measure_prepared,
    "many small things, processor time beside a quarter of them": measure_growth,
}


def main(arguments: Sequence[str]) -> int:
    """Print the costs on each engine; 1 if something is beyond the budget."""
    parser = argparse.ArgumentParser(prog="python -m tests.budget.run")
    parser.add_argument("engines", nargs="*", default=["memory", "sqlite"])
    parser.add_argument("--all", action="store_true", help="every cost, not only the dearest")
    options = parser.parse_args(arguments)
    beyond = 0
    for engine in options.engines:
        for what, measure in MEASURES.items():
            costs = asyncio.run(measure(engine))
            beyond += sum(not cost.within for cost in costs)
            sys.stdout.write(f"{engine}, {what}: {len(costs)} measured\n")
            sys.stdout.write(table(costs, None if options.all else 12) + "\n\n")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
