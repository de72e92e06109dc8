"""Bugs in workers: picking up, leases, doubts, stops; see `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

SCENES = "test:tests/workers/test_scenes.py::test_scene"
SERVING = "test:tests/workers/test_serving.py"

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
        "if self.is_uncertain(call) and call.id not in settled]",
        "if call.id in settled]",
        (f"{SERVING}::test_a_call_that_may_have_run_is_still_uncertain_after_a_wait",),
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
        "            await hold.unshielded.wait()\n",
        "",
        (f"{SCENES}[a_shielded_tool_ends_and_its_result_is_stored-memory]",),
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
        "messages=messages, run=change, **named)",
        "messages=messages, run=change, **options)",
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
