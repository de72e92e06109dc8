"""The recorded workload: every public call of a store, in one order, on one clock.

Chapters build on each other and on nothing else. `tests/recorded/refusals.py` has the calls that are refused by their
shape; here are those that the stored data refuse.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.recorded.recorder import Recorder
from tests.recorded.support import Lossy, sweep

import perdure
from perdure import (
    REMOVE,
    Audio,
    Base64Source,
    Decision,
    DeliveryMode,
    Doc,
    Document,
    Extra,
    Image,
    Message,
    NewRun,
    RunActivation,
    RunInput,
    RunIntent,
    RunRequest,
    RunTrace,
    Text,
    Thinking,
    Ticket,
    ToolUse,
    UrlSource,
    Video,
)

Chapter = Callable[[Recorder], Awaitable[None]]
DAY = 24 * 3600 * 1000


async def threads(r: Recorder) -> None:
    """Threads and their hierarchy: make, read, list, change, page, validate."""
    kyoto = await r.do("threads.create", "kyoto", title="Plan a trip", resource_id=" u-7 ", custom={"tags": ["a", 1.5]})
    await r.do("threads.create", title="minted")
    await r.do("threads.create", "kyoto")
    for number in range(4):
        await r.do(
            "threads.create", f"child-{number}", parent_thread_id="kyoto", resource_id="u-8" if number % 2 else None
        )
    await r.do("threads.create", "grandchild", parent_thread_id="child-0", title="é日本 \U0001f600")
    await r.do("threads.create", "orphan", parent_thread_id="nowhere")
    for name in ("kyoto", "nowhere", "grandchild"):
        await r.do("threads.find", name)
        await r.do("threads.get", name)
    moved = await r.do("threads.update", "kyoto", title="Two days in Kyoto", custom={"day": 1})
    await r.do("threads.update", "kyoto", title="stale", if_rev=kyoto.rev)
    await r.do("threads.update", "kyoto", title=None, if_rev=moved.rev)
    await r.do("threads.update", "kyoto", custom=None, resource_id="u-9")
    await r.do("threads.update", "nowhere", title="x")
    await r.do("threads.update", "kyoto", parent_thread_id="grandchild")
    await r.do("threads.update", "child-3", parent_thread_id=None)
    await r.do("threads.update", "child-3", parent_thread_id="child-1", title="moved")
    await r.do("threads.update", "child-2", parent_thread_id="child-2")
    for thread, parent in (("kyoto", "grandchild"), ("kyoto", None), ("new", "kyoto"), ("kyoto", "kyoto"), ("a", "b")):
        await r.do("threads.validate_parent", thread, parent)
    for options in ({}, {"order": "created"}, {"root": True}, {"resource_id": "u-8"}, {"parent_thread_id": "kyoto"}):
        await r.do("threads.list", **options)
        await r.do("threads.iter", **options)
    first = await r.do("threads.list", limit=3, order="created")
    second = await r.do("threads.list", limit=3, order="created", cursor=first.next_cursor)
    await r.do("threads.list", limit=3, order="created", cursor=second.next_cursor)
    await r.do("threads.list", limit=3, order="active", cursor=first.next_cursor)
    page = await r.do("threads.children", "kyoto", limit=1)
    await r.do("threads.children", "kyoto", limit=1, cursor=page.next_cursor)
    await r.do("threads.children", "nowhere")


def every_block() -> Message:
    """A message that holds a block of each kind, and what no build knows yet."""
    inline = Base64Source("image/png", "aGVsbG8=")
    linked = UrlSource("https://example.org/sound.ogg", Extra(expires=7))
    blocks = [
        Thinking("Let me see.", "signature"),
        Text("Here: é日本 \U0001f600 \u2028", Extra(cache_control={"type": "ephemeral"})),
        Image(inline),
        Audio(linked),
        Video(linked),
        Document(inline, title="Guide"),
        ToolUse("call-1", "search", {"q": "temples", "deep": [1, None, {"x": 1e-7}]}),
        ToolUse("call-2", "book"),
    ]
    return Message.assistant(blocks, id="m-blocks", sender_agent_id="planner", metadata={"cost": 0.25})


async def commits(r: Recorder) -> None:
    """Commits: messages of every shape, guards, keys and their replays."""
    await r.do("commit", "kyoto", messages=[Message.system("Be brief.", id="m-1"), Message.user("Two days?", id="m-2")])
    await r.do("commit", "kyoto", messages=[every_block()], expect=2, expect_head="m-2")
    await r.do("commit", "kyoto", messages=[Message.tool("call-1", "Kinkaku-ji", id="m-result")])
    foreign = {
        "role": "critic",
        "content": [{"type": "citation", "n": [1, {"a": None}]}],
        "id": "m-foreign",
        "mood": "x",
    }
    await r.do("commit", "kyoto", messages=[Message.from_json(foreign)])
    await r.do("commit", "kyoto", messages=[Message.user("minted id"), Message.assistant("also minted")])
    await r.do(
        "commit", "born", messages=[Message.user("a commit makes its thread", id="b-1")], state={"plan": {"day": 1}}
    )
    await r.do("commit", "kyoto", messages=[Message.user("again", id="m-1")])
    await r.do("commit", "kyoto", messages=[Message.user("late")], expect=2)
    await r.do("commit", "kyoto", messages=[Message.user("late")], expect_head="m-2")
    await r.do("commit", "nowhere", messages=[Message.user("x")], expect=3)
    await r.do("commit", "nowhere", messages=[Message.user("x")], expect_head="m-2")
    await r.do("commit", "nowhere", messages=[Message.user("x")], branch=4)
    await r.do("commit", "kyoto", messages=[Message.user("x")], branch=4)
    await r.do("commit", "kyoto", messages=[Message.user("x")], branch="no-such")
    await r.do("commit", "kyoto", messages=[Message.user("x")], fence=10)
    await r.do("commit", "kyoto", messages=[Message.user("x")], fence=9)
    await r.do("commit", "kyoto", fence=12)
    await r.do("commit", "nowhere", messages=[Message.user("x")], fence=1)
    await keyed(r)
    await r.do("commit", "kyoto", messages=[Message.user("other content")], key="key-1")
    await r.do("commit", "kyoto", messages=[Message.user("keyed", id="key-m")], branch=0, key="key-1")
    await r.do("commit", "kyoto", messages=[Message.summary("They plan.", 1, 2)])
    await r.do("commit", "kyoto", messages=[Message.summary("Too early.", 1, 200)])
    await r.do("commit", "kyoto", messages=[Message.retraction("call-2")])
    await r.do("commit", "kyoto")
    lossy = perdure.Store(Lossy(r.store.engine), owner=False)
    await r.do("commit", "born", messages=[Message.user("lost?")], key="key-lost", on=lossy)
    await r.do("commit", "born", messages=[Message.user("lost?")], key="key-lost")
    await r.do("commit", "born", messages=[Message.user("lost for good")], on=lossy)


async def keyed(r: Recorder) -> None:
    """Keyed commits, each sent twice; a build that opens an older store sends them once more."""
    for _ in range(2):
        await r.do("commit", "kyoto", messages=[Message.user("keyed", id="key-m")], key="key-1")
        await r.do(
            "commit", "kyoto", messages=[Message.user("keyed")], state={"note": Doc([1, 2], schema=3)}, key="key-2"
        )
        await r.do("commit", "kyoto", state={"note": REMOVE}, key="key-3")


async def messages(r: Recorder) -> None:
    """Messages: the raw lists, the views, single records, calls without a result."""
    page = await r.do("messages.list", "kyoto", limit=4)
    await r.do("messages.list", "kyoto", limit=4, cursor=page.next_cursor)
    r.note("a cursor as it is spelled", {"text": page.next_cursor})
    for options in ({"order": "desc", "limit": 2}, {"after_seq": 3, "before_seq": 6}, {"visibility": "internal"}):
        await r.do("messages.list", "kyoto", **options)
    await r.do("messages.iter", "kyoto", visibility="external", order="desc")
    await r.do("messages.list", "kyoto", limit=4, order="desc", cursor=page.next_cursor)
    await r.do("messages.list", "nowhere")
    for name in ("m-blocks", "no-such"):
        await r.do("messages.find", "kyoto", name)
        await r.do("messages.get", "kyoto", name)
    await r.do("messages.range", "kyoto", 2, 3)
    await r.do("messages.range", "kyoto", 90, 99)
    for view in ("messages.history", "messages.external"):
        for options in ({}, {"limit": 2}, {"upto": 4}, {"upto": "m-2"}, {"branch": 0}, {"branch": "main", "limit": 3}):
            await r.do(view, "kyoto", **options)
        await r.do(view, "nowhere")
        await r.do(view, "kyoto", upto="no-such")
        await r.do(view, "kyoto", branch=7)
    await r.do("messages.unfinished_calls", "kyoto")
    await r.do("messages.unfinished_calls", "kyoto", run_id="run-x")
    await r.do("commit", "kyoto", messages=[Message.assistant([ToolUse("call-9", "pay")], id="m-open")])
    await r.do("messages.unfinished_calls", "kyoto")
    await r.do(_follow, r.store, label="messages.follow")


async def _follow(store: perdure.Store) -> list[Any]:
    """What `follow` brings first; then it would wait for ever."""
    records = []
    async for record in store.messages.follow("kyoto", after_seq=3):
        records.append(record)
        if len(records) == 3:
            break
    return records


async def branches(r: Recorder) -> None:
    """Branches and labels: fork everywhere, switch, rename, delete."""
    await r.do("branches.fork", "kyoto", at="m-2", name="osaka", switch=True)
    await r.do("commit", "kyoto", messages=[Message.user("Osaka instead", id="o-1")])
    await r.do("commit", "kyoto", messages=[Message.assistant("Fine.", id="o-2")], branch="osaka", expect_head="o-1")
    await r.do("branches.fork", "kyoto", before="o-2")
    await r.do("branches.fork", "kyoto", before="m-1")
    await r.do("branches.fork", "kyoto", before="o-1", name="nara")
    await r.do("branches.fork", "kyoto", at=None, name="root")
    await r.do("branches.fork", "kyoto", at="m-1", name="osaka")
    await r.do("branches.fork", "kyoto", at="no-such")
    await r.do("branches.fork", "nowhere", at=None)
    await r.do("commit", "kyoto", messages=[Message.user("From nothing", id="r-1")], branch="root")
    await r.do("branches.rename", "kyoto", "nara", "branch-6")
    await r.do("branches.fork", "kyoto", at="m-2")
    await r.do("branches.current", "kyoto")
    for branch in (0, "osaka", "no-such", 99):
        await r.do("branches.get", "kyoto", branch)
    await r.do("branches.list", "kyoto")
    await r.do("branches.iter", "kyoto")
    await r.do("branches.switch", "kyoto", "main")
    await r.do("branches.switch", "kyoto", 0)
    await r.do("branches.switch", "kyoto", 99)
    await r.do("branches.switch", "kyoto", "osaka")
    await r.do("branches.rename", "kyoto", 2, "sakai")
    await r.do("branches.rename", "kyoto", 2, "osaka")
    await r.do("branches.rename", "kyoto", "no-such", "x")
    await r.do("branches.delete", "kyoto", "osaka")
    await r.do("branches.delete", "kyoto", "sakai")
    await r.do("branches.delete", "kyoto", "sakai")
    await r.do("branches.get", "kyoto", 2)
    await r.do("commit", "kyoto", messages=[Message.user("x")], branch=2)
    await r.do("branches.label", "kyoto", "o-1", "decision")
    await r.do("branches.label", "kyoto", "m-1", "start")
    await r.do("branches.label", "kyoto", "o-1", "the decision")
    await r.do("branches.label", "kyoto", "m-2", "gone soon")
    await r.do("branches.label", "kyoto", "m-2", None)
    await r.do("branches.label", "kyoto", "no-such", "x")
    await r.do("branches.label", "nowhere", "m-1", "x")
    await r.do("branches.labels", "kyoto")
    await r.do("branches.labels", "nowhere")
    for view in ("messages.history", "messages.external", "load"):
        await r.do(view, "kyoto")
        await r.do(view, "kyoto", branch="root")
        await r.do(view, "kyoto", branch="sakai")
    await r.do("messages.history", "kyoto", upto="o-2")
    await r.do("load", "nowhere")
    await r.do("load", "born")


async def pending(r: Recorder) -> None:
    """The queue of a thread: append, edit, reorder, retract, freeze at every boundary."""
    await r.do("threads.create", "queue")
    await r.do("pending.list", "queue")
    await r.do("pending.append", "queue", [Message.user("first", id="p-1"), Message.user("second", id="p-2")])
    barrier = DeliveryMode(boundary="next_step", barrier=True)
    (third,) = await r.do("pending.append", "queue", [Message.user("third")], mode=barrier)
    alone = DeliveryMode(boundary="interrupt", granularity="one", target_run_id="run-q", extra=Extra(source="voice"))
    await r.do("pending.append", "queue", [Message.user("fourth", id="p-4")], mode=alone)
    await r.do("pending.append", "queue", [Message.user("again", id="p-1")])
    await r.do("pending.append", "kyoto", [Message.user("committed long ago", id="m-1")])
    await r.do("pending.append", "nowhere", [Message.user("x")])
    await r.do("commit", "queue", messages=[Message.user("x", id="p-2")])
    queue = await r.do("pending.list", "queue")
    await r.do("pending.iter", "queue")
    await r.do("pending.threads")
    await r.do("pending.threads", after="queue")
    await r.do("pending.edit", "queue", "p-1", Message.user("first, edited"))
    await r.do("pending.edit", "queue", "p-1", Message.user("edited again"), mode=DeliveryMode(), if_revision=2)
    await r.do("pending.edit", "queue", "p-1", Message.user("stale"), if_revision=2)
    await r.do("pending.edit", "queue", "no-such", Message.user("x"))
    await r.do("pending.reorder", "queue", ["p-2", "p-1"])
    await r.do("pending.reorder", "queue", ["p-2", "p-1"], if_revision=queue.revision)
    ids = [item.id for item in queue.items]
    await r.do("pending.reorder", "queue", [ids[1], ids[0], *ids[2:]])
    await r.do("pending.reorder", "queue", [*ids[:3], "no-such"])
    await r.do("pending.retract", "queue", "p-2", if_revision=1)
    await r.do("pending.retract", "queue", "p-2", if_revision=2)
    await r.do("pending.retract", "queue", "p-2")
    await r.do("pending.freeze", "queue", expect_ids=["p-9"], run=NewRun(agent_id="planner", id="run-q"))
    for _ in range(2):
        started, due = NewRun(agent_id="planner", id="run-q"), ["p-1", third.id]
        await r.do("pending.freeze", "queue", run=started, expect_ids=due, key="freeze-1")
    await r.do("pending.freeze", "queue", boundary="interrupt", run=NewRun(agent_id="planner", id="run-0"))
    run = await r.do("runs.get", "run-q")
    receipt = await r.do("pending.freeze", "queue", boundary="interrupt", run=run.step(input_tokens=3))
    await r.do(
        "pending.freeze", "queue", boundary="next_step", run=receipt.run.step(), messages=[Message.user("and this")]
    )
    await r.do("pending.freeze", "queue", boundary="next_step", run=run.step())
    await r.do("pending.freeze", "queue", run=NewRun(agent_id="planner"), branch=9)
    await r.do("pending.freeze", "queue", expect=77)
    await r.do("pending.edit", "queue", "p-1", Message.user("too late"))
    await r.do("pending.retract", "queue", "p-1")
    await r.do("pending.append", "queue", [Message.user("too late", id="p-1")])
    await r.do("pending.append", "queue", [Message.user("stays", id="p-5")], mode=DeliveryMode(boundary="resume_input"))
    await r.do("pending.freeze", "nowhere")
    await r.do("pending.list", "queue")
    await r.do("pending.threads", limit=1)


async def runs(r: Recorder) -> None:
    """Runs: the whole machine, legal and illegal moves, lists."""
    trace = RunTrace(parent_thread_id="kyoto", resource_id="u-7", correlation_id="c-1", extra=Extra(hop=2))
    activation = RunActivation(
        intent=RunIntent(thread_id="run-thread"), trace=trace, decisions=[Decision(call_id="call-2")]
    )
    request = RunRequest(sender_id="u-7", input_message_ids=["q-1"], request_extras={"a": [1]})
    run = await r.do(
        "runs.start",
        "run-thread",
        "planner",
        run_id="run-1",
        messages=[Message.user("Which database?", id="q-1")],
        activation=activation,
        request=request,
        input=RunInput(trigger_message_ids=["q-1"], context_policy={"max": 5}),
        dispatch_id="d-1",
        session_id="s-1",
        metadata={"team": "blue"},
        key="start-1",
    )
    await r.do("runs.start", "run-thread", "planner", run_id="run-1")
    await r.do("runs.create", "run-thread", "critic", run_id="run-2", parent_run_id="run-1", fence=5)
    await r.do("runs.start", "run-thread", "planner", fence=4)
    await r.do("runs.start", "run-thread", "planner", expect=40)
    await r.do("runs.start", "orphan", "planner", activation=RunActivation(trace=RunTrace(parent_thread_id="nowhere")))
    step = run.step(input_tokens=10, output_tokens=20)
    receipt = await r.do(
        "commit", "run-thread", messages=[Message.assistant("SQLite.", id="a-1")], run=step, key="step-1"
    )
    await r.do("commit", "run-thread", messages=[Message.assistant("SQLite.", id="a-1")], run=step, key="step-1")
    await r.do("commit", "run-thread", run=step)
    run = receipt.run
    tickets = [
        Ticket(ticket_id="t-2", tool_call_id="c-2"),
        Ticket(ticket_id="t-1", tool_call_id="c-1", arguments={"a": 1}),
    ]
    receipt = await r.do(
        "commit", "run-thread", run=run.wait(tickets, reason="tool_permission", message="May I?", steps=1)
    )
    await r.do("commit", "run-thread", run=receipt.run.begin())
    await r.do("branches.delete", "run-thread", 0)
    receipt = await r.do("commit", "run-thread", run=receipt.run.resume(), run_state={"scratch": {"n": 1}})
    await r.do("commit", "run-thread", run=receipt.run, messages=[Message.assistant("Thinking", id="a-2")])
    await r.do("commit", "run-thread", run=receipt.run.finish("SQLite", output_tokens=1))
    done = await r.do("runs.get", "run-1")
    for move in (done.step(), done.resume(), done.fail("too late")):
        await r.do("commit", "run-thread", run=move)
    await _endings(r)
    await r.do("runs.find", "run-1")
    await r.do("runs.find", "no-such")
    await r.do("runs.get", "no-such")
    await r.do("runs.latest", "run-thread")
    await r.do("runs.latest", "born")
    await r.do("runs.latest", "nowhere")
    for options in ({}, {"status": "done"}, {"thread_id": "run-thread"}, {"thread_id": "ends", "status": "running"}):
        options = {**options, "order": "asc"}
        await r.do("runs.list", **options)
        await r.do("runs.iter", **options)
    page = await r.do("runs.list", limit=2, order="asc")
    await r.do("runs.list", limit=2, order="asc", cursor=page.next_cursor)
    await r.do("runs.list", limit=2, order="asc", status="done", cursor=page.next_cursor)
    await r.do("messages.list", "run-thread", run_id="run-1")
    await r.do("load", "run-thread")


async def _endings(r: Recorder) -> None:
    """A run for each way to end, and one on a branch that must stay."""
    for number, name in enumerate(("fail", "cancel", "stop", "block")):
        run = await r.do("runs.create", "ends", "worker", run_id=f"end-{number}")
        receipt = await r.do("commit", "ends", run=run.begin(steps=1))
        await r.do("commit", "ends", run=getattr(receipt.run, name)("because", steps=2))
        await r.do("commit", "ends", run=run.step())
    await r.do("commit", "ends", messages=[Message.user("here", id="e-1")])
    await r.do("branches.fork", "ends", at="e-1", name="side")
    await r.do("runs.start", "ends", "worker", run_id="end-open", branch="side")
    await r.do("branches.delete", "ends", "side")
    stale = await r.do("runs.get", "end-open")
    await r.do("commit", "ends", run=stale.step())
    await r.do("commit", "ends", run=stale.step())
    await r.do("commit", "ends", run=stale.finish("x"))


async def state(r: Recorder) -> None:
    """State: documents of threads and runs, guarded and not."""
    await r.do("state.list", "born")
    first = await r.do("state.put", "born", "plan", {"day": 2, "é": [None, True, 1.25, -0.0, 2**60]})
    await r.do("state.put", "born", "plan", "stale", if_rev=1)
    await r.do("state.put", "born", "plan", Doc({"day": 3}, schema=2), if_rev=first.rev)
    await r.do("state.put", "born", "plan", 0, if_rev=0)
    await r.do("state.put", "born", "fresh", [], if_rev=0)
    await r.do("state.put", "nowhere", "plan", 1)
    await r.do("state.put", "run-thread", "scratch", 2, run_id="run-1")
    await r.do("state.put", "born", "scratch", 2, run_id="run-1")
    await r.do("state.put", "born", "scratch", 2, run_id="no-such")
    for name, options in (("plan", {}), ("no-such", {}), ("scratch", {"run_id": "run-1"})):
        await r.do("state.find", "born" if not options else "run-thread", name, **options)
        await r.do("state.get", "born" if not options else "run-thread", name, **options)
    await r.do("state.find", "nowhere", "plan")
    await r.do("state.list", "nowhere")
    await r.do("state.list", "run-thread", run_id="run-1")
    await r.do("state.iter", "born")
    doc = await r.do("state.get", "born", "fresh")
    await r.do("commit", "born", state={"fresh": 1}, expect_state={"fresh": doc.rev})
    await r.do("commit", "born", state={"fresh": 2}, expect_state={"fresh": doc.rev})
    await r.do("commit", "born", state={"fresh": 2}, expect_state={"fresh": None})
    await r.do("commit", "born", state={"newer": 2}, expect_state={"newer": None})
    await r.do("commit", "nowhere", state={"plan": 2}, expect_state={"plan": 5})
    await r.do("state.delete", "born", "fresh", if_rev=doc.rev)
    await r.do("state.delete", "born", "fresh")
    await r.do("state.delete", "born", "fresh")
    await r.do("state.delete", "nowhere", "fresh")
    await r.do("state.list", "born")


async def scopes(r: Recorder) -> None:
    """Another tenant: the same ids, other data."""
    acme = r.store.scoped("acme")
    await r.do("threads.get", "kyoto", on=acme)
    await r.do("commit", "kyoto", messages=[Message.user("another tenant", id="m-1")], key="key-1", on=acme)
    await r.do("runs.start", "kyoto", "planner", run_id="run-1", on=acme)
    await r.do("threads.list", on=acme)
    await r.do("pending.threads", on=acme)
    r.note("scope", [r.store.scope, acme.scope])


async def deletions(r: Recorder) -> None:
    """Deletion by every strategy, what it leaves, and a new life under the old id."""
    await r.do("threads.create", "top")
    await r.do("threads.create", "middle", parent_thread_id="top")
    await r.do("commit", "middle", messages=[Message.user("x", id="x-1")], key="key-x", state={"a": 1})
    await r.do("threads.create", "bottom", parent_thread_id="middle")
    await r.do("threads.delete", "top", strategy="reject")
    await r.do("threads.delete", "nowhere")
    await r.do("threads.delete", "middle")
    await r.do("threads.get", "bottom")
    await r.do("commit", "middle", messages=[Message.user("x", id="x-1")], key="key-x")
    await r.do("threads.delete", "middle")
    await r.do("threads.create", "middle", parent_thread_id="top")
    await r.do("messages.list", "middle")
    await r.do("threads.delete", "top", strategy="cascade")
    for name in ("top", "middle", "bottom"):
        await r.do("threads.find", name)
    await r.do("runs.start", "doomed", "worker", run_id="run-doomed", key="start-doomed")
    await r.do("threads.delete", "doomed", strategy="reject")
    await r.do("runs.find", "run-doomed")
    await r.do("runs.start", "doomed", "worker", run_id="run-doomed", key="start-doomed")


async def housekeeping(r: Recorder) -> None:
    """A week later: keys and tombstones have expired, before a sweep and after it."""
    await r.do("commit", "kyoto", messages=[Message.user("keyed", id="key-m")], key="key-1")
    await r.do("commit", "aging", messages=[Message.user("one")], key="old-key")
    r.clock.now += 8 * DAY
    await r.do("commit", "aging", messages=[Message.user("one")], key="old-key")
    await r.do("commit", "doomed", messages=[Message.user("a new life")])
    await r.do(sweep, r.store, label="sweep")
    await r.do("commit", "kyoto", messages=[Message.user("keyed once more")], key="key-2")
    await r.do("commit", "top", messages=[Message.user("a new life as well")])
    await keyed_later(r)


async def keyed_later(r: Recorder) -> None:
    """Keyed commits of the last week: whatever opens the store next finds their receipts."""
    for number in range(3):
        message = Message.user(f"remembered {number}", id=f"late-{number}")
        await r.do("commit", "kyoto", messages=[message], branch=0, state={"late": {"n": number}}, key=f"late-{number}")


async def profiles(r: Recorder) -> None:
    """Profiles: guarded, expiring, listed, deleted; nothing of them is left, as the old file has none."""
    first = await r.do("profiles.put", "user:ann", "prefs", {"tone": "short"}, if_rev=0)
    await r.do("profiles.put", "user:ann", "prefs", 1, if_rev=0)
    await r.do("profiles.put", "user:ann", "prefs", Doc([1], schema=2), if_rev=first.rev)
    await r.do("profiles.put", "user:ann", "city", "Kyoto", ttl_ms=60_000)
    await r.do("profiles.put", "user:ann", "city", "Kyoto", ttl_ms=0)
    await r.do("profiles.find", "user:ann", "city")
    await r.do("profiles.get", "user:ann", "prefs")
    await r.do("profiles.get", "user:ann", "no-such")
    await r.do("profiles.list", "user:ann", limit=1)
    await r.do("profiles.list", "user:ann", prefix="pre")
    await r.do("profiles.iter", "user:ann")
    await r.do("profiles.delete", "user:ann", "prefs", if_rev=first.rev)
    await r.do("profiles.delete", "user:ann", "prefs")
    await r.do("profiles.clear", "user:ann")
    await r.do("profiles.list", "user:ann")


CHAPTERS: tuple[Chapter, ...] = (
    threads,
    commits,
    messages,
    branches,
    pending,
    runs,
    state,
    scopes,
    deletions,
    housekeeping,
)
