"""Random reads: every view and list, pages continued while the data changes, and a read of everything."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.testkit.fuzz.random_calls import AGENTS, DOCUMENTS, RESOURCES, THREADS, Call, Scene
from perdure.testkit.reference.records import Json, Thread, World

ALL = 200


def line(scene: Scene) -> Call | None:
    """History, the external view or the records of some path."""
    thread = scene.thread()
    if thread is None:
        return None
    arguments: Json = {"thread_id": thread.id}
    drawn = scene.random.random()
    if drawn < 0.3:
        arguments["branch"] = scene.branch(thread)
    elif drawn < 0.4:
        arguments["upto"] = scene.message_id(thread)
    if scene.chance(0.2):
        arguments.setdefault("upto", scene.random.randrange(len(thread.log) + 2))
    if scene.chance(0.4):
        arguments["limit"] = scene.random.randrange(8) + (0 if scene.chance(0.02) else 1)
    if "branch" in arguments and isinstance(arguments.get("upto"), str):
        del arguments["branch"]
    return Call(f"messages.{scene.pick(['history', 'history', 'external', 'path'])}", arguments)


def of_thread(scene: Scene) -> Call | None:
    """Anything that is read of a whole thread."""
    name = scene.pick(
        "load load threads.get threads.find branches.list branches.current branches.labels pending.list runs.latest "
        "messages.unfinished_calls messages.unfinished_calls state.list".split()
    )
    arguments: Json = {"thread_id": scene.thread_id()}
    thread = scene.world.threads.get(arguments["thread_id"])
    if thread is not None and name in ("load", "messages.unfinished_calls") and scene.chance(0.4):
        arguments["branch"] = scene.branch(thread)
    if name in ("threads.get", "threads.find") and scene.chance(0.3):
        arguments["resource_id"] = scene.pick(RESOURCES)
    return Call(name, arguments)


def single(scene: Scene) -> Call | None:
    """One message, run, document, range of messages or possible parent."""
    thread = scene.thread()
    if thread is None:
        return None
    run = scene.run(thread)
    run_id = "missing" if run is None else run.id
    first = scene.random.randrange(len(thread.log) + 2)
    document: Json = {"thread_id": thread.id, "name": scene.pick(DOCUMENTS)}
    if scene.chance(0.3):
        document["run_id"] = run_id
    message = {"thread_id": thread.id, "message_id": scene.message_id(thread)}
    view = scene.pick(["raw", "external"])
    known = (document.get("run_id"), document["name"]) in thread.state
    choices = [
        Call("messages.get", message),
        Call("messages.find", message),
        Call("runs.of_message", message),
        Call("branches.variants", {**message, "view": view}),
        Call("branches.variants", {"thread_id": thread.id, "run_id": run_id, "view": view}),
        Call("messages.range", {"thread_id": thread.id, "from_seq": max(1, first), "to_seq": max(1, first + 5)}),
        Call("runs.find", {"run_id": run_id, "thread_id": scene.thread_id()}),
        Call("runs.find" if run is None else "runs.get", {"run_id": run_id}),
        Call("state.get" if known or scene.chance(0.1) else "state.find", document),
        Call("threads.validate_parent", {"thread_id": thread.id, "parent_thread_id": scene.thread_id()}),
        Call("threads.with_prefix", {"prefix": thread.id[:1], "limit": 1 + first % 5}),
        Call("runs.with_prefix", {"prefix": run_id[:1], "limit": 1 + first % 5}),
        Call("pending.count", {"thread_id": thread.id}),
    ]
    return scene.pick(choices)


def first_page(scene: Scene) -> Call | None:
    """The first page of some list."""
    limit = scene.random.randrange(4) + 1 if not scene.chance(0.03) else scene.pick([0, 201])
    arguments: Json = {"limit": limit}
    name = scene.pick(
        ["threads.list", "threads.list", "runs.list", "messages.list", "messages.list", "threads.children"]
        + ["messages.page"] * 3
    )
    if name == "threads.list":
        arguments |= scene.pick([{}, {"root": True}, {"resource_id": scene.pick(RESOURCES)}, {"order": "created"}])
        if scene.chance(0.2) and "root" not in arguments:
            arguments["parent_thread_id"] = scene.thread_id()
        if scene.chance(0.2):
            arguments["resource_id"] = scene.pick(RESOURCES)
    elif name == "runs.list":
        arguments |= scene.pick([{}, {"status": scene.pick(["running", "done"])}, {"thread_id": scene.thread_id()}])
        if scene.chance(0.2):
            arguments["status"] = "running"
        if scene.chance(0.3):
            arguments |= scene.pick([{"agent_id": scene.pick(AGENTS)}, {"resource_id": scene.pick(RESOURCES)}])
        if scene.chance(0.3):
            arguments["order"] = scene.pick(["asc", "desc"])
        if scene.chance(0.2):
            arguments["ready"] = True
    else:
        arguments["thread_id"] = scene.thread_id()
    if name == "messages.page":
        arguments |= _window(scene, arguments["thread_id"])
    if name == "messages.list":
        arguments |= scene.pick([{}, {"order": "desc"}, {"visibility": "external"}, {"visibility": "internal"}])
        arguments |= scene.pick(
            [{}, {}, {"after_seq": scene.random.randrange(9)}, {"before_seq": scene.random.randrange(9)}]
        )
        if scene.chance(0.2):
            arguments["run_id"] = scene.pick([*sorted(scene.world.runs), "missing"])
    return Call(name, arguments)


def _window(scene: Scene, thread_id: str) -> Json:
    """Which view of which branch a page shows, and where it ends."""
    arguments: Json = {"view": scene.pick(["external", "external", "history", "history", "raw"])}
    thread = scene.world.threads.get(thread_id)
    if thread is not None and scene.chance(0.5):
        arguments["branch"] = scene.branch(thread)
    if thread is not None and scene.chance(0.3):
        by_message = scene.chance(0.5)
        arguments["before"] = (
            scene.message_id(thread) if by_message else scene.random.randrange(len(thread.log) + 2) + 1
        )
    if scene.chance(0.5 if arguments["view"] != "history" else 0.05):
        arguments["variants"] = True
    return arguments


def next_page(scene: Scene) -> Call | None:
    """Go on with a list that was begun earlier, whatever has happened since; rarely with a wrong cursor."""
    if not scene.walks:
        return first_page(scene)
    walk = scene.walks.pop(scene.random.randrange(len(scene.walks)))
    arguments = {**walk.arguments, "limit": scene.random.randrange(4) + 1}
    if scene.chance(0.05):
        arguments["cursor"] = {"spoilt": arguments["cursor"]}
    elif scene.chance(0.05) and scene.walks:
        arguments["cursor"] = scene.pick(scene.walks).arguments["cursor"]
    return Call(walk.name, arguments)


def waiting(scene: Scene) -> Call:
    """Threads with pending messages."""
    arguments: Json = {"limit": scene.random.randrange(5) + 1}
    if scene.chance(0.5):
        arguments["after"] = scene.pick(THREADS)
    return Call("pending.threads", arguments)


def everything(world: World) -> Iterator[Call]:
    """Calls that together show all there is; lists are to be followed to their end."""
    yield Call("threads.list", {"limit": ALL})
    yield Call("threads.list", {"limit": ALL, "order": "created"})
    yield Call("threads.list", {"limit": ALL, "root": True})
    yield Call("runs.list", {"limit": ALL})
    yield Call("pending.threads", {"limit": ALL})
    for owner in sorted({owner for owner, _ in world.profiles}):
        yield Call("profiles.list", {"owner": owner, "limit": ALL})
    for thread in [*world.threads.values()]:
        yield from _all_of(world, thread)


def _all_of(world: World, thread: Thread) -> Iterator[Call]:
    whole: Json = {"thread_id": thread.id}
    yield Call("load", whole)
    yield Call("messages.list", {**whole, "limit": ALL})
    for name in ("branches.list", "branches.labels", "pending.list", "state.list", "threads.children"):
        yield Call(name, whole)
    for branch in thread.branches:
        for name in ("history", "external", "path", "unfinished_calls"):
            yield Call(f"messages.{name}", {**whole, "branch": branch.number})
        for view in ("external", "history", "raw"):
            options = {"branch": branch.number, "view": view, "limit": 7, "variants": view != "history"}
            yield Call("messages.page", {**whole, **options})
    for run in world.runs_of(thread.id):
        yield Call("state.list", {**whole, "run_id": run.id})
