"""Calls drawn at random: threads, branches, labels and state. Most of them make sense to the store as it is.

A move looks at the world of the reference, draws what it needs and returns a `Call`, or None if the world has nothing
for it. The same moves serve the fast seeded driver and Hypothesis, which has its own random source and shrinks it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from perdure.testkit.fuzz.random_messages import Messages
from perdure.testkit.reference.records import Json, Run, Thread, World
from perdure.testkit.reference.views import run_data

THREADS = tuple(f"t{i:02}" for i in range(10))
AGENTS = ("planner", "writer")
DOCUMENTS = ("plan", "notes", "budget")
RESOURCES = ("acme", "umbrella")
T = TypeVar("T")


@dataclass
class Call:
    """One call of a public method. `crash` names the failpoint at which its process dies, if it gets there."""

    name: str
    arguments: Json
    client: int = 0
    crash: str | None = None


@dataclass
class Scene:
    """What moves draw from: the world of the reference, a random source, and what earlier calls left to return to."""

    world: World
    random: Random
    made: int = 0
    walks: list[Call] = field(default_factory=list)
    keyed: deque[Call] = field(default_factory=lambda: deque(maxlen=30))
    records: deque[Json] = field(default_factory=lambda: deque(maxlen=30))

    def chance(self, share: float) -> bool:
        """True about so often; False for the smallest draw, which is what Hypothesis shrinks to."""
        return self.random.random() >= 1 - share

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.random.randrange(len(choices))]

    def fresh(self, prefix: str) -> str:
        """An id that was never used before."""
        self.made += 1
        return f"{prefix}{self.made}"

    def thread(self) -> Thread | None:
        """An existing thread."""
        alive = sorted(self.world.threads)
        return self.world.threads[self.pick(alive)] if alive else None

    def thread_id(self) -> str:
        """Nearly always an existing thread."""
        thread = self.thread()
        return self.pick(THREADS) if thread is None or self.chance(0.02) else thread.id

    def branch(self, thread: Thread) -> int | str:
        """A living branch, by number or name; sometimes one that does not exist."""
        if self.chance(0.03):
            gone = [b.number for b in thread.branches if b.deleted]
            return self.pick(gone) if gone and self.chance(0.7) else "nowhere"
        branch = self.pick([b for b in thread.branches if not b.deleted])
        return branch.number if self.chance(0.5) else branch.name

    def message_id(self, thread: Thread) -> str:
        """A message of the thread; sometimes one that does not exist."""
        return "missing" if not thread.log or self.chance(0.02) else self.pick(thread.log).id

    def run(self, thread: Thread) -> Run | None:
        """A run of the thread, newer ones rather."""
        runs = self.world.runs_of(thread.id)
        return runs[-1 - min(self.random.randrange(3), len(runs) - 1)] if runs else None

    def record(self, thread: Thread) -> Json | None:
        """A run as a caller holds it: nearly always as it is now, sometimes as it once was, or of another thread."""
        if self.records and self.chance(0.05):
            return self.pick(list(self.records))
        run = self.run(thread)
        return None if run is None else run_data(run)

    def messages(self, thread: Thread | None, most: int = 3) -> list[Json]:
        """Some messages that a commit could carry."""
        return Messages(self.random, thread, self.fresh).some(most)

    def document(self) -> list[Any]:
        """A document and its schema."""
        value = self.pick([{"n": self.random.randrange(9), "ü": [1.5, None, True]}, [], "text", 7])
        return [value, self.pick([1, 1, 2])]

    def learn(self, call: Call, value: Any) -> None:
        """Keep what a successful call left: records of runs, keys, and pages to go on from."""
        if isinstance(value, dict):
            run = value if "agent_id" in value else value.get("run")
            if isinstance(run, dict):
                self.records.append(run)
            if value.get("next_cursor") is not None and len(self.walks) < 6:
                self.walks.append(Call(call.name, {**call.arguments, "cursor": value["next_cursor"]}))
        if call.arguments.get("key") is not None and "owner" not in call.arguments:
            self.keyed.append(call)


Move = Callable[[Scene], Call | None]


def create(scene: Scene) -> Call:
    """A thread, usually of an id that is free."""
    free = [name for name in THREADS if name not in scene.world.threads]
    name = scene.pick(free) if free and not scene.chance(0.1) else scene.pick(THREADS)
    return Call(scene.pick(["threads.create", "threads.ensure"]), {"thread_id": name, **thread_options(scene)})


def thread_options(scene: Scene) -> Json:
    """What a thread is created with."""
    options: Json = {}
    if scene.chance(0.4):
        options["parent_thread_id"] = scene.pick([scene.thread_id(), f" {scene.thread_id()} ", "", "missing"])
    if scene.chance(0.5):
        options |= {"title": scene.pick(["Été", ""]), "resource_id": scene.pick([*RESOURCES, " acme ", " "])}
    if scene.chance(0.3):
        options["custom"] = {"k": scene.random.randrange(5)}
    return options


def update(scene: Scene) -> Call:
    """Change a thread, with a good guard, a stale one or none."""
    name = scene.thread_id()
    arguments: Json = {"thread_id": name}
    if scene.chance(0.5):
        arguments["title"] = scene.pick([None, "a", "b"])
    if scene.chance(0.3):
        arguments["resource_id"] = scene.pick([None, *RESOURCES])
    if scene.chance(0.3):
        arguments["custom"] = scene.pick([None, {"x": [1, {"y": "z"}]}])
    if scene.chance(0.4):
        arguments["parent_thread_id"] = scene.pick([None, scene.thread_id(), scene.thread_id(), ""])
    if scene.chance(0.3) and name in scene.world.threads:
        rev = scene.world.threads[name].rev
        arguments["if_rev"] = rev if scene.chance(0.8) else max(1, rev - 1)
    return Call("threads.update", arguments)


def delete(scene: Scene) -> Call:
    """Delete a thread by one of the strategies."""
    strategy = scene.pick(["reject", "detach", "cascade", "detach"])
    return Call("threads.delete", {"thread_id": scene.thread_id(), "strategy": strategy})


def fork(scene: Scene) -> Call | None:
    """Fork at, before, or from nothing."""
    thread = scene.thread()
    if thread is None:
        return None
    where = scene.pick(["at", "at", "before"])
    arguments: Json = {"thread_id": thread.id, where: scene.message_id(thread)}
    if scene.chance(0.15):
        arguments = {"thread_id": thread.id, "at": None}
    if scene.chance(0.3):
        arguments["name"] = scene.pick(["alt", "try", "main", scene.fresh("line-")])
    if scene.chance(0.5):
        arguments["switch"] = True
    if scene.chance(0.4):
        arguments["messages"] = scene.messages(thread)
        if arguments["messages"] and scene.chance(0.3):
            arguments["key"] = scene.fresh("key-")
    if scene.chance(0.1):
        arguments["fence"] = scene.random.randrange(4)
    return Call("branches.fork", arguments)


def checkout(scene: Scene) -> Call | None:
    """Continue after some message."""
    thread = scene.thread()
    if thread is None:
        return None
    arguments: Json = {"thread_id": thread.id, "message_id": scene.message_id(thread)}
    if scene.chance(0.2):
        arguments["name"] = scene.pick(["alt", scene.fresh("line-")])
    return Call("branches.checkout", arguments)


def on_branch(scene: Scene) -> Call | None:
    """Switch to, rename, look at or delete a branch."""
    thread = scene.thread()
    if thread is None:
        return None
    arguments: Json = {"thread_id": thread.id, "branch": scene.branch(thread)}
    name = scene.pick(["switch", "switch", "switch", "get", "rename", "delete"])
    if name == "rename":
        arguments["name"] = scene.pick(["alt", "main", f"branch-{len(thread.branches)}", scene.fresh("line-")])
    return Call(f"branches.{name}", arguments)


def label(scene: Scene) -> Call | None:
    """Mark a message."""
    thread = scene.thread()
    if thread is None:
        return None
    word = scene.pick(["good", "bad", "good", None])
    return Call("branches.label", {"thread_id": thread.id, "message_id": scene.message_id(thread), "label": word})


def put_state(scene: Scene) -> Call | None:
    """Write or delete a document, of the thread or of a run."""
    thread = scene.thread()
    if thread is None:
        return None
    arguments: Json = {"thread_id": thread.id, "name": scene.pick(DOCUMENTS)}
    run = scene.run(thread)
    if run is not None and scene.chance(0.4):
        arguments["run_id"] = "missing" if scene.chance(0.05) else run.id
    document = thread.state.get((arguments.get("run_id"), arguments["name"]))
    deletes = scene.chance(0.3)
    if scene.chance(0.5) and (document is not None or not deletes):
        rev = 0 if document is None else document.rev
        arguments["if_rev"] = rev if scene.chance(0.8) else rev + 1
    if deletes:
        return Call("state.delete", arguments)
    return Call("state.put", {**arguments, "value": scene.document()})
