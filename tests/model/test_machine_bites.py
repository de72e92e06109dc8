"""A fuzzer that finds nothing proves nothing: it must find each fault planted here, with a line that replays it.

A fault is one wrong comparison, one missing guard or one lost write in a function of the product. Seeds are fixed, so
that a fault is found at the same call every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.support.providers import BUILTIN

from perdure.kernel.ops import ANY
from perdure.rules import branch_path, pending_selection, run_machine, views
from perdure.stores import branch_paths, context, deletion, pending_ops, profiles, thread_creation
from perdure.stores.commit import plan, refuse, run_change
from perdure.testkit.fuzz.fuzzer import Difference, drive
from perdure.testkit.fuzz.hypothesis_fuzzer import lockstep
from perdure.testkit.volume import main

CALLS = 20_000
Fault = Callable[[pytest.MonkeyPatch], None]


def _forked_one_too_early(patch: pytest.MonkeyPatch) -> None:
    sound = branch_path.stretches

    def stretches(branch: int, origins: Any, *, where: str) -> Any:
        early = {number: (parent, max(0, seq - 1)) for number, (parent, seq) in origins.items()}
        return sound(branch, early, where=where)

    patch.setattr(branch_paths, "stretches", stretches)


def _created_takes_over(patch: pytest.MonkeyPatch) -> None:
    sound = run_machine.pointers

    def pointers(status: str, *, created: bool) -> run_machine.Pointers:
        moves = sound(status, created=created)
        return moves._replace(take=(*moves.take, "open_run"), fill=()) if status == "created" else moves

    patch.setattr(run_machine, "pointers", pointers)


def _fence_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    sound = plan._hot_condition

    def hot_condition(asked: Any, guess: Any) -> Any:
        found = sound(asked, guess)
        return (
            {name: value for name, value in found.items() if name != "fence"} or ANY if type(found) is dict else found
        )

    patch.setattr(plan, "_hot_condition", hot_condition)


def _expect_head_ignores_a_switch(patch: pytest.MonkeyPatch) -> None:
    sound = plan._hot_condition

    def hot_condition(asked: Any, guess: Any) -> Any:
        found = sound(asked, guess)
        if type(found) is dict and not asked.messages:
            return {name: value for name, value in found.items() if name != "branch"} or ANY
        return found

    patch.setattr(plan, "_hot_condition", hot_condition)


def _any_content_replays(patch: pytest.MonkeyPatch) -> None:
    sound = refuse.replay

    def replay(ground: Any, asked: Any, key: Any, run: Any) -> Any:
        return sound(ground, msgspec.structs.replace(asked, digest=key["digest"]), key, run)

    patch.setattr(refuse, "replay", replay)


def _narrow_summaries_win(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(views, "_start_then_widest", lambda mark: (mark.message.compaction.from_seq, mark.seq, 0))


def _barriers_are_passed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pending_selection, "_skippable", lambda mode, boundary: True)


def _stale_lines_are_trusted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(branch_paths, "_stale", lambda head, line, branch: False)


def _erasure_is_never_finished(patch: pytest.MonkeyPatch) -> None:
    async def erase(ground: context.Context, *doomed: Any) -> None:
        return None

    patch.setattr(deletion, "erase", erase)


def _cycles_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    sound = thread_creation.ancestor_checks

    async def ancestor_checks(ground: context.Context, thread_id: str, parent: str | None) -> Any:
        return await sound(ground, "nobody at all", parent)

    patch.setattr("perdure.stores.threads.ancestor_checks", ancestor_checks)


def _reordering_keeps_revisions(patch: pytest.MonkeyPatch) -> None:
    sound: Callable[[Any], list[Any]] = pending_ops.reorder_ops

    def reorder_ops(order: Any) -> Any:
        return [msgspec.structs.replace(op, set={"position": op.set["position"]}) for op in sound(order)]

    patch.setattr("perdure.stores.pending.reorder_ops", reorder_ops)


def _internal_messages_count_as_output(patch: pytest.MonkeyPatch) -> None:
    def produced(messages: Any, run_id: str | None) -> list[int]:
        return [i for i, m in enumerate(messages) if m.run_id == run_id and m.role in ("assistant", "tool")]

    patch.setattr(plan, "produced", produced)
    patch.setattr(run_change, "produced", produced)


def _expired_profiles_are_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(profiles, "has_expired", lambda row, now: False)


def _steps_are_lost(patch: pytest.MonkeyPatch) -> None:
    sound = plan.entries

    def entries(commit: Any, branch: int) -> list[tuple[Any, ...]]:
        return [(*entry[:5], None if entry[5] == 0 else entry[5], *entry[6:]) for entry in sound(commit, branch)]

    patch.setattr(plan, "entries", entries)


FAULTS: tuple[Fault, ...] = (
    _forked_one_too_early,
    _created_takes_over,
    _fence_is_not_checked,
    _expect_head_ignores_a_switch,
    _any_content_replays,
    _narrow_summaries_win,
    _barriers_are_passed,
    _stale_lines_are_trusted,
    _erasure_is_never_finished,
    _cycles_are_not_seen,
    _reordering_keeps_revisions,
    _internal_messages_count_as_output,
    _expired_profiles_are_shown,
    _steps_are_lost,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
def test_a_planted_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises(Difference) as found:
        asyncio.run(drive(BUILTIN["memory"](), CALLS, seed=7))
    print(found.value)


def test_hypothesis_finds_a_planted_fault_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _steps_are_lost(monkeypatch)
    chosen = settings(
        max_examples=200, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    with pytest.raises(Difference):
        run_state_machine_as_test(lockstep(BUILTIN["memory"]), settings=chosen)


def test_a_difference_ends_with_the_line_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _created_takes_over(monkeypatch)
    if main(["--engine", "memory", "--operations", "20000", "--seed", "7"]) != 1:
        raise RuntimeError("a difference must end the command with 1")
    said = capsys.readouterr().err
    line = "replay: python -m perdure.testkit.volume --engine memory --operations 20000 --seed 7"
    if "Difference" not in said or line not in said:
        raise RuntimeError(f"no line to replay it with:\n{said}")
