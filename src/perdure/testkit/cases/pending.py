"""Cases: pending messages. Append, edit, retract, reorder and list, with every conflict.

A message that was delivered but not read may still change; a revision guards every change, and none is visible in part.
Freezing has its own modules (`pending_freeze`, `pending_selection`), and so has the queue (`pending_queues`).
"""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import AlreadyExists, InvalidError, NotFoundError, VersionConflict
from perdure.model.faithful import Extra
from perdure.model.message import Message, Text, ToolResult, ToolUse
from perdure.model.pending import DeliveryMode
from perdure.testkit.helpers import commit_texts, conflict, enqueue, pending_texts, queue_texts
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import untouched


@case("pending", "append-positions", covers=("pending.append", "pending.list", "pending.iter"))
async def case_append_positions(kit: Kit) -> None:
    """Appended messages get dense positions, revision 1, the default mode, and an id when they bring none."""
    await kit.store.threads.create("t")
    made = await kit.store.pending.append("t", [Message.user("a"), Message.user("b", id="mine")])
    equal([item.position for item in made], [1, 2], "positions")
    equal([item.revision for item in made], [1, 1], "revisions")
    equal(made[1].id, "mine", "a given id is kept")
    equal(len(made[0].id), 26, "a minted id")
    equal(made[0].message.id, made[0].id, "the message carries its id")
    equal(made[0].created_at, kit.clock.now, "created_at")
    equal((await kit.store.pending.list("t")).items, list(made), "the list shows what append returned")
    equal(await collect(kit.store.pending.iter("t")), list(made), "and so does iter")


