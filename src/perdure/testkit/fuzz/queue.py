"""Moves on pending messages: delivered, edited, put into another order, taken back, frozen into the log."""

from __future__ import annotations

from perdure.testkit.fuzz.commits import change_of_run, keyed, new_run
from perdure.testkit.fuzz.messages import Messages
from perdure.testkit.fuzz.moves import Call, Scene
from perdure.testkit.reference.data import Json, Thread
from perdure.testkit.reference.pending import RISING, select


def enqueue(scene: Scene) -> Call | None:
    """Append to a queue."""
    thread = scene.thread()
    if thread is None:
        return None
    messages = _inputs(scene, thread, 2)
    if scene.chance(0.04) and (thread.log or thread.pending):
        messages[0]["id"] = scene.pick([*[m.id for m in thread.log], *[entry.id for entry in thread.pending]])
    given: Json = {"thread_id": thread.id, "messages": messages}
    if scene.chance(0.7):
        given["mode"] = _mode(scene, thread)
    return Call("pending.append", given)


def _inputs(scene: Scene, thread: Thread, most: int) -> list[Json]:
    """Messages without a summary: its place is only known when it is committed."""
    drawn = Messages(scene.random, thread, scene.fresh).some(most)
    return [{name: part for name, part in message.items() if name != "compaction"} for message in drawn]


def _mode(scene: Scene, thread: Thread) -> Json:
    mode: Json = {"boundary": scene.pick([*RISING, "new_run", "resume_input"])}
    mode["granularity"] = scene.pick(["batch", "batch", "one"])
    mode["barrier"] = scene.chance(0.15)
    mode["fallback_to_new_run"] = scene.chance(0.7)
    run = scene.run(thread)
    if run is not None and scene.chance(0.3):
        mode["target_run_id"] = run.id
    return mode


def requeue(scene: Scene) -> Call | None:
    """Edit, retract or reorder what is pending."""
    waiting = [thread for thread in scene.world.threads.values() if thread.pending]
    if not waiting:
        return None
    thread = scene.pick(waiting)
    entry = scene.pick(thread.pending)
    name = scene.pick(["edit", "edit", "retract", "reorder"])
    if name == "reorder":
        return _reorder(scene, thread)
    missing = scene.chance(0.05)
    given: Json = {"thread_id": thread.id, "message_id": scene.message_id(thread) if missing else entry.id}
    if scene.chance(0.4):
        given["if_revision"] = entry.revision + (1 if scene.chance(0.2) else 0)
    if name == "edit":
        (message,) = _inputs(scene, thread, 1)
        if not scene.chance(0.03):
            message.pop("id")
        given["message"] = message
        if scene.chance(0.3):
            given["mode"] = _mode(scene, thread)
    return Call(f"pending.{name}", given)


def _reorder(scene: Scene, thread: Thread) -> Call:
    ids = [entry.id for entry in thread.pending]
    scene.random.shuffle(ids)
    wild = scene.random.random()
    if wild < 0.05:
        ids = ids[1:]
    elif wild < 0.1:
        ids[0] = scene.pick([ids[-1], scene.message_id(thread)])
    given: Json = {"thread_id": thread.id, "message_ids": ids}
    if scene.chance(0.4):
        given["if_revision"] = thread.queue_revision - (1 if scene.chance(0.2) else 0)
    return Call("pending.reorder", given)


def freeze(scene: Scene) -> Call | None:
    """Take from the queue at a boundary, with a run or without, staging more first or not."""
    waiting = [thread for thread in scene.world.threads.values() if thread.pending]
    thread = scene.pick(waiting) if waiting and scene.chance(0.85) else scene.thread()
    if thread is None:
        return None
    given: Json = {"thread_id": thread.id, "boundary": scene.pick([*RISING, "new_run", "resume_input"])}
    record = scene.record(thread)
    if scene.chance(0.4):
        given["run"] = {"new": new_run(scene)}
    elif record is not None and scene.chance(0.5):
        given["run"] = scene.pick([{"same": record}, change_of_run(scene, record)])
    if scene.chance(0.3):
        given |= {"messages": _inputs(scene, thread, 2), "mode": _mode(scene, thread)}
    if scene.chance(0.3):
        run_id = next((run.get("id") for run in given.get("run", {}).values() if isinstance(run, dict)), None)
        taken = [entry.id for entry in select(thread.pending, given["boundary"], run_id)]
        given["expect_ids"] = taken if not scene.chance(0.15) else taken[1:]
    if scene.chance(0.15):
        given["branch"] = scene.branch(thread)
    if scene.chance(0.2):
        given["expect"] = len(thread.log) - (1 if scene.chance(0.2) and thread.log else 0)
    return keyed(scene, Call("pending.freeze", given))
