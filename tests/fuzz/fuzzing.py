"""Running a target: Hypothesis draws and shrinks, in rounds, for a number of cases or until a time is over.

A case whose outcome was not seen before joins the seeds of the next round. A failure is shrunk, reported once, and
passed over from then on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from tests.fuzz.known import known_kinds
from tests.fuzz.spelling import spell
from tests.fuzz.target import Failure, Target, corpus, judge

ROUND = 400
SEED_SIZE = 20_000
"""A longer case is no seed: what is made of it would be longer still."""
_SETTINGS = settings(
    database=None,
    deadline=None,
    print_blob=False,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
)


class _Found(Exception):
    """Tells Hypothesis that the case at hand failed."""


class _Over(BaseException):
    """Ends a round before its number of cases. No `Exception`, which Hypothesis would take for a failure."""


@dataclass
class Report:
    """How far a target has come."""

    executions: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kept: list[Any] = field(default_factory=list)
    """Cases with an outcome that no earlier case had."""
    failures: list[Failure] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    """Failures of a known kind."""


def fuzz(target: Target, first_seed: int, go_on: Callable[[Report], bool], report: Report | None = None) -> Report:
    """Run rounds as long as `go_on` says so; the last one ends where it says no."""
    report = report or Report()
    chance = random.Random(first_seed)
    seeds = list(corpus(target.name).values())
    while go_on(report):
        _round(target, chance.randrange(2**32), [*seeds, *report.kept], report, go_on)
    return report


def _round(target: Target, number: int, seeds: list[Any], report: Report, go_on: Callable[[Report], bool]) -> None:
    passed_over = known_kinds(target.name) | {failure.kind for failure in report.failures}
    last: list[Failure] = []

    def attempt(case: Any) -> None:
        if not last and not go_on(report):
            raise _Over
        report.executions += 1
        told = judge(target, case)
        if isinstance(told, str):
            report.outcomes[told] += 1
            if report.outcomes[told] == 1 and len(spell(case)) <= SEED_SIZE:
                report.kept.append(case)
        elif told.kind in passed_over:
            report.known[told.kind] += 1
        elif not last or told.kind == last[0].kind:
            last[:] = [told]
            raise _Found(told.kind)

    run = settings(_SETTINGS, max_examples=ROUND)(seed(number)(given(target.cases(seeds))(attempt)))
    try:
        run()
    except _Over:
        return
    except _Found:
        report.failures.append(last[0])
