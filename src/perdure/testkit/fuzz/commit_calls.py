"""Random commits: plain and guarded ones, runs, keys and their repetition."""

from __future__ import annotations

from perdure.testkit.fuzz.random_calls import AGENTS, DOCUMENTS, RESOURCES, THREADS, Call, Scene, thread_options
from perdure.testkit.reference.records import Json, Thread

DECISIONS = (True, 1, "no", {"approved": False, "ü": [None]})


def commit(scene: Scene) -> Call | None:
    """Messages, documents or both, on any branch, unguarded."""
    thread = scene.thread()
    if thread is None:
        return None
    return keyed(scene, Call("commit", _content(scene, thread, named_branch=0.25)))


def _content(scene: Scene, thread: Thread, *, named_branch: float) -> Json:
    arguments: Json = {"thread_id": thread.id}
    if scene.chance(0.85):
        arguments["messages"] = scene.messages(thread)
    if scene.chance(0.2) or "messages" not in arguments:
        arguments["state"] = _documents(scene)
    if scene.chance(named_branch):
        arguments["branch"] = scene.branch(thread)
    return arguments


def _documents(scene: Scene) -> Json:
    names = [name for name in DOCUMENTS if scene.chance(0.5)] or [DOCUMENTS[0]]
    return {name: None if scene.chance(0.2) else scene.document() for name in names}


def keyed(scene: Scene, call: Call) -> Call:
    """The call, now and then under a key."""
    if scene.chance(0.2):
        call.arguments["key"] = scene.fresh("k")
    return call


def guarded(scene: Scene) -> Call | None:
    """A commit whose guards hold, or (one time in four) one of whose guards does not."""
    thread = scene.thread()
    if thread is None:
        return None
    arguments = _content(scene, thread, named_branch=0.3)
    stale = scene.chance(0.25)
    if scene.chance(0.5):
        arguments["expect"] = max(0, len(thread.log) + (scene.pick([-1, 1]) if stale else 0))
    if scene.chance(0.4):
        _expect_head(scene, thread, arguments, stale=stale)
    if scene.chance(0.3):
        arguments["fence"] = max(0, (thread.fence or 0) + (-1 if stale else scene.pick([0, 0, 1])))
    if scene.chance(0.4):
        _expect_state(scene, thread, arguments, stale=stale)
    return keyed(scene, Call("commit", arguments))


def _expect_head(scene: Scene, thread: Thread, arguments: Json, *, stale: bool) -> None:
    named = arguments.get("branch")
    alive = [b for b in thread.branches if not b.deleted and named in (None, b.number, b.name)]
    number = thread.branch if named is None or not alive else alive[0].number
    head = thread.head(number)
    if stale and thread.log:
        # The head of another branch is the likeliest mistake.
        arguments["expect_head"] = scene.pick([thread.log[-1].id, scene.pick(thread.log).id])
    elif head is not None:
        arguments["expect_head"] = head.id


def _expect_state(scene: Scene, thread: Thread, arguments: Json, *, stale: bool) -> None:
    name = scene.pick(DOCUMENTS)
    document = thread.state.get((None, name))
    rev = None if document is None else document.rev
    if stale:
        rev = scene.pick([None, (rev or 0) + 1, max(1, (rev or 1) - 1)])
    arguments["expect_state"] = {name: rev}
    if rev is None and not scene.chance(0.05):
        arguments.setdefault("state", {})[name] = scene.document()


def newborn(scene: Scene) -> Call:
    """A commit or a run on a thread that may not exist: it creates the thread, or is refused."""
    free = [name for name in THREADS if name not in scene.world.threads] or list(THREADS)
    thread_id = scene.pick(free)
    messages = scene.messages(scene.world.threads.get(thread_id))
    arguments: Json = {"thread_id": thread_id, "messages": messages}
    if scene.chance(0.4):
        arguments["run"] = {"new": new_run(scene, with_trace=True)}
    if scene.chance(0.4):
        arguments["thread"] = thread_options(scene)
    wild = scene.random.random()
    if wild < 0.3:
        arguments["expect"] = scene.pick([0, 0, 3])
    elif wild < 0.35:
        arguments["fence"] = 1
    elif wild < 0.4:
        arguments["expect_head"] = "missing"
    elif wild < 0.45:
        arguments["branch"] = scene.pick([0, 1, "main"])
    elif wild < 0.5:
        arguments |= {"state": {"plan": scene.document()}, "expect_state": {"plan": None}}
    elif wild < 0.55 and scene.records:
        arguments["run"] = {"same": scene.pick(list(scene.records))}
    return keyed(scene, Call("commit", arguments))


