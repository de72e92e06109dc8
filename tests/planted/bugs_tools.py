"""Bugs in tools and tabs: what a worker does with calls, retries and drafts, and what browsers are sent; see `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

LOOP = "test:tests/workers/test_tool_loop.py"

TOOL_BUGS = (
    Bug(
        "a tool runs before people were asked about it",
        "workers/tool_loop.py",
        "if asked := [call for call in calls if self._must_ask(job, call)]:",
        "if asked := [call for call in calls if self._must_ask(job, call)][1:]:",
        (f"{LOOP}::test_people_are_asked_before_any_tool_runs",),
        hangs=True,
    ),
    Bug(
        "an uncertain call is made again",
        "workers/tool_loop.py",
        "return job.uncertain(call) and not _is_repeatable(self.repeatable, call)",
        "return job.uncertain(call) and _is_repeatable(self.repeatable, call)",
        (f"{LOOP}::test_after_a_crash_an_uncertain_call_is_made_again_only_if_that_does_no_harm",),
    ),
    Bug(
        "a misspelt name lets a tool run without approval",
        "workers/tool_loop.py",
        "type(item) is not str or item not in tools:",
        "type(item) is not str or item in tools:",
        (f"{LOOP}::test_a_loop_that_cannot_be_right_is_refused",),
    ),
    Bug(
        "a request that the server rejects is sent again",
        "workers/transient.py",
        "return status in _BUSY or status >= 500",
        "return status in _BUSY or status >= 400",
        ("test:tests/workers/test_transient.py::test_the_status_of_an_answer",),
    ),
    Bug(
        "a tab follows every branch",
        "stores/thread_handle.py",
        "drafts, runs = self.follow_drafts(branch=branch), self.follow_runs(branch=branch)",
        "drafts, runs = self.follow_drafts(branch=branch), self.follow_runs()",
        ("case:messages/follow-all@memory",),
    ),
    Bug(
        "a server that stops forgets its own handler",
        "sse.py",
        "    if callable(then):",
        "    if not callable(then):",
        ("test:tests/unit/test_sse_shutdown.py",),
        hangs=True,
    ),
    Bug(
        "a tool is run after its run was stopped",
        "workers/job.py",
        "        if self.stopped:\n            return Message.tool(call.id, NOT_MADE, is_error=True)\n",
        "",
        ("test:tests/workers/test_tool_calls.py::test_no_tool_is_run_once_the_run_is_stopped",),
    ),
    Bug(
        "a worker that lost its lease releases the run of its successor",
        "workers/hold.py",
        "self.lost = self.lost and current.rev == self.run.rev",
        "self.lost = self.lost or current.rev == self.run.rev",
        ("test:tests/workers/test_takeovers.py", "test:tests/workers/test_paused.py"),
        hangs=True,
    ),
    Bug(
        "a commit without messages ends the draft",
        "workers/job.py",
        "if messages or self.stopped or self.run.status != RUNNING:",
        "if self.run.status:",
        ("test:tests/workers/test_drafts.py::test_a_commit_without_messages_cuts_nothing_off",),
        hangs=True,
    ),
    Bug(
        "a tab looks through the runs of other branches again and again",
        "stores/run_following.py",
        "self._branch is not None and self._since is None:",
        "self._branch is not None:",
        ("test:tests/unit/test_run_following.py",),
    ),
    Bug(
        "browsers are sent the thinking inside a result",
        "model/public_json.py",
        "not isinstance(block, Opaque) and type(block).__struct_config__.tag not in _HIDDEN",
        "not isinstance(block, Opaque)",
        ("test:tests/unit/test_public_json.py",),
    ),
    Bug(
        "a call that a person denied is made",
        "workers/tool_loop.py",
        "if job.decision(call) is not None and not job.approved(call):",
        "if _is_chosen(self.ask, call) and not job.approved(call):",
        (f"{LOOP}::test_what_a_person_has_denied_is_not_done_whatever_ask_says_by_then",),
    ),
    Bug(
        "people are asked about a call that may have been made",
        "workers/tool_loop.py",
        " and not self._is_cut_off(job, call)\n\n",
        "\n\n",
        (f"{LOOP}::test_nobody_is_asked_about_a_call_that_may_have_been_made",),
        hangs=True,
    ),
    Bug(
        "a job forgets that it has started a tool",
        "workers/hold.py",
        "        self._started.add(call.id)",
        "        self._started.discard(call.id)",
        (f"{LOOP}::test_a_tool_that_takes_too_long_is_not_started_again",),
        hangs=True,
    ),
    Bug(
        "a second question forgets the first decision",
        "workers/hold.py",
        "calls.numbered([*decided, *wait.tickets])",
        "calls.numbered([*decided[:0], *wait.tickets])",
        (f"{LOOP}::test_a_decision_is_not_forgotten_when_more_is_asked",),
        hangs=True,
    ),
)
