"""Every column of every table and log, damaged in turn: the auditor notices, and no store answers with a stray error.

What the auditor may miss is listed in `excuses`, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.audit.excuses import EXCUSES, Excuse, excuse_of
from tests.audit.mutations import Mutation, mutations
from tests.audit.place import Place
from tests.audit.probes import READS, WRITES

from perdure.errors import PerdureError
from perdure.kernel.schema import Log, Table
from perdure.stores.schema import SCHEMA

SHAPES = [*SCHEMA.tables, *SCHEMA.logs]
NAMES = [shape.name for shape in SHAPES]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("audit"))
    if findings := made.audit():
        raise AssertionError(f"sound data was reported: {findings}")
    yield made
    made.close()


def damaged(place: Place, shape: Table | Log) -> Iterator[Mutation]:
    """Every mutation of a table that can be done, done; the file is whole again afterwards."""
    place.file.restore()
    for mutation in mutations(place.file, shape):
        if place.file.damage(mutation):
            yield mutation
            place.file.restore()


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_the_auditor_notices(place: Place, shape: Table | Log) -> None:
    problems: list[str] = []
    used: set[Excuse] = set()
    noticed = missed = 0
    for mutation in damaged(place, shape):
        findings, excuse = place.audit(), excuse_of(mutation, EXCUSES)
        noticed, missed = noticed + bool(findings), missed + (not findings)
        if excuse is not None:
            used.add(excuse)
        if findings and excuse is not None:
            problems.append(f"{mutation.cell} in {mutation.row} is excused but noticed: {findings[0]}")
        if not findings and excuse is None:
            problems.append(f"{mutation.cell} in {mutation.row} is not noticed")
    idle = [excuse for excuse in EXCUSES if excuse.table == shape.name and excuse not in used]
    print(f"{shape.name}: {noticed} noticed, {missed} not")
    if problems or idle:
        raise AssertionError("\n".join([*problems, *[f"excuses nothing: {excuse}" for excuse in idle]]))


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_stores_raise_nothing_but_their_own_errors(place: Place, shape: Table | Log) -> None:
    leaks: list[str] = []
    tried: set[tuple[str, str, str]] = set()
    for mutation in damaged(place, shape):
        elsewhere = mutation.row.partition("/")[0] not in ("t", "running")
        if elsewhere or mutation.cell in tried or mutation.kind == "swapped":
            continue
        tried.add(mutation.cell)
        for name, probe in {**READS, **WRITES}.items():
            try:
                place.run(probe(place.store()))  # type: ignore[arg-type]
            except PerdureError:
                continue
            except Exception as error:  # noqa: BLE001 - what leaks is what we look for
                leaks.append(f"{mutation.cell} in {mutation.row}: {name} raised {error!r}")
    if leaks:
        raise AssertionError("\n".join(leaks))