def new_run(scene: Scene, *, with_trace: bool = False) -> Json:
    """A run to be made, nearly always under an id that is free."""
    known_ids = sorted(scene.world.runs)
    run_id = scene.pick(known_ids) if known_ids and scene.chance(0.04) else scene.fresh("r")
    new: Json = {"id": run_id, "agent_id": scene.pick(AGENTS), "status": scene.pick(["running", "running", "created"])}
    if scene.chance(0.2):
        new["metadata"] = {"deep": {"er": [1]}}
    if scene.chance(0.2) and known_ids:
        new["parent_run_id"] = scene.pick(known_ids)
    if with_trace and scene.chance(0.5):
        new["trace"] = {"parent_thread_id": scene.pick([scene.thread_id(), "missing"]), "resource_id": RESOURCES[0]}
    return new


def with_run(scene: Scene) -> Call | None:
    """A commit of a run: associated, moved, or made."""
    thread = scene.thread()
    record = None if thread is None else scene.record(thread)
    if thread is None or record is None:
        return None
    arguments: Json = {"thread_id": thread.id}
    if scene.chance(0.8):
        arguments["messages"] = scene.messages(thread)
    drawn = scene.random.random()
    if drawn < 0.15:
        arguments["run"] = {"same": record}
    elif drawn < 0.25:
        arguments["run"] = {"new": new_run(scene)}
    else:
        arguments["run"] = change_of_run(scene, record)
    if scene.chance(0.3):
        arguments["run_state"] = _documents(scene)
    if scene.chance(0.1):
        arguments["branch"] = scene.branch(thread)
    if scene.chance(0.15):
        arguments["expect"] = len(thread.log) - (1 if scene.chance(0.2) and thread.log else 0)
    if scene.chance(0.1):
        arguments["fence"] = max(0, (thread.fence or 0) - (1 if scene.chance(0.3) else 0))
    return keyed(scene, Call("commit", arguments))


def change_of_run(scene: Scene, record: Json) -> Json:
    """A move that mostly fits the run's status."""
    fitting = {
        "created": ["begin", "begin", "begin", "step", "cancel", "wait"],
        "running": ["step", "step", "step", "begin", "wait", "finish", "fail"],
        "waiting": ["resume", "resume", "step", "wait", "decide", "stop", "block"],
        "done": ["step"],
    }
    move = scene.pick(fitting[record["status"]])
    undecided = [t["ticket_id"] for t in (record["waiting"] or {}).get("tickets", []) if "decision" not in t]
    if move == "decide":
        # A ticket that is decided or unknown is refused before there is a change to commit: see `decide`.
        move = "decide" if undecided else "step"
    options: Json = {"input_tokens": scene.random.randrange(50), "output_tokens": 2} if scene.chance(0.5) else {}
    if move == "decide":
        options = {"ticket_id": scene.pick(undecided), "value": scene.pick(DECISIONS)}
    elif move == "wait":
        options["tickets"] = [{"ticket_id": t, "tool_call_id": "c"} for t in ("b", "a")[: scene.random.randrange(3)]]
        options["reason"] = scene.pick(["user_input", "tool_permission"])
    elif move in ("fail", "block"):
        options["detail"] = "it broke"
    elif move == "stop":
        options["code"] = "max_steps"
    elif move == "finish":
        options["final_output"] = scene.pick([None, "done"])
    return {"change": record, "move": move, "options": options}


def decide(scene: Scene) -> Call | None:
    """A decision on a ticket, mostly of a run that waits: a new one, the same again, another, or of no such ticket."""
    runs = sorted(scene.world.runs.values(), key=lambda run: run.id)
    asking = [(run, t["ticket_id"]) for run in runs for t in (run.waiting or run.resumed_from or {}).get("tickets", [])]
    if not runs:
        return None
    run, ticket_id = scene.pick(asking) if asking and scene.chance(0.85) else (scene.pick(runs), "a")
    value = scene.pick([*DECISIONS, None]) if scene.chance(0.05) else scene.pick(DECISIONS)
    arguments = {"run_id": run.id, "ticket_id": ticket_id, "value": value}
    if scene.chance(0.2):
        arguments["thread_id"] = scene.thread_id()
    return Call("runs.decide", arguments)


def cancel(scene: Scene) -> Call | None:
    """A run ended from outside, mostly one that is open."""
    runs = sorted(scene.world.runs.values(), key=lambda run: run.id)
    unfinished = [run for run in runs if run.status != "done"]
    if not runs:
        return None
    run = scene.pick(unfinished if unfinished and scene.chance(0.8) else runs)
    arguments: Json = {"run_id": run.id, "detail": scene.pick([None, "enough"])}
    if scene.chance(0.3):
        arguments["thread_id"] = scene.thread_id()
    return Call("runs.cancel", arguments)


