"""Cases: a write returns the record that is read afterwards, field by field, for all inputs.

Stores compute what they return from what they sent and what the transaction answered. These cases compare that with
the stored rows, for every shape of a record; the clock moves between writes, so that a stale time is noticed.
"""

from __future__ import annotations

from typing import Any

from perdure.model.faithful import Extra
from perdure.model.message import Message, Text, ToolResult, ToolUse
from perdure.model.pending import DeliveryMode
from perdure.model.thread import Thread
from perdure.testkit.helpers import everything, say
from perdure.testkit.kit import Kit, case, equal

RICH: dict[str, Any] = {"n": [1, 2.5, -0.0, 1e300, 2**70, True, None], "": "", "ключ": {"deep": [[{}]]}}
MODES = (
    None,
    DeliveryMode(boundary="interrupt", granularity="one"),
    DeliveryMode(boundary="on_natural_end", barrier=True, target_run_id="r", fallback_to_new_run=False),
    DeliveryMode(boundary="resume_input", extra=Extra(priority=[1, {"x": None}])),
)
MESSAGES = (
    Message.user("plain"),
    Message.user("named", id="mine"),
    Message("user", [Text("hé 🙂", extra=Extra(cache={"x": 1}))], visibility="internal", metadata=RICH),
    Message.from_json({"role": "user", "content": [{"type": "hologram", "data": 7}], "future": {"deep": True}}),
    Message("tool", [ToolResult("c", [Text("done")])], run_id="r", step=3, sender_agent_id="other"),
)


async def same_thread(kit: Kit, made: Thread, what: str) -> None:
    """A returned thread, against the stored one as another client sees it too."""
    equal(made, await kit.store.threads.get(made.id), f"{what}: returned, against get")
    other = await kit.second()
    equal(made, await other.threads.get(made.id), f"{what}: returned, against another client's get")


@case("threads", "create-returns-what-is-stored", covers=("threads.create", "threads.get"))
async def case_create_returns(kit: Kit) -> None:
    """Whatever a thread is created with, what is returned is what is read."""
    variants: list[dict[str, Any]] = [
        {},
        {"thread_id": "root", "title": ""},
        {"thread_id": "child", "parent_thread_id": "root"},
        {"parent_thread_id": " child ", "resource_id": "  someone ", "title": "Ein 'Titel' 🙂\n", "custom": RICH},
        {"resource_id": " ", "parent_thread_id": "", "custom": {}},
    ]
    for options in variants:
        kit.clock.advance(7)
        await same_thread(kit, await kit.store.threads.create(**options), f"create {options}")


@case("threads", "create-again-returns-what-is-stored", covers=("threads.create", "threads.delete"))
async def case_create_again_returns(kit: Kit) -> None:
    """A thread made in the place of a deleted one has nothing of it, in the answer as in the store."""
    await everything(kit.store)
    await kit.store.threads.update("t", title="old", custom={"old": 1})
    await kit.store.threads.delete("t")
    kit.clock.advance(7)
    await same_thread(kit, await kit.store.threads.create("t"), "create")


@case("threads", "create-keeps-no-hold", covers=("threads.create", "threads.update"))
async def case_create_keeps_no_hold(kit: Kit) -> None:
    """What is returned shares nothing with what was given: changing one does not change the other."""
    custom = {"list": [1]}
    made = await kit.store.threads.create("a", custom=custom)
    changed = await kit.store.threads.update("a", custom=custom)
    custom["list"].append(2)
    equal((made.custom, changed.custom), ({"list": [1]}, {"list": [1]}), "custom as returned")


@case("threads", "update-returns-what-is-stored", covers=("threads.update", "threads.get"))
async def case_update_returns(kit: Kit) -> None:
    """Whatever changes, on a bare thread and on one that has lived, what is returned is what is read."""
    await everything(kit.store)
    await kit.store.threads.create("bare")
    await kit.store.threads.create("child", parent_thread_id="t")
    changes: list[dict[str, Any]] = [
        {},
        {"title": "new"},
        {"custom": RICH},
        {"resource_id": " someone "},
        {"parent_thread_id": "p"},
        {"title": None, "custom": None, "resource_id": None, "parent_thread_id": None},
    ]
    await kit.store.threads.create("p")
    for name in ("t", "bare"):
        for change in changes:
            kit.clock.advance(7)
            await same_thread(kit, await kit.store.threads.update(name, **change), f"update {name} {change}")


