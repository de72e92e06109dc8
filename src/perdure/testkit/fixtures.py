"""Fixtures for the tests of applications: a fresh, empty store for every test. A pytest plugin, loaded on request.

Put `pytest_plugins = ["perdure.testkit.fixtures"]` into the `conftest.py` at the top of your tests. By default every
test gets a new SQLite file. `--perdure-store` names something else: `memory`, or the URL of a shared store, where
every test gets a scope that no other test has, and which is erased afterwards. `docs/testing.md` has examples.

The fixtures need no plugin for asyncio. An async store belongs to the event loop of the test, so a fixture cannot open
it: `perdure_open` is a function that the test calls in its own loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack
from urllib.parse import quote

import pytest

import perdure
import perdure.sync
from perdure.clock import Clock
from perdure.ids import new_id
from perdure.kernel.ops import Delete, Drop, Op, Scan
from perdure.opening import DurabilityChoice, Opening
from perdure.stores.store import Store
from perdure.sync.face import async_twin, driver_of

_OPTION = "--perdure-store"
_ROWS = 100


class OpenOptions(TypedDict, total=False):
    """The options of `perdure.open`. In tests, `durability` is "process" by default, and `housekeeping` is off."""

    scope: str
    durability: DurabilityChoice
    read_only: bool
    clock: Clock
    pool: Any
    housekeeping: bool
    retry_ms: int


class OpenStore(Protocol):
    """The type of `perdure_open`, for annotations."""

    def __call__(self, **options: Unpack[OpenOptions]) -> Opening:
        """`perdure.open` on the store of this test; `options` take the place of its defaults."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--perdure-store`."""
    parser.getgroup("perdure").addoption(
        _OPTION,
        default="sqlite",
        metavar="STORE",
        help="where the fixtures of perdure.testkit.fixtures keep data: sqlite (default; a new file for every test), "
        "memory, or the URL of a store, of which every test uses a new scope",
    )


@pytest.fixture
def perdure_scope(request: pytest.FixtureRequest) -> str:
    """The scope of this test: `default` where the whole store is new, else one that no other test has."""
    return f"test-{new_id()}" if "://" in _choice(request) else "default"


@pytest.fixture
def perdure_url(request: pytest.FixtureRequest, tmp_path: Path, perdure_scope: str) -> Iterator[str]:
    """The URL of the store of this test. Code that opens it passes `scope=perdure_scope`."""
    choice = _choice(request)
    if "://" not in choice:
        yield "memory://" if choice == "memory" else f"sqlite:///{quote(str(tmp_path / 'perdure.db'))}"
        return
    yield choice
    with perdure.sync.open(choice, housekeeping=False) as store:
        # Erasing a scope is no call of a store.
        driver_of(store).run(_erase(async_twin(store), perdure_scope))


@pytest.fixture
def perdure_open(perdure_url: str, perdure_scope: str) -> OpenStore:
    """A function that opens the store of this test: `async with perdure_open() as store:`. Call it again to see what
    another process would see, or what is left after a crash (on `memory`, nothing is)."""

    def open_store(**options: Unpack[OpenOptions]) -> Opening:
        chosen: OpenOptions = {"scope": perdure_scope, "durability": "process", "housekeeping": False}
        chosen.update(options)
        return perdure.open(perdure_url, **chosen)

    return open_store


@pytest.fixture
def perdure_store(perdure_url: str, perdure_scope: str) -> Iterator[perdure.sync.Store]:
    """The store of this test, open and blocking; for tests without asyncio."""
    with perdure.sync.open(perdure_url, scope=perdure_scope, durability="process", housekeeping=False) as store:
        yield store


def _choice(request: pytest.FixtureRequest) -> str:
    choice = str(request.config.getoption(_OPTION))
    if choice == "memory://":
        return "memory"
    if "://" not in choice and choice not in ("memory", "sqlite"):
        # Not repeated: it may be a URL with a password that lost its scheme.
        raise pytest.UsageError(f"{_OPTION} is sqlite, memory, or the URL of a store")
    return choice


async def _erase(store: Store, prefix: str) -> None:
    """Erase everything in the scopes with this prefix: a test names its other tenants after its scope."""
    engine = store.engine
    for scope in await engine.scopes():
        if scope.startswith(prefix):
            for table in engine.schema.tables:
                while rows := (await engine.view(scope, [Scan(table.name, limit=_ROWS)]))[0]:
                    deletes: list[Op] = [Delete(table.name, row.key) for row in rows]
                    await engine.transact(scope, deletes)
            for log in engine.schema.logs:
                while names := await engine.partitions(scope, log.name, limit=_ROWS):
                    drops: list[Op] = [Drop(log.name, name) for name in names]
                    await engine.transact(scope, drops)