def start(scene: Scene) -> Call | None:
    """Start or create a run with its input."""
    thread = scene.thread()
    if thread is None:
        return None
    new = new_run(scene, with_trace=True)
    arguments: Json = {"thread_id": thread.id, "agent_id": new["agent_id"], "run_id": new["id"]}
    arguments |= {name: new[name] for name in ("metadata", "trace", "parent_run_id") if name in new}
    if scene.chance(0.7):
        arguments["messages"] = scene.messages(thread, 2)
    if scene.chance(0.2):
        arguments["branch"] = scene.branch(thread)
    if scene.chance(0.1):
        arguments["expect"] = len(thread.log)
    if scene.chance(0.3):
        arguments["if_idle"] = True
    if scene.chance(0.2):
        owner = thread.resource_id
        arguments["resource_id"] = owner if owner is not None and scene.chance(0.7) else scene.pick(RESOURCES)
    return keyed(scene, Call(f"runs.{scene.pick(['start', 'start', 'create'])}", arguments))


def rerun(scene: Scene) -> Call | None:
    """Regenerate an answer or edit a question, of any run."""
    thread = scene.thread()
    run = None if thread is None else scene.run(thread)
    if thread is None or run is None:
        return None
    known_ids = sorted(scene.world.runs)
    new_id = scene.pick(known_ids) if scene.chance(0.04) else scene.fresh("r")
    arguments: Json = {"run_id": "missing" if scene.chance(0.02) else run.id, "new_run_id": new_id}
    if scene.chance(0.4):
        arguments["messages"] = scene.messages(thread, 2)
    if scene.chance(0.3):
        arguments["replace"] = False
    if scene.chance(0.2):
        arguments |= {"agent_id": scene.pick(AGENTS), "metadata": {"again": True}}
    if scene.chance(0.15):
        arguments["name"] = scene.pick(["alt", "main", scene.fresh("line-")])
    if scene.chance(0.1):
        arguments["thread_id"] = scene.thread_id()
    if scene.chance(0.1):
        arguments["fence"] = scene.random.randrange(4)
    if thread.log and scene.chance(0.3):
        del arguments["run_id"]
        arguments |= {"message_id": scene.pick(thread.log).id, "thread_id": thread.id}
    return keyed(scene, Call("runs.rerun", arguments))


def again(scene: Scene) -> Call | None:
    """A keyed call once more: as it was, with other guards, or with other content under the same key."""
    if not scene.keyed:
        return None
    earlier = scene.pick(list(scene.keyed))
    arguments = {**earlier.arguments}
    drawn = scene.random.random()
    if drawn < 0.2:
        arguments |= {"expect": scene.random.randrange(50), "fence": scene.random.randrange(2)}
    elif drawn < 0.25 and arguments.get("messages"):
        arguments["messages"] = [{**arguments["messages"][0], "content": [{"type": "text", "text": "else"}]}]
    elif drawn < 0.3 and arguments.get("run_state") and not arguments.get("state"):
        arguments["state"] = arguments.pop("run_state")
    elif drawn < 0.33:
        arguments["run"] = {"new": new_run(scene)}
    elif arguments.get("state"):
        arguments["state"] = dict(reversed(arguments["state"].items()))
    if arguments.get("run") and earlier.name.startswith(("runs.", "branches.")):
        del arguments["run"]
    if earlier.name in ("branches.fork", "runs.rerun"):
        arguments.pop("expect", None)
    return Call(earlier.name, arguments)


def malformed(scene: Scene) -> Call | None:
    """A commit that no store should look at twice."""
    thread = scene.thread()
    if thread is None:
        return None
    messages = scene.messages(thread, 2)
    text = [{"type": "text", "text": "x"}]
    wrong: list[Json] = [
        {"messages": [messages[0], messages[0]]},
        {"messages": [{"role": "tool", "content": text, "id": scene.fresh("m")}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "c", "name": "n"}], "id": "m"}]},
        {"messages": [{**messages[0], "compaction": {"from_seq": 2, "to_seq": 1}}]},
        {"messages": messages, "run_state": {"plan": scene.document()}},
        {"messages": messages, "expect_state": {"plan": None}},
    ]
    if thread.log:
        wrong.append({"messages": [{**messages[0], "id": scene.pick(thread.log).id}]})
    if thread.pending:
        # Not wrong in itself, but what is pending under this id can now only be retracted.
        wrong.append({"messages": [{**messages[0], "id": scene.pick(thread.pending).id}]})
    return Call("commit", {"thread_id": thread.id, **scene.pick(wrong)})
