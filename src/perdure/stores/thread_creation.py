"""Creates threads: the rows of a new thread, and the checks that its parent is valid.

A new child patches its parent's hot row, which fails if the parent is gone; a changed parent is validated by checks
along the whole ancestor path, inside the transaction, so that two racing writers cannot close a cycle.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError, NotFoundError, short_repr
from perdure.ids import new_rev
from perdure.kernel import codec
from perdure.kernel.ops import ABSENT, NOW, PRESENT, Check, Condition, Get, Inc, Op, Patch, Put, Row
from perdure.model.branch import MAIN
from perdure.model.stored_json import write
from perdure.model.thread import NewThread, ThreadBody
from perdure.rules import checks
from perdure.stores.context import Context
from perdure.stores.tombstones import is_dispersing, is_unfinished

MAIN_NAME = "main"


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a thread when it is created. `tombstone` is the rev of an erased row to replace."""

    thread_id: str
    parent: str | None = None
    resource: str | None = None
    title: str | None = None
    body: ThreadBody = ThreadBody()
    tombstone: int | None = None


def birth_of(thread_id: str, new: NewThread) -> Birth:
    """What a thread is created with, checked; raises `InvalidError`."""
    return Birth(
        thread_id=thread_id,
        parent=checks.lineage(new.parent_thread_id, "parent_thread_id"),
        resource=checks.lineage(new.resource_id, "resource_id"),
        title=checks.check_title(new.title),
        body=with_custom(ThreadBody(), new.custom),
    )


def with_custom(body: ThreadBody, custom: Any) -> ThreadBody:
    """A thread's body with other metadata; None clears it."""
    check_custom(custom)
    return msgspec.structs.replace(body, custom={} if custom is None else custom)


def check_custom(custom: Any) -> None:
    """Refuse metadata that is not a JSON object, or is too large."""
    if custom is None:
        return
    if type(custom) is not dict:
        raise InvalidError(f"custom must be an object, not {short_repr(custom)}")
    codec.encode_checked(custom, "custom", limits.CUSTOM_BYTES)


def child_flag(parent: str | None) -> int:
    """The column `child` of a hot row: lists of all threads and of roots read their order under it."""
    return 0 if parent is None else 1


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
        "child": child_flag(birth.parent),
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
    return erased is not None and not is_dispersing(tombstone) and erased + limits.KEY_RETENTION_MS < now


def after_refusal(birth: Birth, cold: Row | None) -> Birth:
    """A birth whose id was not free and belongs to no living thread: with the tombstone to replace, if there is one.

    Raises `AlreadyExists` while the deleted thread of this id is being erased.
    """
    if cold is None:
        return msgspec.structs.replace(birth, tombstone=None)
    if is_unfinished(cold):
        name = birth.thread_id
        raise AlreadyExists(f"thread {name!r} is being erased", actual=name, hint="try again when that is done")
    return msgspec.structs.replace(birth, tombstone=cold.rev)


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
    guards: list[Op] = []
    ancestors = {thread_id}
    current: str | None = parent
    while current is not None:
        if current in ancestors:
            raise InvalidError(f"the hierarchy would have a cycle at thread {current!r}")
        if len(ancestors) > limits.ANCESTORS:
            raise InvalidError(f"the hierarchy is deeper than {limits.ANCESTORS} threads")
        ancestors.add(current)
        cold, hot = await context.view(Get("threads", [(current,)]), Get("thread_heads", [(current,)]))
        if current != parent and hot[0] is None and cold[0] is not None and is_dispersing(cold[0]):
            break  # a deletion that has not reached its children yet: the hierarchy ends below it
        if cold[0] is None or hot[0] is None:
            missing = "parent thread" if current == parent else "the hierarchy is damaged: ancestor thread"
            raise NotFoundError(f"{missing} {current!r} does not exist")
        guards.append(Check("threads", (current,), {"parent": cold[0]["parent"], "deleted_at": None}))
        current = cold[0]["parent"]
    return guards
