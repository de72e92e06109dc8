"""Bugs in how threads come into being, are listed and are deleted, and in which runs may start. See `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

THREAD_BUGS = (
    Bug(
        "a thread that is ensured is created again",
        "stores/threads.py",
        "thread = await self.find(thread_id) or await self._create(birth)",
        "thread = await self._create(birth)",
        ("case:threads/ensure@memory",),
    ),
    Bug(
        "the trace of a run wins over what the commit says of its thread",
        "stores/commit/refuse.py",
        "parent=parent if birth.parent is None else birth.parent,",
        "parent=birth.parent if parent is None else parent,",
        ("case:commit/new-thread-and-trace@memory",),
    ),
    Bug(
        "what a thread is created with is not content of a keyed commit",
        "stores/commit/request.py",
        "    if request.thread is not None:\n        # Only then",
        "    if False:\n        # Only then",
        ("case:commit/new-thread-key@memory",),
    ),
    Bug(
        "a start looks whether the thread is idle and does not guard it",
        "stores/commit/plan.py",
        "if (commit.if_idle or (guess.fork is not None and guess.fork.unmoved)) and guess.head_rev is not None:",
        "if False:",
        ("case:runs/if-idle-overtaken@memory",),
    ),
    Bug(
        "a start looks whose the thread is and does not guard it",
        "stores/commit/plan.py",
        'condition["resource"] = commit.resource',
        "pass",
        ("case:runs/start-owned*@memory",),
    ),
    Bug(
        "a key answers whoever repeats it, whosever the thread is",
        "stores/commit/refuse.py",
        "    check_resource(observed.head, commit.resource)\n",
        "    check_resource(observed.head, None if observed.key else commit.resource)\n",
        ("case:runs/start-owned-key@memory",),
    ),
    Bug(
        "space around an owner names the same one",
        "rules/checks.py",
        "if resource != value:",
        "if False:",
        ("case:threads/of-resource@memory",),
    ),
    Bug(
        "a run of another thread can be stopped",
        "stores/run_cancelling.py",
        "        run = await get_run(context, run_id, thread_id)",
        "        run = await get_run(context, run_id)",
        ("case:runs/of-thread@memory",),
    ),
    Bug(
        "a run that waits leaves its thread idle",
        "stores/commit/refuse.py",
        "statuses = (RUNNING, WAITING) if commit.if_idle else ()",
        "statuses = (RUNNING,) if commit.if_idle else ()",
        ("case:runs/if-idle*@memory",),
    ),
    Bug(
        "lists forget the rows of an older version",
        "stores/thread_lists.py",
        "(_ROOT, _CHILD, _UNKNOWN)",
        "(_ROOT, _CHILD)",
        ("case:threads/list-older-rows*@memory",),
    ),
    Bug(
        "a detached child is still listed as a child",
        "stores/deletion.py",
        'hot = {"parent": None, "child": child_flag(None), "updated_at": NOW}',
        'hot = {"parent": None, "updated_at": NOW}',
        ("case:threads/list-merged@memory", "case:threads/delete-in-chunks*@memory"),
    ),
    Bug(
        "a large family is forgotten when the process dies",
        "stores/cleanup.py",
        "Hidden(str(tombstone.key[0]), rev, dispersal_of(tombstone))",
        "Hidden(str(tombstone.key[0]), rev)",
        ("case:threads/delete-in-chunks-interrupted@sqlite",),
    ),
    Bug(
        "a tombstone with children is dropped after a week",
        "stores/thread_creation.py",
        "return erased is not None and not is_dispersing(tombstone) and",
        "return erased is not None and",
        ("case:threads/delete-in-chunks-retention@memory",),
    ),
    Bug(
        "runs of every resource are listed",
        "stores/runs.py",
        "return thread in owners and self.resource in (None, owners[thread])",
        "return thread in owners",
        ("case:runs/list-by-agent-and-resource@memory",),
    ),
)
