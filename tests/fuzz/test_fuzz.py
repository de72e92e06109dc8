"""The corpus, and a few seconds of every fuzzer; `python -m tests.fuzz` and `make torture` run them for longer.

Every case of the corpus passes, or is in the list of what is known and fails just as that list says.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.fuzz.fuzzing import fuzz
from tests.fuzz.known import KNOWN
from tests.fuzz.spelling import read, spell
from tests.fuzz.target import CORPUS, Failure, corpus, judge
from tests.fuzz.targets import TARGETS

_CASES = [(name, case) for target in TARGETS for name, case in corpus(target).items()]
_KNOWN = {known.case: known for known in KNOWN}
_SEED = 1
"""The same cases every time: a change is judged by what it broke, not by luck. `make torture` looks for new ones."""
_KNOWN_SECONDS = 3
"""A known hang is waited for no longer than this."""


@pytest.mark.parametrize("target", TARGETS)
def test_no_case_breaks_anything(target: str) -> None:
    short = TARGETS[target].short
    report = fuzz(TARGETS[target], _SEED, lambda report: report.executions < short)
    print(f"{target}: {report.executions} cases, {len(report.outcomes)} outcomes, known failures {dict(report.known)}")
    if report.failures:
        raise AssertionError("\n".join(failure.lines() for failure in report.failures))


@pytest.mark.parametrize(("name", "case"), _CASES, ids=[name for name, _ in _CASES])
def test_the_corpus_passes(name: str, case: Any) -> None:
    known = _KNOWN.get(name)
    target = TARGETS[name.partition("/")[0]]
    told = judge(target, case) if known is None else judge(target, case, seconds=_KNOWN_SECONDS)
    failed = isinstance(told, Failure)
    if known is None and failed:
        raise AssertionError(told.lines())
    if known is not None and not failed:
        raise AssertionError(f"{name} ({known.finding}) passes now: remove it from KNOWN in tests/fuzz/known.py")
    if known is not None and told.kind != known.kind:
        raise AssertionError(f"{name} is known for {known.kind!r}, and now fails otherwise:\n{told.lines()}")


def test_the_corpus_has_a_folder_for_every_target_and_no_other() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)


def test_what_is_known_has_a_case() -> None:
    assert not {known.case for known in KNOWN} - {name for name, _ in _CASES}


@pytest.mark.parametrize(
    "case",
    [
        {"a": [1, None, True, 0.5], "$b": 1, 2: 3},
        [b"\xff\x00", (1, (2,)), {1, 2}, 1 << 20_000, "x" * 5_000, "\ud800é'"],
        {"$bytes": "x"},
    ],
)
def test_a_case_is_spelled_and_read_back(case: Any) -> None:
    assert read(spell(case)) == case
    assert spell(case).isascii()
