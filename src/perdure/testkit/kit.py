"""The parts of a conformance case: the decorator that registers it, the kit it receives, and helpers that raise.

A case is written once, against the public stores, and runs on every engine. It gets a `Kit` with an open store on
fresh, empty data and a clock that only the case moves. Helpers raise `CaseFailed` rather than assert,
so that a case means the same under `python -O`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from perdure import failpoints
from perdure.clock import Clock, ManualClock
from perdure.kernel.engine import Engine
from perdure.kernel.schema import Schema
from perdure.stores.cleanup import sweep
from perdure.stores.store import Store

Capability = Literal[
    "threads", "messages", "branches", "pending", "runs", "state", "profiles", "commit", "load", "scope", "lifecycle",
    "kernel",
]  # fmt: skip
"""An area of the API; `kernel` is what an engine must do though no store asks for it yet."""
CASE_DEADLINE = 120.0
"""Seconds after which a case counts as hanging; no case measures time."""

REQUIRE_VARIABLE = "PERDURE_REQUIRE_SERVERS"
_FALSE = ("", "0", "false", "no")

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")


class CaseFailed(Exception):
    """The engine or a store did not do what the case demands."""


class ServerMissing(Exception):
    """A provider's server is not available here; the message lists what was tried.

    Raise it from `Provider.start`: the cases are then skipped, or fail where `servers_required`.
    """

    def __init__(self, name: str, tried: Sequence[str]) -> None:
        self.name = name
        self.tried = tuple(tried)
        super().__init__(f"no {name} server: " + "; ".join(tried))


def servers_required() -> bool:
    """Whether a missing server is a failure: if `CI` or `PERDURE_REQUIRE_SERVERS` is set, so that no build passes
    because it tested nothing.
    """
    return any(os.environ.get(name, "").lower() not in _FALSE for name in (REQUIRE_VARIABLE, "CI"))


class Provider(Protocol):
    """How the kit gets an engine. One object serves many cases, one at a time."""

    name: str
    features: frozenset[str]
    """Of {"durable", "processes", "schemas"}: data survives a close; a second process can open it; the provider is a
    `SchemaProvider`."""
    opt_outs: Mapping[str, str]
    """Case id -> the reason why this engine does not run it."""

    async def start(self, clock: Clock) -> None:
        """Provide fresh, empty data."""
        ...

    async def open(self, clock: Clock, *, scope: str = "default") -> Store:
        """Another client of the current data, as another process would open it, with `housekeeping=False`."""
        ...

    async def crash(self) -> None:
        """Drop every open client without closing it, as a dying process would."""
        ...

    async def stop(self) -> None:
        """Delete the current data."""
        ...


class SchemaProvider(Protocol):
    """A provider with the feature "schemas": what no store declares yet is tested with declarations of the kit."""

    async def open_engine(self, schema: Schema, clock: Clock) -> Engine:
        """An engine with another schema, on data that is fresh and separate from that of `start`."""
        ...


class Kit:
    """What a case works with: an open store on fresh data, a clock, and more clients on demand."""

    def __init__(self, provider: Provider, clock: ManualClock, store: Store) -> None:
        self.provider = provider
        self.clock = clock
        self.store = store
        self._others: list[Store] = []
        self._engines: list[Engine] = []

    async def engine(self, schema: Schema) -> Engine:
        """An empty engine with these declarations; closed by the kit. For cases that need "schemas"."""
        provider: Any = self.provider
        engine: Engine = await provider.open_engine(schema, self.clock)
        self._engines.append(engine)
        return engine

    async def second(self, *, scope: str = "default", clock: Clock | None = None) -> Store:
        """Another client on the same data, by default with the kit's clock; closed by the kit."""
        store = await self.provider.open(clock or self.clock, scope=scope)
        self._others.append(store)
        return store

    async def reopen(self) -> Store:
        """Close every client, open one again: it becomes `kit.store`."""
        await self.close()
        self.store = await self.provider.open(self.clock)
        return self.store

    async def crash(self) -> Store:
        """Drop every client without closing it, then open one again: it becomes `kit.store`."""
        await self.provider.crash()
        self._others.clear()
        self.store = await self.provider.open(self.clock)
        return self.store

    async def sweep(self, store: Store | None = None) -> None:
        """Do now what housekeeping does in the background; clients of the kit are opened without it."""
        await sweep((store or self.store)._context)  # noqa: SLF001 - the kit looks inside

    async def close(self) -> None:
        """Close every client."""
        for store in (*self._others, self.store):
            await store.close()
        self._others.clear()
        for engine in self._engines:
            await engine.close()
        self._engines.clear()


CaseBody = Callable[[Kit], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Case:
    """A registered case: what it proves (`line`), which public methods it exercises, what the engine must offer."""

    id: str
    capability: Capability
    line: str
    covers: tuple[str, ...]
    needs: frozenset[str]
    body: CaseBody

    def reason_to_skip(self, provider: Provider) -> str | None:
        """Why this case does not run on this provider; None when it does."""
        missing = self.needs - provider.features
        if missing:
            return f"{provider.name} is not {' nor '.join(sorted(missing))}"
        return provider.opt_outs.get(self.id)


CASES: dict[str, Case] = {}


def case(
    capability: Capability, name: str, *, covers: tuple[str, ...], line: str = "", needs: tuple[str, ...] = ()
) -> Callable[[CaseBody], CaseBody]:
    """Register `async def case_…(kit)` as the case `<capability>/<name>`.

    `covers` names public methods as `threads.create`, `store.commit`, `kernel.view`; `line` says in words what is
    proved (else the docstring does); `needs` are features without which the case does not apply.
    """
    identity = f"{capability}/{name}"

    def register(body: CaseBody) -> CaseBody:
        if identity in CASES:
            raise ValueError(f"two cases are called {identity}")
        proved = line or body.__doc__ or ""
        if not covers or not proved:
            raise ValueError(f"{identity} must say which methods it covers and what it proves")
        CASES[identity] = Case(identity, capability, proved, covers, frozenset(needs), body)
        return body

    return register


def registry() -> dict[str, Case]:
    """Every case in `perdure.testkit.cases`, by id."""
    package = importlib.import_module("perdure.testkit.cases")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(CASES.items()))


async def run_case(chosen: Case, provider: Provider) -> None:
    """Run one case on fresh data; raises what the case raises."""
    clock = ManualClock()
    await provider.start(clock)
    try:
        kit = Kit(provider, clock, await provider.open(clock))
        try:
            async with asyncio.timeout(CASE_DEADLINE):
                await chosen.body(kit)
        finally:
            failpoints.disarm()
            await kit.close()
    finally:
        await provider.stop()


def expect(condition: object, message: str) -> None:
    """Fail the case unless the condition holds."""
    if not condition:
        raise CaseFailed(message)


def equal(actual: object, expected: object, what: str) -> None:
    """Fail the case unless both are equal and of the same type."""
    if type(actual) is not type(expected) or actual != expected:
        raise CaseFailed(f"{what}: expected {expected!r:.2000}, got {actual!r:.2000}")


async def raises(kind: type[E], attempt: Awaitable[Any], what: str = "") -> E:
    """Fail the case unless awaiting raises this error; returns it."""
    try:
        result = await attempt
    except kind as error:
        return error
    raise CaseFailed(f"{what or 'the call'}: expected {kind.__name__}, got the result {result!r:.500}")


async def collect(items: AsyncIterator[T]) -> list[T]:
    """Everything that an iteration yields."""
    return [item async for item in items]