@case("branches", "fork-returns-what-is-stored", covers=("branches.fork", "branches.get", "branches.list"))
async def case_fork_returns(kit: Kit) -> None:
    """Wherever a branch forks, named or not, switched to or not, what is returned is what is read."""
    await say(kit.store, "t", *"abc")
    call = Message.assistant([ToolUse("c", "search", {})], id="call")
    await kit.store.commit("t", messages=[call, Message.user("long " * 40, id="long")])
    await kit.store.branches.fork("t", at="b", name="side", switch=True)
    await say(kit.store, "t", "d", "e")
    variants: list[dict[str, Any]] = [
        {"at": "a"},
        {"at": "b", "name": "Ein 'Name' 🙂"},
        {"at": "call", "switch": True},
        {"at": "long"},
        {"at": "e", "switch": True, "name": "z"},
        {"at": None},
        {"at": None, "switch": True, "name": "root"},
        {"before": "a"},
        {"before": "b", "switch": True},
        {"before": "d"},
        {"before": "e", "name": "y"},
    ]
    for options in variants:
        kit.clock.advance(7)
        made = await kit.store.branches.fork("t", **options)
        equal(made, await kit.store.branches.get("t", made.id), f"fork {options}: returned, against get")
        equal([made], (await kit.store.branches.list("t"))[-1:], f"fork {options}: returned, against list")
        equal((await kit.store.branches.current("t")).id == made.id, made.current, f"fork {options}: the current one")


@case("branches", "fork-takes-another-name", covers=("branches.fork", "branches.get"))
async def case_fork_takes_another_name(kit: Kit) -> None:
    """If the name that a number suggests is in use, the generated name is the one that is returned."""
    await say(kit.store, "t", "a")
    await kit.store.branches.fork("t", at="a", name="branch-2")
    made = await kit.store.branches.fork("t", at="a")
    equal(made, await kit.store.branches.get("t", made.name), "returned, against get by that name")


@case("branches", "moves-return-what-is-stored", covers=("branches.switch", "branches.rename", "branches.get"))
async def case_moves_return(kit: Kit) -> None:
    """Switching and renaming return the branch as it is read afterwards."""
    await say(kit.store, "t", *"ab")
    await kit.store.branches.fork("t", at="a", name="x")
    for branch in ("x", "x", "main", 1):
        kit.clock.advance(7)
        moved = await kit.store.branches.switch("t", branch)
        equal(moved, await kit.store.branches.get("t", moved.id), f"switch to {branch}: returned, against get")
    for branch, name in (("x", "other"), (0, "Ein 'Name' 🙂"), ("other", "other")):
        renamed = await kit.store.branches.rename("t", branch, name)
        equal(renamed, await kit.store.branches.get("t", name), f"rename {branch}: returned, against get")


@case("pending", "append-returns-what-is-stored", covers=("pending.append", "pending.list"))
async def case_append_returns(kit: Kit) -> None:
    """Whatever messages are appended, in whatever mode, what is returned is what is read."""
    await kit.store.threads.create("t")
    behind: list[Any] = []
    for number, mode in enumerate(MODES):
        kit.clock.advance(7)
        batch = [message for message in MESSAGES if message.id is None or number == 0]
        behind.extend(await kit.store.pending.append("t", batch, mode=mode))
        equal((await kit.store.pending.list("t")).items, behind, f"the queue after an append in {mode}")


@case("pending", "changes-return-what-is-stored", covers=("pending.edit", "pending.reorder", "pending.list"))
async def case_changes_return(kit: Kit) -> None:
    """Edits and new orders return what is read afterwards; so does the order of an empty queue."""
    await kit.store.threads.create("t")
    equal(await kit.store.pending.reorder("t", []), await kit.store.pending.list("t"), "an empty queue")
    made = await kit.store.pending.append("t", [Message.user(text) for text in "abcd"])
    for item, message, mode in zip(made, MESSAGES[::2], MODES, strict=False):
        kit.clock.advance(7)
        edited = await kit.store.pending.edit("t", item.id, message, mode=mode)
        items = (await kit.store.pending.list("t")).items
        equal(edited, items[item.position - 1], f"edit in {mode}: returned, against list")
    kit.clock.advance(7)
    order = [made[index].id for index in (2, 0, 3, 1)]
    equal(await kit.store.pending.reorder("t", order), await kit.store.pending.list("t"), "reorder, against list")
    for name in order:
        await kit.store.pending.retract("t", name)
    equal(await kit.store.pending.reorder("t", []), await kit.store.pending.list("t"), "a queue that was emptied")
