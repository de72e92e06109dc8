"""The same damage in an export: `import` refuses it with its line, or the auditor has nothing to say afterwards."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.audit.excuses import EXCUSES, excuse_of
from tests.audit.lines import Line, line_mutations, parse, spell
from tests.audit.mutations import Damage
from tests.audit.samples import rich

from perdure import InvalidError
from perdure.audit import Finding, verify
from perdure.engines.memory import open_memory
from perdure.errors import PerdureError
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines

NAMES = [shape.name for shape in (*SCHEMA.tables, *SCHEMA.logs)]
ROUNDS = 250


async def store_with_clock() -> Store:
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 1_000))
    return Store(await open_memory(SCHEMA, clock=lambda: next(ticks)), "default")


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    async def scenario() -> list[bytes]:
        store = await store_with_clock()
        await rich(store)
        return [line async for line in export_lines(store)]

    return asyncio.run(scenario())


async def imported(lines: list[bytes]) -> list[Finding] | PerdureError:
    """What the auditor finds after the import, or the refusal."""
    store = await store_with_clock()
    try:
        await import_lines(store, lambda: lines)
    except PerdureError as refusal:
        return refusal
    return await verify(store)


@pytest.mark.parametrize("name", NAMES)
def test_import_refuses_what_the_auditor_would_notice(lines: list[bytes], name: str) -> None:
    async def scenario() -> list[str | None]:
        mutations = [(damage, damaged) for damage, damaged in line_mutations(lines) if damage.table == name]
        return [_problem(damage, await imported(damaged)) for damage, damaged in mutations]

    if problems := [problem for problem in asyncio.run(scenario()) if problem is not None]:
        raise AssertionError("\n".join(problems))


def _problem(damage: Damage, answer: list[Finding] | PerdureError) -> str | None:
    """What is wrong with this answer to a damaged file: it is refused, or excused and then passes the audit."""
    excused = excuse_of(damage, EXCUSES) is not None
    if isinstance(answer, list):
        if answer:
            return f"{damage} was imported, and then: {answer[0]}"
        return None if excused else f"{damage} was imported"
    if excused:
        return f"{damage} is excused but refused: {answer}"
    if isinstance(answer, InvalidError) and not answer.message.startswith("line "):
        return f"{damage} is refused without its line: {answer}"
    return None


VALUES: tuple[Any, ...] = (None, -1, 0, 1, 2, 7, 2**52, 2**53, "", "t", "m1", "running", "done", "x\x00", True, [])
BODIES: tuple[Any, ...] = (None, {}, [], 7, "x", {"content": []}, {"custom": 1}, {"outcome": None}, ["m1"])


def _edit(chance: random.Random, parsed: list[Line]) -> None:
    """One random change of one line."""
    place = chance.randrange(len(parsed))
    line = json.loads(json.dumps(parsed[place]))
    rival = chance.choice(parsed)
    names = list(line["columns"]) + list(rival["columns"])
    edits: list[Callable[[], Any]] = [
        lambda: line["columns"].update({chance.choice(names): chance.choice(VALUES)}),
        lambda: line["columns"].update({(n := chance.choice(list(line["columns"]))): rival["columns"].get(n)}),
        lambda: line["columns"].pop(chance.choice(list(line["columns"]))),
        lambda: line.update(body=chance.choice([*BODIES, rival.get("body")])),
        lambda: line.update(key=rival.get("key", line.get("key"))),
        lambda: line.update(seq=chance.choice(VALUES)),
    ]
    chance.choice(edits)()
    if chance.random() < 0.1:
        parsed[place : place + 1] = chance.choice([[], [line, line], [rival, line]])
    else:
        parsed[place] = line


def test_whatever_is_imported_passes_the_audit(lines: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0

    async def scenario() -> None:
        nonlocal accepted
        for _ in range(ROUNDS):
            parsed = parse(lines)
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                _edit(chance, parsed)
            answer = await imported(spell(lines[0], parsed))
            if isinstance(answer, PerdureError):
                continue
            accepted += 1
            if answer:
                raise AssertionError(f"seed {seed}: imported, and then {answer[0]}")

    asyncio.run(scenario())
    print(f"seed {seed}: {accepted} of {ROUNDS} damaged files were accepted")
