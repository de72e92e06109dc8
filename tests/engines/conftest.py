"""Fixtures of the engine tests: each contract test runs on every engine and on both faces of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engines.toys import EMBEDDED, SERVERS, START, Scenario, run

from perdure import failpoints
from perdure.clock import ManualClock

FACES = [*EMBEDDED, *(f"{kind}-blocking" for kind in EMBEDDED), *SERVERS]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(params=FACES)
def on(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Callable[[Scenario], None]:
    """Run a scenario on each engine and face."""
    return lambda scenario: run(request.param, tmp_path, scenario, clock)


@pytest.fixture(params=[*EMBEDDED, *SERVERS])
def on_tasks(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Callable[[Scenario], None]:
    """Run a scenario that needs an event loop on each engine."""
    return lambda scenario: run(request.param, tmp_path, scenario, clock)


@pytest.fixture(autouse=True)
def _disarm() -> object:
    yield
    failpoints.disarm()