@case("pending", "append-continues", covers=("pending.append",))
async def case_append_continues(kit: Kit) -> None:
    """A later append continues the positions and carries its own mode."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a", "b")
    later = await kit.store.pending.append("t", [Message.user("c")], mode=DeliveryMode(boundary="next_step"))
    equal(later[0].position, 3, "a later append continues the positions")
    equal(later[0].mode.boundary, "next_step", "its mode")
    equal(await queue_texts(kit.store, "t"), ["a", "b", "c"], "the queue")


@case("pending", "append-faithful", covers=("pending.append", "pending.list"))
async def case_append_faithful(kit: Kit) -> None:
    """Message and mode come back equal, unknown fields and blocks included."""
    await kit.store.threads.create("t")
    message = Message.from_json(
        {
            "id": "m1",
            "role": "user",
            "content": [{"type": "text", "text": "hé", "cache": {"x": [1, None]}}, {"type": "hologram", "data": 7}],
            "metadata": {"lang": "fr"},
            "sender_agent_id": "other",
            "future_field": {"deep": True},
        }
    )
    mode = DeliveryMode(
        boundary="interrupt",
        granularity="one",
        barrier=True,
        target_run_id="r",
        fallback_to_new_run=False,
        extra=Extra(urgency=3),
    )
    await kit.store.pending.append("t", [message], mode=mode)
    item = (await kit.store.pending.list("t")).items[0]
    equal(item.message, message, "the message, unknown parts included")
    equal(item.mode, mode, "the mode, unknown parts included")


@case("pending", "append-bad-shape", covers=("pending.append",))
async def case_append_bad_shape(kit: Kit) -> None:
    """A message of a wrong shape, and an empty append, are refused before anything is written."""
    await kit.store.threads.create("t")
    call = ToolUse(id="c", name="f")
    bad: list[Any] = [
        Message(role="tool", content=[Text("no result")]),
        Message(role="user", content=[ToolResult(tool_use_id="c")]),
        Message(role="user", content=[call]),
        Message.assistant([call, call]),
        Message.user("x", id="  "),
        Message.user("x", metadata={"n": float("nan")}),
        "text",
    ]
    for message in bad:
        await untouched(kit.store, InvalidError, kit.store.pending.append("t", [message]), repr(message))
    await untouched(kit.store, InvalidError, kit.store.pending.append("t", []), "an empty append")


@case("pending", "append-duplicate", covers=("pending.append",))
async def case_append_duplicate(kit: Kit) -> None:
    """An id that is already pending is refused, as is one that repeats; ids are per thread."""
    await kit.store.threads.create("t")
    await kit.store.pending.append("t", [Message.user("a", id="m")])
    again = kit.store.pending.append("t", [Message.user("new", id="n"), Message.user("b", id="m")])
    await untouched(kit.store, AlreadyExists, again)
    twice = kit.store.pending.append("t", [Message.user("a", id="x"), Message.user("b", id="x")])
    await untouched(kit.store, InvalidError, twice)
    await kit.store.threads.create("u")
    await kit.store.pending.append("u", [Message.user("same id, other thread", id="m")])
    equal(await queue_texts(kit.store, "u"), ["same id, other thread"], "ids are per thread")


@case("pending", "append-consumed", covers=("pending.append",))
async def case_append_consumed(kit: Kit) -> None:
    """An id that is already in the log was consumed and cannot be pending again."""
    await kit.store.commit("t", messages=[Message.user("said", id="m")])
    error = await untouched(kit.store, InvalidError, kit.store.pending.append("t", [Message.user("x", id="m")]))
    expect("consumed" in str(error), f"the error says why: {error}")


@case("pending", "bad-mode", covers=("pending.append", "pending.edit", "pending.freeze"))
async def case_bad_mode(kit: Kit) -> None:
    """A delivery mode with unknown words or wrong types is refused everywhere a mode can be given."""
    await kit.store.threads.create("t")
    await kit.store.pending.append("t", [Message.user("a", id="m")])
    bad: list[Any] = [
        DeliveryMode(boundary="sometime"),
        DeliveryMode(granularity="two"),
        DeliveryMode(barrier="yes"),  # type: ignore[arg-type]
        DeliveryMode(fallback_to_new_run=1),  # type: ignore[arg-type]
        DeliveryMode(target_run_id=""),
        DeliveryMode(extra=Extra(x=float("inf"))),
        {"boundary": "next_step"},
    ]
    for mode in bad:
        what = repr(mode)
        await untouched(kit.store, InvalidError, kit.store.pending.append("t", [Message.user("x")], mode=mode), what)
        await untouched(kit.store, InvalidError, kit.store.pending.edit("t", "m", Message.user("x"), mode=mode), what)
        frozen = kit.store.pending.freeze("t", messages=[Message.user("x")], mode=mode)
        await untouched(kit.store, InvalidError, frozen, what)


@case("pending", "too-large", covers=("pending.append", "pending.edit"))
async def case_too_large(kit: Kit) -> None:
    """A message that no commit could hold is refused when it is delivered, not when it is read."""
    await kit.store.threads.create("t")
    await kit.store.pending.append("t", [Message.user("a", id="m")])
    huge = Message.user("x" * (limits.MESSAGE_BYTES + 1))
    await untouched(kit.store, InvalidError, kit.store.pending.append("t", [huge]))
    await untouched(kit.store, InvalidError, kit.store.pending.edit("t", "m", huge))


@case("pending", "missing-thread", covers=("pending.append", "pending.list"))
async def case_missing_thread(kit: Kit) -> None:
    """No thread, no queue: every call on a missing or deleted thread is not found."""
    pending, message = kit.store.pending, Message.user("x")
    await kit.store.threads.create("gone")
    await kit.store.threads.delete("gone")
    for thread in ("never", "gone"):
        await untouched(kit.store, NotFoundError, pending.append(thread, [message]), "append")
        await untouched(kit.store, NotFoundError, pending.edit(thread, "m", message), "edit")
        await untouched(kit.store, NotFoundError, pending.retract(thread, "m"), "retract")
        await untouched(kit.store, NotFoundError, pending.reorder(thread, ["m"]), "reorder")
        await untouched(kit.store, NotFoundError, pending.freeze(thread, messages=[message]), "freeze")
        await untouched(kit.store, NotFoundError, pending.list(thread), "list")


@case("pending", "bad-ids", covers=("pending.edit", "pending.retract", "pending.reorder"))
async def case_bad_ids(kit: Kit) -> None:
    """An invalid id is refused as such, not reported as missing."""
    await kit.store.threads.create("t")
    pending, message = kit.store.pending, Message.user("x")
    bad: list[Any] = ["", "  ", 7, None, "a\nb", "x" * 257]
    for name in bad:
        await untouched(kit.store, InvalidError, pending.edit("t", name, message), f"edit {name!r:.20}")
        await untouched(kit.store, InvalidError, pending.retract("t", name), f"retract {name!r:.20}")
        await untouched(kit.store, InvalidError, pending.reorder("t", [name]), f"reorder {name!r:.20}")
        await untouched(kit.store, InvalidError, pending.append(name, [message]), f"append to {name!r:.20}")
    after: Any = 7
    await raises(InvalidError, pending.threads(after=after))


@case("pending", "edit", covers=("pending.edit",))
async def case_edit(kit: Kit) -> None:
    """An edit replaces the message, keeps id, place and mode, and raises the revision."""
    await kit.store.threads.create("t")
    first, second = await enqueue(kit.store, "t", "a", "b", mode=DeliveryMode(boundary="next_step"))
    made = kit.clock.now
    kit.clock.advance(1_000)
    item = await kit.store.pending.edit("t", first, Message.user("A"))
    equal((item.id, item.position, item.revision), (first, 1, 2), "id, place and revision")
    equal((item.created_at, item.updated_at), (made, kit.clock.now), "times")
    equal(item.mode.boundary, "next_step", "the mode stays unless given")
    item = await kit.store.pending.edit("t", second, Message.user("B", id=second), mode=DeliveryMode(barrier=True))
    equal(item.mode, DeliveryMode(barrier=True), "a given mode replaces")
    equal(await queue_texts(kit.store, "t"), ["A", "B"], "the queue")


@case("pending", "edit-stale", covers=("pending.edit",))
async def case_edit_stale(kit: Kit) -> None:
    """An edit under an old revision is a conflict that names both revisions."""
    await kit.store.threads.create("t")
    (name,) = await enqueue(kit.store, "t", "a")
    await kit.store.pending.edit("t", name, Message.user("b"), if_revision=1)
    late = kit.store.pending.edit("t", name, Message.user("c"), if_revision=1)
    conflict(await untouched(kit.store, VersionConflict, late), 1, 2)
    item = await kit.store.pending.edit("t", name, Message.user("c"), if_revision=2)
    equal(item.revision, 3, "the right revision goes on")


@case("pending", "edit-id", covers=("pending.edit",))
async def case_edit_id(kit: Kit) -> None:
    """An edit cannot change the message id."""
    await kit.store.threads.create("t")
    (name,) = await enqueue(kit.store, "t", "a")
    await untouched(kit.store, InvalidError, kit.store.pending.edit("t", name, Message.user("b", id="other")))


@case("pending", "edit-unknown", covers=("pending.edit", "pending.retract"))
async def case_edit_unknown(kit: Kit) -> None:
    """An entry that never was is not found."""
    await kit.store.threads.create("t")
    await enqueue(kit.store, "t", "a")
    await untouched(kit.store, NotFoundError, kit.store.pending.edit("t", "missing", Message.user("b")))
    await untouched(kit.store, NotFoundError, kit.store.pending.retract("t", "missing"))


@case("pending", "edit-bad-shape", covers=("pending.edit",))
async def case_edit_bad_shape(kit: Kit) -> None:
    """An edit obeys the shape rules of messages."""
    await kit.store.threads.create("t")
    (name,) = await enqueue(kit.store, "t", "a")
    bad: list[Any] = [Message(role="tool", content=[]), Message.user([ToolUse(id="c", name="f")]), None]
    for message in bad:
        await untouched(kit.store, InvalidError, kit.store.pending.edit("t", name, message), repr(message))


@case("pending", "retract", covers=("pending.retract",))
async def case_retract(kit: Kit) -> None:
    """A retracted message is gone, the rest moves up with its revisions untouched; its id is free again."""
    await kit.store.threads.create("t")
    names = await enqueue(kit.store, "t", "a", "b", "c")
    await kit.store.pending.edit("t", names[2], Message.user("C"))
    await kit.store.pending.retract("t", names[0])
    items = (await kit.store.pending.list("t")).items
    equal([(i.message.text, i.position, i.revision) for i in items], [("b", 1, 1), ("C", 2, 2)], "the rest moves up")
    await kit.store.pending.append("t", [Message.user("again", id=names[0])])
    equal(await queue_texts(kit.store, "t"), ["b", "C", "again"], "a retracted id may come back")


@case("pending", "retract-stale", covers=("pending.retract",))
async def case_retract_stale(kit: Kit) -> None:
    """A retract under an old revision is a conflict; a second retract finds nothing."""
    await kit.store.threads.create("t")
    (name,) = await enqueue(kit.store, "t", "a")
    await kit.store.pending.edit("t", name, Message.user("b"))
    conflict(await untouched(kit.store, VersionConflict, kit.store.pending.retract("t", name, if_revision=1)), 1, 2)
    await kit.store.pending.retract("t", name, if_revision=2)
    equal(await queue_texts(kit.store, "t"), [], "the right revision retracts")
    await untouched(kit.store, NotFoundError, kit.store.pending.retract("t", name), "a second retract")


@case("pending", "reorder", covers=("pending.reorder",))
async def case_reorder(kit: Kit) -> None:
    """A reorder puts the whole queue into the given order and raises every revision."""
    await kit.store.threads.create("t")
    a, b, c = await enqueue(kit.store, "t", "a", "b", "c")
    before = (await kit.store.pending.list("t")).revision
    queue = await kit.store.pending.reorder("t", [c, a, b], if_revision=before)
    equal(pending_texts(queue.items), ["c", "a", "b"], "the new order")
    equal([item.position for item in queue.items], [1, 2, 3], "positions")
    equal([item.revision for item in queue.items], [2, 2, 2], "every revision rises")
    equal(queue, await kit.store.pending.list("t"), "the returned queue is the stored one")


@case("pending", "reorder-stale", covers=("pending.reorder",))
async def case_reorder_stale(kit: Kit) -> None:
    """A reorder under an old queue revision is a conflict and keeps the order."""
    await kit.store.threads.create("t")
    a, b = await enqueue(kit.store, "t", "a", "b")
    revision = (await kit.store.pending.list("t")).revision
    await kit.store.pending.edit("t", a, Message.user("A"))
    now = (await kit.store.pending.list("t")).revision
    late = kit.store.pending.reorder("t", [b, a], if_revision=revision)
    conflict(await untouched(kit.store, VersionConflict, late), revision, now)
    equal(await queue_texts(kit.store, "t"), ["A", "b"], "the order is kept")


@case("pending", "reorder-partial", covers=("pending.reorder",))
async def case_reorder_partial(kit: Kit) -> None:
    """A reorder names every entry once: short and long lists, strangers and repeats are refused."""
    await kit.store.threads.create("t")
    a, b = await enqueue(kit.store, "t", "a", "b")
    conflict(await untouched(kit.store, VersionConflict, kit.store.pending.reorder("t", [a])), 1, 2)
    conflict(await untouched(kit.store, VersionConflict, kit.store.pending.reorder("t", [a, b, "c"])), 3, 2)
    await untouched(kit.store, NotFoundError, kit.store.pending.reorder("t", [a, "missing"]))
    await untouched(kit.store, InvalidError, kit.store.pending.reorder("t", [a, a]))


@case("pending", "reorder-empty", covers=("pending.reorder",))
async def case_reorder_empty(kit: Kit) -> None:
    """An empty queue takes an empty order."""
    await kit.store.threads.create("t")
    equal((await kit.store.pending.reorder("t", [])).items, [], "an empty queue in an empty order")


@case("pending", "revision-rises", covers=("pending.list",))
async def case_revision_rises(kit: Kit) -> None:
    """The queue's revision changes with every kind of change and never repeats."""
    await kit.store.threads.create("t")
    store, revisions = kit.store, []

    async def note() -> None:
        revisions.append((await store.pending.list("t")).revision)

    await note()
    a, b, _ = await enqueue(store, "t", "a", "b", "c")
    await note()
    await store.pending.edit("t", a, Message.user("A"))
    await note()
    await store.pending.retract("t", b)
    await note()
    await store.pending.reorder("t", [item.id for item in reversed((await store.pending.list("t")).items)])
    await note()
    await store.pending.freeze("t")
    await note()
    await enqueue(store, "t", "again")
    await note()
    equal(revisions, sorted(set(revisions)), "revisions rise and never repeat")


@case("pending", "list-empty", covers=("pending.list",))
async def case_list_empty(kit: Kit) -> None:
    """An unused queue is empty at revision 0."""
    await commit_texts(kit.store, "t", "hello")
    queue = await kit.store.pending.list("t")
    equal((queue.items, queue.revision), ([], 0), "an unused queue")
