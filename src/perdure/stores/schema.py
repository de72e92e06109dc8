"""The product's schema: every table and log of the conversation stores, declared once for all engines.

Scope leads every key; `rev` and `body` are implicit. A thread is two rows: `threads` is cold and changes when a person
changes something; `thread_heads` is hot, narrow and patched by every commit, and a thread is alive exactly as long as
its hot row exists. Listing needs its order on the hot row; the `resource` and `parent` indexes are sparse, so that a
commit on a thread with neither pays for one index only. The other lists are grouped by `child`, so that roots need no
index of their own; see `stores.thread_lists`.

`owner` names the thread that a row or a log belongs to: deleting, exporting, importing and auditing a thread go by it,
through `stores.ownership`. A table without an owner (`profiles`) belongs to the scope.
"""

from __future__ import annotations

from perdure.kernel.schema import Index, Log, Schema, Table, integer, text

THREADS = Table(
    "threads",
    key=text("thread"),
    columns=text("parent", "resource", "title") + integer("created_at", "deleted_at", "erased_at"),
    indexes=(Index("deleted", by=(), order=("deleted_at",)),),
    owner="thread",
)
"""Cold: lineage, title, custom metadata (body), and the tombstone of a deleted thread."""

THREAD_HEADS = Table(
    "thread_heads",
    key=text("thread"),
    columns=(
        integer("version", "branch", "branches", "fence", "children", "born", "created_at", "updated_at")
        + text("active_run", "open_run", "latest_run", "parent", "resource")
        + integer("child")
    ),
    indexes=(
        Index("active", by=("child",), order=("updated_at",)),
        Index("created", by=("child",), order=("created_at",)),
        Index("resource_active", by=("resource", "child"), order=("updated_at",), sparse=1),
        Index("resource_created", by=("resource", "child"), order=("created_at",), sparse=1),
        Index("parent_active", by=("parent",), order=("updated_at",), sparse=True),
        Index("parent_created", by=("parent",), order=("created_at",), sparse=True),
        Index("family_active", by=("resource", "parent"), order=("updated_at",), sparse=True),
        Index("family_created", by=("resource", "parent"), order=("created_at",), sparse=True),
    ),
    owner="thread",
)
"""Hot: version, current branch, number of branches made, fence, run pointers, and the copies that listing needs.
`born` is a random number that distinguishes a thread from an earlier one with the same id; `child` is 1 for a thread
with a parent, 0 for a root, and NULL in a row of an older version until housekeeping fills it in."""

BRANCHES = Table(
    "branches",
    key=text("thread") + integer("branch"),
    columns=integer("parent", "fork_seq", "head_seq", "length", "created_at", "deleted_at")
    + text("fork", "head", "name"),
    unique=(("thread", "name"),),
    owner="thread",
)
"""One row per branch, the main one (0) included; `length` counts the records written on the branch itself."""

LABELS = Table("labels", key=text("thread", "message"), columns=integer("seq", "at") + text("label"), owner="thread")
"""A label on a message: outside the tree, never in the history."""

RUNS = Table(
    "runs",
    key=text("run"),
    columns=(
        text("thread", "agent_id", "status", "parent_run_id")
        + integer("branch", "created_at", "started_at", "finished_at", "updated_at")
        + integer("steps", "input_tokens", "output_tokens")
        + integer("input_first", "input_last", "output_first", "output_last", "output_count")
    ),
    indexes=(
        Index("created", by=(), order=("created_at",)),
        Index("thread", by=("thread",), order=("created_at",)),
        Index("status", by=("status",), order=("created_at",)),
        Index("thread_status", by=("thread", "status"), order=("created_at",)),
        Index("agent", by=("agent_id",), order=("created_at",)),
    ),
    owner="thread",
)
"""Counters and times are columns, so that a step patches numbers and leaves the body alone."""

STATE = Table("state", key=text("thread", "run", "name"), columns=integer("schema", "at"), owner="thread")
"""One document per name, owned by a thread (run is empty) or by one of its runs."""

KEYS = Table(
    "keys",
    key=text("thread", "key"),
    columns=integer("version", "count", "at") + text("digest", "run"),
    indexes=(Index("age", by=(), order=("at",)),),
    owner="thread",
)
"""Idempotency keys with what their receipt needs."""

PENDING = Table(
    "pending",
    key=text("thread", "id"),
    columns=integer("position", "revision", "created_at", "updated_at"),
    indexes=(Index("position", by=("thread",), order=("position",)),),
    owner="thread",
)
"""Delivered but unread messages; the body holds the message and its delivery mode."""

QUEUES = Table(
    "queues",
    key=text("thread"),
    columns=integer("count", "revision") + text("waiting"),
    indexes=(Index("waiting", by=(), order=("waiting",)),),
    owner="thread",
)
"""The guard row of a thread's pending messages; `waiting` is the thread id while there are any."""

PROFILES = Table(
    "profiles",
    key=text("owner", "key"),
    columns=integer("schema", "created_at", "updated_at", "expires_at"),
    indexes=(Index("expiry", by=(), order=("expires_at",), sparse=True),),
)
"""Documents of a user, an agent or the application; no thread owns them. Only those that expire are in the index."""

MESSAGES = Log(
    "messages",
    partition="thread",
    columns=text("id", "role") + integer("branch") + text("visibility", "run") + integer("step", "at"),
    unique=("id",),
    segment="branch",
    owner="thread",
)
"""Every message of a thread over all branches, in commit order; seq is the thread's version after it."""

# Version 2 added the column threads.erased_at and the index runs.thread_status. Version 3 added the column
# thread_heads.child, by which it grouped the indexes active, created, resource_active and resource_created, and the
# indexes thread_heads.family_* and runs.agent, and the table profiles. Every change of a released version bumps the
# number; tests/fixtures holds a file of each older version, and a test opens it.
SCHEMA = Schema(
    version=3,
    tables=(THREADS, THREAD_HEADS, BRANCHES, LABELS, RUNS, STATE, KEYS, PENDING, QUEUES, PROFILES),
    logs=(MESSAGES,),
)
