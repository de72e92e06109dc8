"""Workers on every engine: the scenes of `scenes`. A worker looks at its run every few milliseconds, or never."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.providers import BUILTIN, provider_named
from tests.workers.scenes import LOOKING, SCENES

from perdure.testkit import kit
from perdure.testkit.kit import Case, ServerMissing, run_case, servers_required
from perdure.workers import driving


@pytest.mark.parametrize("engine", BUILTIN)
@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "CASE_DEADLINE", 40.0)
    monkeypatch.setattr(driving, "CHECK_SECONDS", 0.02 if name in LOOKING else 3600)
    chosen = Case(f"workers/{name}", "runs", name, ("runs.start",), frozenset(), SCENES[name])
    try:
        asyncio.run(run_case(chosen, provider_named(engine)))
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
