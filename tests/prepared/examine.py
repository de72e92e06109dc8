"""What is asked of every prepared store: all reading calls, copying it, and the auditor, under a deadline."""

from __future__ import annotations

import signal
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

from tests.audit.mutations import Damage
from tests.audit.probes import READS
from tests.prepared.excuses import EXCUSES, LEAKS, Excuse, excuse_of

from perdure.engines.memory import open_memory
from perdure.errors import PerdureError
from perdure.kernel.engine import Engine
from perdure.moving.copying import copy_engine
from perdure.stores.layout import SCHEMA
from perdure.stores.store import Store
from perdure.testkit.auditor import verify_engine

SECONDS = 60


class Stores(Protocol):
    """The prepared stores of one engine, one at a time."""

    engine_name: str

    @property
    def engine(self) -> Engine: ...

    def store(self) -> Store: ...

    def run(self, call: Coroutine[Any, Any, Any]) -> Any: ...

    def damages(self) -> Sequence[Any]: ...

    def prepare(self, damage: Any) -> bool: ...

    def restore(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Verdict:
    """What came of some prepared stores."""

    stores: int = 0
    noticed: int = 0
    refused: int = 0
    problems: list[str] = field(default_factory=list)
    used: set[Excuse] = field(default_factory=set)


class TooSlow(BaseException):
    """A call did not end in time; no `except Exception` may swallow it."""


@contextmanager
def deadline(what: str) -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(what)

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


async def _copy(stores: Stores) -> None:
    target = await open_memory(SCHEMA)
    await copy_engine(stores.engine, target)


def examine(stores: Stores, damages: Sequence[Damage], verdict: Verdict | None = None) -> Verdict:
    """Prepare one store after the other, and see what becomes of whoever reads it."""
    verdict = verdict or Verdict()
    stores.restore()
    for damage in damages:
        if not stores.prepare(damage):
            stores.restore()
            continue
        verdict.stores += 1
        with deadline(f"{stores.engine_name}: {damage}"):
            _read(stores, damage, verdict)
            _audit(stores, damage, verdict)
        stores.restore()
    return verdict


def _name(stores: Stores, damage: Damage) -> str:
    return f"{stores.engine_name}: {damage.table}.{damage.column} {damage.kind} in {damage.row or damage.table}"


def _read(stores: Stores, damage: Damage, verdict: Verdict) -> None:
    calls: dict[str, Any] = {name: lambda probe=probe: probe(stores.store()) for name, probe in READS.items()}
    calls["copy"] = lambda: _copy(stores)
    refused, leaks = False, []
    for name, call in calls.items():
        try:
            stores.run(call())
        except PerdureError:
            refused = True
        except Exception as error:  # noqa: BLE001 - what leaks is what we look for
            leaks.append(f"{_name(stores, damage)}: {name} raised {error!r:.200}")
    verdict.refused += refused
    _note(damage, stores, verdict, leaks)


def _note(damage: Damage, stores: Stores, verdict: Verdict, leaks: list[str]) -> None:
    excuse = excuse_of(damage, stores.engine_name, LEAKS)
    if excuse is None:
        verdict.problems += leaks
    elif leaks:
        verdict.used.add(excuse)
    else:
        verdict.problems.append(f"{_name(stores, damage)} is listed as leaking and does not: {excuse}")


def _audit(stores: Stores, damage: Damage, verdict: Verdict) -> None:
    excuse = excuse_of(damage, stores.engine_name, EXCUSES)
    try:
        findings = stores.run(verify_engine(stores.engine))
    except Exception as error:  # noqa: BLE001 - the auditor never dies of what it examines
        verdict.problems.append(f"{_name(stores, damage)}: the audit raised {error!r:.200}")
        return
    verdict.noticed += bool(findings)
    if excuse is not None:
        verdict.used.add(excuse)
    if findings and excuse is not None:
        verdict.problems.append(f"{_name(stores, damage)} is excused but noticed: {findings[0]!s:.200}")
    elif not findings and excuse is None:
        verdict.problems.append(f"{_name(stores, damage)} is not noticed")
