"""Planted bugs: runs that are run again, and the variants of their turns."""

from __future__ import annotations

from tests.planted.bug import Bug

RERUN_BUGS = (
    Bug(
        "a question behind a page of runs belongs to none",
        "stores/runs_of_messages.py",
        "if len(rows) < limits.PAGE_MAX:",
        "if len(rows) <= limits.PAGE_MAX:",
        ("case:runs/rerun-message-many@memory",),
    ),
    Bug(
        "a message belongs to the run that it names, even of another thread",
        "stores/runs_of_messages.py",
        'rows[0] is not None and rows[0]["thread"] == thread_id',
        "rows[0] is not None",
        ("case:runs/rerun-message-refused@memory",),
    ),
    Bug(
        "a page hides an open call, and its live updates begin after it",
        "stores/message_pages.py",
        "return min([end, *(item.seq - 1 for item in calls if item.seq > part.previous)])",
        "return end",
        ("case:messages/page-follow@memory",),
    ),
    Bug(
        "a page of history ends at a summary's own seq",
        "stores/message_pages.py",
        "if start is not None and _reaches_end(view.path, end):",
        "if start is not None:",
        ("case:messages/page-arguments@memory",),
    ),
    Bug(
        "a handle with a resource follows the thread of another one",
        "stores/following.py",
        "    check_resource(head, seat.resource)\n",
        "",
        ("case:threads/handle-owned@memory",),
    ),
    Bug(
        "a handle with a resource changes the thread of another one",
        "stores/thread_handle.py",
        "await self._store.threads.get(self._id, resource_id=self._resource)\n\n    @overload",
        "await self._store.threads.get(self._id)\n\n    @overload",
        ("case:threads/handle-owned@memory",),
    ),
    Bug(
        "a rerun begins at the visible output, so internal messages of the old turn stay",
        "stores/fork_points.py",
        'where={"run": run.id}, limit=1)',
        'where={"run": run.id, "visibility": "all"}, limit=1)',
        ("case:runs/rerun-internal@memory",),
    ),
    Bug(
        "a rerun takes an input that names its run for its output",
        "stores/fork_points.py",
        "after = 0 if span is None else span.to_seq",
        "after = 0",
        ("case:runs/rerun-named-input@memory",),
    ),
    Bug(
        "a rerun does not look whether a run began meanwhile",
        "stores/forking.py",
        "unmoved=fork.replaces,",
        "unmoved=False,",
        ("case:runs/rerun-overtaken@memory",),
    ),
    Bug(
        "a rerun leaves open runs alone that are not the old run",
        "stores/run_cancelling.py",
        "for status in (RUNNING, WAITING)],",
        "for status in (RUNNING,)],",
        ("case:runs/rerun-replaces@memory",),
    ),
    Bug(
        "a rerun cancels before it looks at its fence",
        "stores/forking.py",
        "answer = await _settle(context, commit, better)",
        "answer = Guess(0, False, head_rev=(await find_origin(context, commit.thread_id, fork, edits=True))[0].rev)",
        ("case:runs/rerun-refused@memory", "case:runs/rerun-key@memory"),
    ),
    Bug(
        "an edit keeps the question that it replaces",
        "stores/fork_points.py",
        "if edits and run.input is not None and run.input.range is not None:",
        "if edits and run.input is None:",
        ("case:runs/rerun-edited@memory",),
    ),
    Bug(
        "a regenerated run forgets its input, so that editing it forks elsewhere",
        "stores/rerunning.py",
        "input=same_input if asked.messages is None else None",
        "input=None",
        ("case:runs/rerun-again@memory",),
    ),
    Bug(
        "the key of a rerun does not cover which run it is about",
        "stores/commit/request.py",
        "return where if self.rerun is None else [*where, self.rerun]",
        "return where",
        ("case:runs/rerun-key@memory",),
    ),
    Bug(
        "a worker that is always faster prevents a rerun",
        "stores/forking.py",
        "polite=attempts <= POLITE_ATTEMPTS",
        "polite=True",
        ("case:runs/rerun-eager@memory",),
    ),
    Bug(
        "turns that begin with an internal message are not counted by people",
        "stores/variants.py",
        "visible = await first_visible(context, head, {*siblings, *asked})",
        "visible = {one: one for one in siblings if one.visibility == ALL}",
        ("case:branches/variants-of-internal-turns@memory",),
    ),
    Bug(
        "runs with an undecided ticket are listed as ready",
        "stores/runs.py",
        "and (not self.ready or run_from(run).ready)",
        "",
        ("case:runs/list-ready@memory",),
    ),
)
