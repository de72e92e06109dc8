"""The product against the reference: 2,000 seeded calls per engine, and Hypothesis with the same calls."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.support.providers import BUILTIN

from perdure.testkit.fuzz.fuzzer import drive
from perdure.testkit.fuzz.hypothesis_fuzzer import lockstep
from perdure.testkit.reference.store import OPERATIONS
from perdure.testkit.volume import main, replay_line, report

CALLS = 2_000
LEAST_SUCCESS = 0.6
EXAMPLES = {"memory": 80, "sqlite": 25}


@pytest.mark.parametrize("engine", sorted(BUILTIN))
def test_two_thousand_calls_without_a_difference(engine: str, seed: int) -> None:
    print(replay_line(engine, CALLS, seed))
    tally = asyncio.run(drive(BUILTIN[engine](), CALLS, seed, look_every=250, reopen_every=400))
    print(report(tally, 0))
    if tally.operations < CALLS:
        raise RuntimeError(f"only {tally.operations} calls were made")
    if tally.success_share < LEAST_SUCCESS:
        raise RuntimeError(f"only {tally.success_share:.0%} of the calls succeeded: most of this proved little")
    if not tally.events["crashed"]:
        raise RuntimeError("nobody crashed")


@pytest.mark.parametrize("engine", sorted(BUILTIN))
def test_hypothesis_finds_no_difference(engine: str) -> None:
    chosen = settings(
        max_examples=EXAMPLES.get(engine, 12),
        stateful_step_count=40,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lockstep(BUILTIN[engine]), settings=chosen)


def test_every_operation_of_the_model_is_called() -> None:
    tally = asyncio.run(drive(BUILTIN["memory"](), 2 * CALLS, seed=7, look_every=CALLS, reopen_every=CALLS))
    idle = set(OPERATIONS) - set(tally.succeeded)
    if idle:
        raise RuntimeError(f"never succeeded: {', '.join(sorted(idle))}")


def test_the_command_prints_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    if main(["--engine", "memory", "--operations", "300", "--seed", "7"]) != 0:
        raise RuntimeError(capsys.readouterr().err)
    said = capsys.readouterr().out
    for part in (replay_line("memory", 300, 7), "no difference", "succeeded", "commit"):
        if part not in said:
            raise RuntimeError(f"the report does not say {part!r}:\n{said}")
