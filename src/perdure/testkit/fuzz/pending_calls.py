"""Random calls on pending messages: append, edit, reorder, retract, freeze into the log."""

from __future__ import annotations

from perdure.testkit.fuzz.commit_calls import change_of_run, keyed, new_run
from perdure.testkit.fuzz.random_calls import Call, Scene
from perdure.testkit.fuzz.random_messages import Messages
from perdure.testkit.reference.pending import RISING, select
from perdure.testkit.reference.records import Json, Thread


def enqueue(scene: Scene) -> Call | None:
    """Append to a queue."""
    thread = scene.thread()
    if thread is None:
        return None
    messages = _inputs(scene, thread, 2)
    if scene.chance(0.04) and (thread.log or thread.pending):
        messages[0]["id"] = scene.pick([*[m.id for m in thread.log], *[entry.id for entry in thread.pending]])
    arguments: Json = {"thread_id": thread.id, "messages": messages}
    if scene.chance(0.7):
        arguments["mode"] = _mode(scene, thread)
    return Call("pending.append", arguments)


def _inputs(scene: Scene, thread: Thread, most: int) -> list[Json]:
    """Messages without a summary: its seq is only known when it is committed."""
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
    arguments: Json = {"thread_id": thread.id, "message_id": scene.message_id(thread) if missing else entry.id}
    if scene.chance(0.4):
        arguments["if_revision"] = entry.revision + (1 if scene.chance(0.2) else 0)
    if name == "edit":
        (message,) = _inputs(scene, thread, 1)
        if not scene.chance(0.03):
            message.pop("id")
        arguments["message"] = message
        if scene.chance(0.3):
            arguments["mode"] = _mode(scene, thread)
    return Call(f"pending.{name}", arguments)


def _reorder(scene: Scene, thread: Thread) -> Call:
    ids = [entry.id for entry in thread.pending]
    scene.random.shuffle(ids)
    wild = scene.random.random()
    if wild < 0.05:
        ids = ids[1:]
    elif wild < 0.1:
        ids[0] = scene.pick([ids[-1], scene.message_id(thread)])
    arguments: Json = {"thread_id": thread.id, "message_ids": ids}
    if scene.chance(0.4):
        arguments["if_revision"] = thread.queue_revision - (1 if scene.chance(0.2) else 0)
    return Call("pending.reorder", arguments)


def freeze(scene: Scene) -> Call | None:
    """Take from the queue at a boundary, with a run or without, staging more first or not."""
    waiting = [thread for thread in scene.world.threads.values() if thread.pending]
    thread = scene.pick(waiting) if waiting and scene.chance(0.85) else scene.thread()
    if thread is None:
        return None
    arguments: Json = {"thread_id": thread.id, "boundary": scene.pick([*RISING, "new_run", "resume_input"])}
    record = scene.record(thread)
    if scene.chance(0.4):
        arguments["run"] = {"new": new_run(scene)}
    elif record is not None and scene.chance(0.5):
        arguments["run"] = scene.pick([{"same": record}, change_of_run(scene, record)])
    if scene.chance(0.3):
        arguments |= {"messages": _inputs(scene, thread, 2), "mode": _mode(scene, thread)}
    if scene.chance(0.3):
        run_id = next((run.get("id") for run in arguments.get("run", {}).values() if isinstance(run, dict)), None)
        selected = [entry.id for entry in select(thread.pending, arguments["boundary"], run_id)]
        arguments["expect_ids"] = selected if not scene.chance(0.15) else selected[1:]
    if scene.chance(0.15):
        arguments["branch"] = scene.branch(thread)
    if scene.chance(0.2):
        arguments["expect"] = len(thread.log) - (1 if scene.chance(0.2) and thread.log else 0)
    return keyed(scene, Call("pending.freeze", arguments))
