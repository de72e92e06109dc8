"""Bugs in workers: picking up, leases, doubts, stops; see `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

SCENES = "test:tests/workers/test_scenes.py::test_scene"
SERVING = "test:tests/workers/test_serving.py"
HOLDS = "test:tests/workers/test_holds.py"

WORKER_BUGS = (
    Bug(
        "a run is picked up without being moved",
        "workers/driving.py",
        "change = run.resume() if run.ready else run.begin()",
        "change = run.resume() if run.ready else run.begin() if run.status == CREATED else run",
        (f"{SCENES}[picking_up_a_run_shuts_out_its_last_worker-memory]",),
        hangs=True,
    ),
    Bug(
        "no call is uncertain after a crash",
        "workers/driving.py",
        "recovered=run.status == RUNNING",
        "recovered=run.status == CREATED",
        (f"{SCENES}[a_run_of_a_dead_worker_is_picked_up_when_its_lease_ends-memory]",),
    ),
    Bug(
        "a wait forgets which calls may have run",
        "workers/hold.py",
        "for call_id in doubtful if call_id not in settled]:",
        "for call_id in doubtful if call_id in settled]:",
        (f"{SERVING}::test_a_call_that_may_have_run_is_still_uncertain_after_a_wait",),
    ),
    Bug(
        "an approval is valid for a later call with the same id",
        "workers/calls.py",
        "number = numbers[-1] if numbers else None if self._uses[call.id] else 1",
        "number = 1",
        (f"{SCENES}[an_approval_is_for_one_call_only-memory]",),
        hangs=True,
    ),
    Bug(
        "the ticket of a repeated call has the id of an earlier ticket",
        "workers/calls.py",
        '.decode(errors="ignore") + suffix',
        '.decode(errors="ignore")',
        (f"{SCENES}[an_approval_is_for_one_call_only-memory]",),
        hangs=True,
    ),
    Bug(
        "a job forgets that a call has its result",
        "workers/hold.py",
        "        self.calls.add(messages)\n        return receipt",
        "        return receipt",
        (f"{SCENES}[an_approval_is_for_one_call_only-memory]",),
        hangs=True,
    ),
    Bug(
        "an approval is lost with the worker that has read it",
        "workers/driving.py",
        "if wait and wait.tickets else Calls()",
        'if wait and wait.tickets and run.ready else Calls([], "x")',
        (f"{SCENES}[an_approval_outlives_the_worker_but_not_its_call-memory]",),
        hangs=True,
    ),
    Bug(
        "a late result answers a later call with the same id",
        "workers/hold.py",
        "if message.tool_call_id not in newer]",
        "if message.tool_call_id]",
        (f"{SCENES}[a_late_result_answers_no_later_call-memory]",),
    ),
    Bug(
        "a lost lease cuts off a shielded tool",
        "workers/driving.py",
        "while hold.shields and not handling.done():",
        "while hold.shields and not handling.done() and not hold.lost:",
        (f"{SERVING}::test_a_lost_lease_lets_a_shielded_tool_end",),
        hangs=True,
    ),
    Bug(
        "a handler that fails for ever is called for ever",
        "workers/driving.py",
        "or failures > self.retries:",
        "or failures > 99:",
        (f"{SERVING}::test_an_error_that_does_not_pass_fails_the_run",),
        hangs=True,
    ),
    Bug(
        "a commit does not reset the count of errors",
        "workers/driving.py",
        "failures + 1 if hold.run.rev == rev else 1",
        "failures + 1",
        (f"{SERVING}::test_an_error_that_may_pass_is_tried_again",),
    ),
    Bug(
        "a handler that is called again is sure of its calls",
        "workers/driving.py",
        "            hold.begin_again()\n",
        "",
        (f"{SERVING}::test_an_error_that_may_pass_is_tried_again",),
    ),
    Bug(
        "the lease of another worker is renewed",
        "workers/lease.py",
        "if profile is None or profile.value != self._profile.value:",
        "if profile is None:",
        (f"{SERVING}::test_a_lost_lease_cancels_the_handler",),
        hangs=True,
    ),
    Bug(
        "a stop cuts off a shielded tool",
        "workers/driving.py",
        "            await _unshielded(hold, handling)\n",
        "",
        (
            f"{SCENES}[a_shielded_tool_ends_and_its_result_is_stored-memory]",
            f"{HOLDS}::test_a_tool_in_a_shield_may_outlast_the_cleanup_of_another",
        ),
        hangs=True,
    ),
    Bug(
        "a stop cuts off the second of two shields",
        "workers/driving.py",
        "while hold.shields and not handling.done():",
        "if hold.shields and not handling.done():",
        (f"{SCENES}[a_second_shield_right_after_the_first_is_kept_too-memory]",),
        hangs=True,
    ),
    Bug(
        "the result of a tool is lost with the run",
        "workers/hold.py",
        "if results and end.run is not None:",
        "if results and end.run is None:",
        (f"{SCENES}[a_worker_that_was_replaced_writes_nothing_but_results-memory]",),
    ),
    Bug(
        "a step is repeated without its key",
        "workers/hold.py",
        "messages=messages, run=prepared, **named)",
        "messages=messages, run=prepared, **options)",
        (f"{SERVING}::test_a_commit_whose_answer_was_lost_takes_effect_once",),
        hangs=True,
    ),
    Bug(
        "newer runs are worked on before older ones",
        "workers/finding.py",
        "self._cursors = cursors if len(runs) <= count else {}",
        "self._cursors = cursors",
        (f"{SERVING}::test_a_look_finds_the_oldest_runs_and_reaches_all_pages",),
    ),
    Bug(
        "trouble of the store fails the run",
        "workers/driving.py",
        "if error is not None and may_pass(error):",
        "if error is not None and may_pass(error) and hold.end:",
        (f"{SERVING}::test_a_handler_that_meets_trouble_is_called_again",),
    ),
    Bug(
        "stop cancels the handlers at once",
        "workers/serving.py",
        "await asyncio.wait(self._tasks.values(), timeout=seconds)",
        "await asyncio.wait(self._tasks.values(), timeout=0)",
        (f"{SERVING}::test_stop_lets_handlers_end_and_takes_no_more_work",),
    ),
    Bug(
        "a stop during a look comes too late",
        "workers/serving.py",
        "for run in [] if stop.is_set() else runs:",
        "for run in runs:",
        (f"{SERVING}::test_a_stop_during_a_look_takes_no_more_work",),
    ),
)
