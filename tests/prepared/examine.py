"""What is asked of every prepared store: all reading calls, copying it, and the auditor, under a deadline."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

from tests.audit.excuses import Excuse, excuse_of
from tests.audit.mutations import Damage
from tests.audit.probes import READS, Probe
from tests.cli.program import Done
from tests.cli.steering import steering_on_screen
from tests.prepared.excuses import EXCUSES, LEAKS

from perdure.audit.verify import verify_engine
from perdure.errors import PerdureError
from perdure.kernel.engine import Engine
from perdure.stores.store import Store

SECONDS = 60
COMMANDS = (
    "threads", "show t", "log t", "tree t", "branch t", "runs", "export -o -", "doctor verify", "show t --json",
)  # fmt: skip
EVERY = 7
"""Commands read through the same calls, so they are run on every so manieth store."""
EXPECTED_CODES = (0, 1, 2, 3, 4, 5)


class Stores(Protocol):
    """The prepared stores of one engine, one at a time."""

    engine_name: str

    @property
    def engine(self) -> Engine: ...

    def store(self) -> Store: ...

    def run(self, call: Coroutine[Any, Any, Any]) -> Any: ...

    def copy(self) -> None: ...

    def command(self, *arguments: str) -> Done | None: ...

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


def examine(stores: Stores, damages: Sequence[Damage], verdict: Verdict | None = None) -> Verdict:
    """Prepare one store after the other, and see what becomes of whoever reads it."""
    verdict = verdict or Verdict()
    stores.restore()
    for number, damage in enumerate(damages):
        if not stores.prepare(damage):
            stores.restore()
            continue
        verdict.stores += 1
        with deadline(f"{stores.engine_name}: {damage}"):
            _read(stores, damage, verdict, commands=number % EVERY == 0)
            _audit(stores, damage, verdict)
        stores.restore()
    return verdict


def _name(stores: Stores, damage: Damage) -> str:
    return f"{stores.engine_name}: {damage.table}.{damage.column} {damage.kind} in {damage.row or damage.table}"


def _read(stores: Stores, damage: Damage, verdict: Verdict, *, commands: bool) -> None:
    refused, leaks = False, []
    for name, call in _calls(stores).items():
        try:
            call()
        except PerdureError:
            refused = True
        except Exception as error:  # noqa: BLE001 - what leaks is what we look for
            leaks.append(f"{_name(stores, damage)}: {name} raised {error!r:.200}")
    verdict.refused += refused
    if commands:
        leaks += [f"{_name(stores, damage)}: {told}" for told in _commands(stores)]
    _note(damage, stores, verdict, leaks)


def _calls(stores: Stores) -> dict[str, Callable[[], object]]:
    """Every reading call, by name."""

    def ask(probe: Probe) -> Callable[[], object]:
        async def call() -> object:
            return await probe(stores.store())

        return lambda: stores.run(call())

    return {**{name: ask(probe) for name, probe in READS.items()}, "copy": stores.copy}


def _commands(stores: Stores) -> Iterator[str]:
    """Which commands end as a defect, or write what would steer a terminal."""
    for words in COMMANDS:
        done = stores.command(*words.split())
        if done is None:
            continue
        if done.code not in EXPECTED_CODES:
            yield f"`perdure {words}` ended with {done.code}: {(done.err or done.out)!r:.200}"
        if not words.startswith("export") and (odd := steering_on_screen(done.out + done.err)):
            yield f"`perdure {words}` wrote {odd!r:.80}"


def check_sound(stores: Stores) -> None:
    """Raise if a call refuses the store as it is before any damage."""
    for call in _calls(stores).values():
        call()
    if findings := stores.run(verify_engine(stores.engine)):
        raise AssertionError(f"sound data was reported: {findings[0]}")


def _note(damage: Damage, stores: Stores, verdict: Verdict, leaks: list[str]) -> None:
    excuse = excuse_of(damage, LEAKS, stores.engine_name)
    if excuse is None:
        verdict.problems += leaks
    elif leaks:
        verdict.used.add(excuse)
    else:
        verdict.problems.append(f"{_name(stores, damage)} is listed as leaking and does not: {excuse}")


def _audit(stores: Stores, damage: Damage, verdict: Verdict) -> None:
    excuse = excuse_of(damage, EXCUSES, stores.engine_name)
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
