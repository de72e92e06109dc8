"""Creates threads: the rows of a new thread, and the checks that its parent is valid.

A new child patches its parent's hot row, which fails if the parent is gone; a changed parent is validated by checks
along the whole ancestor path, inside the transaction, so that two racing writers cannot close a cycle.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure import limits
from perdure.errors import InvalidError, NotFoundError
from perdure.ids import new_rev
from perdure.kernel.ops import ABSENT, NOW, PRESENT, Check, Condition, Get, Inc, Op, Patch, Put, Row
from perdure.model.branch import MAIN
from perdure.model.faithful import write
from perdure.model.thread import ThreadBody
from perdure.stores.context import Context

MAIN_NAME = "main"


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a thread when it is created. `tombstone` is the rev of an erased row to replace."""

    thread_id: str
    parent: str | None = None
    resource: str | None = None
    title: str | None = None
    body: ThreadBody = ThreadBody()
    tombstone: int | None = None


def birth_ops(birth: Birth, head: dict[str, Any], main: dict[str, Any]) -> list[Op]:
    """The rows of a new thread. `head` and `main` add what the first commit already puts on its hot row and branch."""
    thread = birth.thread_id
    cold = {"parent": birth.parent, "resource": birth.resource, "title": birth.title, "created_at": NOW}
    hot = {
        "version": 0,
        "branch": MAIN,
        "branches": 1,
        "children": 0,
        "born": new_rev() >> 1,
        "created_at": NOW,
        "updated_at": NOW,
        "parent": birth.parent,
        "resource": birth.resource,
        **head,
    }
    branch = {"fork_seq": 0, "head_seq": 0, "length": 0, "created_at": NOW, "name": MAIN_NAME, **main}
    fresh: Condition = ABSENT if birth.tombstone is None else birth.tombstone
    ops: list[Op] = [
        Put("threads", (thread,), cold, write(birth.body), fresh),
        Put("thread_heads", (thread,), hot, None, ABSENT),
        Put("branches", (thread, MAIN), branch, None, ABSENT),
    ]
    if birth.parent is not None:
        ops.append(Patch("thread_heads", (birth.parent,), {"children": Inc(1)}, PRESENT))
    return ops


def is_expired(tombstone: Row, now: int) -> bool:
    """Is the deleted thread of this id gone long enough for a commit to use the id? `now` is the engine's time."""
    erased: int | None = tombstone["erased_at"]
    return erased is not None and erased + limits.KEY_RETENTION_MS < now


async def detach_parent_ops(context: Context, parent: str | None) -> list[Op]:
    """Count one child less at a parent. A parent whose row is missing (damage) must not hold the child back."""
    if parent is None:
        return []
    (head,) = (await context.view(Get("thread_heads", [(parent,)])))[0]
    return [] if head is None else [Patch("thread_heads", (parent,), {"children": Inc(-1)}, PRESENT)]


async def ancestor_checks(context: Context, thread_id: str, parent: str | None) -> list[Op]:
    """Walk up from a parent-to-be; the checks that keep what was seen true until the commit.

    Raises `InvalidError` for itself or a cycle, `NotFoundError` for a missing parent or a damaged chain.
    """
    if parent is None:
        return []
    if parent == thread_id:
        raise InvalidError(f"thread {thread_id!r} cannot parent itself")
    checks: list[Op] = []
    ancestors = {thread_id}
    current: str | None = parent
    while current is not None:
        if current in ancestors:
            raise InvalidError(f"the hierarchy would have a cycle at thread {current!r}")
        if len(ancestors) > limits.ANCESTORS:
            raise InvalidError(f"the hierarchy is deeper than {limits.ANCESTORS} threads")
        ancestors.add(current)
        cold, hot = await context.view(Get("threads", [(current,)]), Get("thread_heads", [(current,)]))
        if cold[0] is None or hot[0] is None:
            missing = "parent thread" if current == parent else "the hierarchy is damaged: ancestor thread"
            raise NotFoundError(f"{missing} {current!r} does not exist")
        checks.append(Check("threads", (current,), {"parent": cold[0]["parent"], "deleted_at": None}))
        current = cold[0]["parent"]
    return checks
