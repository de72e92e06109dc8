"""Every conformance case on every engine of this build, and the completeness of the cases themselves."""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.providers import BUILTIN, SqliteProvider, provider_named

import perdure
from perdure.kernel.validate import Kernel
from perdure.testkit.kit import Case, CaseFailed, Provider, equal, expect, raises, registry, run_case

CHECKLIST = {
    f"{path.stem}: {section}": items
    for path in sorted(Path(__file__).parent.glob("checklist*.toml"))
    for section, items in tomllib.loads(path.read_text(encoding="utf-8")).items()
}
# With a sync at every commit as well: one case per kind of write.
ON_POWER = (
    "threads/delete-takes-everything",
    "messages/blocks-round-trip",
    "branches/fork-of-forks",
    "branches/current-survives-reopen",
    "commit/everything-at-once",
    "commit/key-replay-reopened",
    "commit/concurrent-unguarded",
    "pending/freeze-new-run",
    "state/survives-crash",
    "runs/done-is-final",
    "lifecycle/crash",
    "lifecycle/honest",
    "lifecycle/interrupted-erasure",
)


def test_case(perdure_case: Case, perdure_provider: Provider) -> None:
    asyncio.run(run_case(perdure_case, perdure_provider))


@pytest.mark.parametrize("identity", ON_POWER)
def test_case_with_every_commit_synced(identity: str) -> None:
    asyncio.run(run_case(registry()[identity], SqliteProvider(durability="power")))


def public_methods() -> set[str]:
    """`threads.create`, `store.commit` …: everything a user can call on a store or on what hangs off it."""
    found = set()
    store = asyncio.run(_opened())
    for noun, thing in {"store": store, **vars(store)}.items():
        if noun.startswith("_") or (noun != "store" and not type(thing).__module__.startswith("perdure.stores")):
            continue
        found |= {f"{noun}.{name}" for name in dir(type(thing)) if _is_public_method(type(thing), name)}
    return found


async def _opened() -> perdure.Store:
    return await perdure.open("memory://")


def _is_public_method(kind: type, name: str) -> bool:
    return not name.startswith("_") and inspect.isfunction(inspect.getattr_static(kind, name))


def kernel_methods() -> set[str]:
    """`kernel.view` …: what stores call."""
    return {f"kernel.{name}" for name in dir(Kernel) if _is_public_method(Kernel, name)}


def test_every_public_method_has_a_case() -> None:
    covered = {method for case in registry().values() for method in case.covers}
    assert sorted(public_methods() - covered) == []


def test_cases_cover_methods_that_exist() -> None:
    known = public_methods() | kernel_methods()
    wrong = {case.id: sorted(set(case.covers) - known) for case in registry().values()}
    assert {case: methods for case, methods in wrong.items() if methods} == {}


def test_the_method_list_is_not_blind() -> None:
    assert {"threads.create", "messages.history", "branches.fork", "store.commit"} <= public_methods()


def test_opt_outs_name_existing_cases_and_give_reasons() -> None:
    for name in BUILTIN:
        provider = provider_named(name)
        assert set(provider.opt_outs) <= set(registry())
        assert all(reason.strip() for reason in provider.opt_outs.values())


def test_needs_are_known_features() -> None:
    assert {need for case in registry().values() for need in case.needs} <= {"durable", "processes", "schemas"}


def lines() -> list[tuple[str, str, list[str]]]:
    return [(section, text, cases) for section, items in CHECKLIST.items() for text, cases in items.items()]


def test_every_checklist_line_has_a_case() -> None:
    known = registry()
    bad = {f"{section}: {text}": cases for section, text, cases in lines() if not cases or set(cases) - set(known)}
    assert bad == {}


def test_the_checklist_is_whole() -> None:
    assert len(lines()) >= 150
    assert all(text.strip() and len(cases) == len(set(cases)) for _, text, cases in lines())


def test_helpers_raise() -> None:
    with pytest.raises(CaseFailed):
        expect(0, "no")
    with pytest.raises(CaseFailed):
        equal(1, True, "types count")
    with pytest.raises(CaseFailed):
        asyncio.run(raises(ValueError, _nothing()))


async def _nothing() -> Any:
    return None
