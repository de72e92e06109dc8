"""Calls that are refused by their shape, before anything is read or written: the same words on every engine."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from tests.recorded.recorder import Recorder

import perdure
from perdure import (
    Compaction,
    DeliveryMode,
    Doc,
    Extra,
    Image,
    Message,
    NewRun,
    Opaque,
    Outcome,
    RunActivation,
    RunBody,
    RunIntent,
    Termination,
    Text,
    Ticket,
    ToolResult,
    ToolUse,
    Waiting,
)

LONG = "x" * 300
SURROGATE = "a\ud800b"
USER = Message.user("x")
IDS: tuple[Any, ...] = ("", "  ", "a\nb", LONG, SURROGATE, 7, None, ["deep", [[[[1]]]]])
URLS: tuple[Any, ...] = (
    "",
    7,
    "agents",
    "agents.txt",
    "oracle://host/x",
    "postgresql+asyncpg://host/db",
    "sqlite://",
    "sqlite:///x.db?mode=ro",
    "sqlite:///bad%zz.db",
    "sqlite:///bad%ff.db",
    "postgresql://host:99999/db",
    "postgresql://host:abc/db",
    "postgresql://user:secret@host/db?unknown=1",
    "postgresql://host/db?sslmode=maybe",
    "postgresql://host/db?schema=pg_x",
    "postgresql://host/db;x=1",
    "postgresql://a,,b/db",
    "mysql://host",
    "mysql://a,b/db",
    "mysql://host/db?ssl=maybe",
    "mysql://host/db?connections=0",
    "redis://a,b/0",
    "redis://host/zero",
    "redis://host/0?ssl_ca_certs=x",
    "redis+cluster://host/1",
    "redis+sentinel://host",
    "redis://host/0?prefix={x}",
)


def odd_messages() -> list[Any]:
    """Messages that no store takes."""
    call = ToolUse("c", "t")
    return [
        "text",
        Message(role="Bad Role", content=[]),
        Message(role="user", content="text"),  # type: ignore[arg-type]
        Message(role="user", content=["text"]),  # type: ignore[list-item]
        Message.user("x", id="a\nb"),
        Message.user("x", visibility="Nobody!"),
        Message.user("x", step=-1),
        Message.user(SURROGATE),
        Message.user([call]),
        Message.assistant([call, call]),
        Message.assistant([ToolUse("", "t")]),
        Message.assistant([ToolUse("c", "t", {"x": math.nan})]),
        Message.assistant([ToolUse("c", "t", {1: 2})]),
        Message.assistant([ToolUse("c", "t", {"x": {1, 2}})]),
        Message(role="tool", content=[Text("x")]),
        Message.user([ToolResult("c")]),
        Message.tool("c", [call]),
        Message.user([Image("x")]),  # type: ignore[arg-type]
        Message.user([Opaque({"type": "text"})]),  # type: ignore[arg-type]
        Message.user([Opaque({"no": "type"})]),  # type: ignore[arg-type]
        Message.user("x", compaction=Compaction(3, 2)),
        Message.user("x", compaction=7),  # type: ignore[typeddict-item]
        Message.tool("c", "x", compaction=Compaction(1, 1)),
        Message.user("x", metadata=[1]),  # type: ignore[typeddict-item]
        Message.user("x", extra=Extra(role="user")),
        Message.user("x", extra=Extra(tool_calls=[{"id": "c"}])),
        Message.user("x", extra=Extra(tool_call_id="c")),
        Message.user([Text("x")] * 10_001),
    ]


async def names(r: Recorder) -> None:
    """Ids and names that are no ids and names."""
    for name in IDS:
        await r.do("threads.get", name)
        await r.do("messages.get", "kyoto", name)
        await r.do("state.get", "kyoto", name)
        await r.do("branches.get", "kyoto", name)
    for title in (LONG * 20, SURROGATE, "a\x00b", 7):
        await r.do("threads.create", "t", title=title)
    for custom in ([1], {"x": math.inf}, {1: 2}, {"x": "y" * 70_000}, {"x": object}):
        await r.do("threads.create", "t", custom=custom)
    await r.do("threads.create", "t", resource_id=7)
    for scope in ("", LONG, 7):
        await r.do("scoped", scope)
    for name in ("7", "", LONG):
        await r.do("branches.rename", "kyoto", 0, name)
        await r.do("branches.fork", "kyoto", at=None, name=name)
        await r.do("branches.label", "kyoto", "m-1", name)


async def arguments(r: Recorder) -> None:
    """Numbers, flags, words and combinations that mean nothing."""
    for limit in (0, 201, "5", True, 2**80):
        await r.do("threads.list", limit=limit)
        await r.do("messages.list", "kyoto", limit=limit)
        await r.do("messages.history", "kyoto", limit=limit)
    for cursor in ("damaged", 7, "é"):
        await r.do("threads.list", cursor=cursor)
        await r.do("runs.list", cursor=cursor)
    for call, args, options in (
        ("threads.list", (), {"order": "random"}),
        ("threads.list", (), {"root": 1}),
        ("threads.list", (), {"root": True, "parent_thread_id": "kyoto"}),
        ("threads.delete", ("kyoto",), {"strategy": "shred"}),
        ("threads.update", ("kyoto",), {"if_rev": -1}),
        ("messages.list", ("kyoto",), {"order": "up"}),
        ("messages.list", ("kyoto",), {"visibility": "some"}),
        ("messages.list", ("kyoto",), {"after_seq": -1}),
        ("messages.range", ("kyoto", 0, 3), {}),
        ("messages.range", ("kyoto", 3, 2), {}),
        ("messages.history", ("kyoto",), {"upto": "m-1", "branch": 0}),
        ("messages.history", ("kyoto",), {"upto": -1}),
        ("messages.history", ("kyoto",), {"branch": 1.5}),
        ("branches.fork", ("kyoto",), {}),
        ("branches.fork", ("kyoto",), {"at": "m-1", "before": "m-2"}),
        ("branches.fork", ("kyoto",), {"at": None, "switch": "yes"}),
        ("runs.list", (), {"status": "sleeping"}),
        ("runs.start", ("kyoto", ""), {}),
        ("runs.start", ("kyoto", "a"), {"surprise": 1}),
        ("runs.start", ("kyoto", "a"), {"metadata": [1]}),
        ("runs.start", ("kyoto", "a"), {"session_id": "a\nb"}),
        ("runs.start", ("kyoto", "a"), {"activation": RunActivation(intent=RunIntent(thread_id="other"))}),
        ("state.put", ("kyoto", "x", object()), {}),
        ("state.put", ("kyoto", "x", "y" * 300_000), {}),
        ("state.put", ("kyoto", "x", Doc(1, schema=0)), {}),
        ("state.put", ("kyoto", "x", 1), {"if_rev": "1"}),
        ("state.delete", ("kyoto", "x"), {"if_rev": 0}),
    ):
        await r.do(call, *args, **options)


async def commits(r: Recorder) -> None:
    """Commits whose parts do not fit."""
    for message in odd_messages():
        await r.do("commit", "kyoto", messages=[message])
    for messages in ("text", USER, [USER] * 1_001, [Message.user("x", id="a"), Message.user("y", id="a")]):
        await r.do("commit", "kyoto", messages=messages)
    await r.do("commit", "kyoto", messages=[Message.user("y" * 5_000_000)])
    for options in (
        {"expect": -1},
        {"expect": "2"},
        {"expect": 2**60},
        {"fence": 1.5},
        {"branch": -1},
        {"branch": ""},
        {"expect_head": ""},
        {"key": ""},
        {"key": LONG},
        {"state": [1]},
        {"state": {"x": object()}},
        {"state": {"": 1}},
        {"run_state": {"x": 1}},
        {"expect_state": {"x": None}},
        {"expect_state": {"x": "rev"}},
        {"expect_state": [1]},
        {"run": "run-1"},
        {"run": NewRun(agent_id="a", status="done")},
        {"run": NewRun(agent_id="a", body=RunBody(waiting=Waiting(reason="x")))},
        {"run": NewRun(agent_id="a", body="body")},  # type: ignore[arg-type]
        {"run": NewRun(agent_id="a", body=RunBody(extra=Extra(metadata={})))},
    ):
        await r.do("commit", "kyoto", **options)
    for value in ({"content": "x"}, {"role": "user", "content": 7}, {"role": "user", "tool_calls": [1]}, [1]):
        await r.do(Message.from_json, value, label="Message.from_json")
    await r.do(Message.user, 7, label="Message.user")


async def runs(r: Recorder) -> None:
    """Changes of a run that are malformed in themselves."""
    run = await r.store.runs.get("end-open")
    replace = _replaced
    for change in (
        replace(run.step(), steps=-1),
        replace(run.step(), input_tokens=2**60),
        replace(run.step(), status="sleeping"),
        replace(run.step(), status="waiting"),
        replace(run.step(), outcome=Outcome(Termination("x"))),
        replace(run.step(), dispatch_id=""),
        replace(run.step(), run="run"),
        run.wait(reason="Not A Word"),
        run.wait([Ticket(ticket_id="a"), Ticket(ticket_id="a")]),
        run.wait([Ticket(ticket_id="")]),
        run.step(output_tokens=2**52),
        replace(run.step(), run=replace(run, steps=2**52)),
        replace(run, rev=-1),
        replace(run, body=None),
        replace(run, thread_id="kyoto"),
    ):
        await r.do("commit", "ends", run=change)
    await r.do("commit", "kyoto", run=run)
    await r.do(run.wait, ["ticket"], label="run.wait")
    await r.do(run.wait, [Ticket(ticket_id=7)], label="run.wait")  # type: ignore[arg-type]


def _replaced(record: Any, **fields: Any) -> Any:
    held = {name: getattr(record, name) for name in type(record).__struct_fields__}
    return type(record)(**{**held, **fields})


async def pending(r: Recorder) -> None:
    """What no queue takes."""
    await r.do("pending.append", "queue", [])
    await r.do("pending.append", "queue", [USER] * 1_000)
    for mode in (
        "next_step",
        DeliveryMode(boundary="someday"),
        DeliveryMode(granularity="many"),
        DeliveryMode(barrier=1),  # type: ignore[arg-type]
        DeliveryMode(target_run_id=""),
        DeliveryMode(extra=7),  # type: ignore[arg-type]
    ):
        await r.do("pending.append", "queue", [USER], mode=mode)
    for call, args, options in (
        ("pending.edit", ("queue", "p-5", Message.user("x", id="other")), {}),
        ("pending.edit", ("queue", "p-5", "text"), {}),
        ("pending.edit", ("queue", "p-5", USER), {"if_revision": -1}),
        ("pending.reorder", ("queue", "p-5"), {}),
        ("pending.reorder", ("queue", ["p-5", "p-5"]), {}),
        ("pending.reorder", ("queue", ["x"] * 1_001), {}),
        ("pending.freeze", ("queue",), {"boundary": "someday"}),
        ("pending.freeze", ("queue",), {"expect_ids": "p-5"}),
        ("pending.threads", (), {"limit": 0}),
        ("pending.threads", (), {"after": ""}),
    ):
        await r.do(call, *args, **options)


async def opening(r: Recorder) -> None:
    """URLs and options that open nothing; SQLite files that are none; stores that are closed or read-only."""
    for url in URLS:
        await r.do(_open, url, label="open")
    for options in (
        {"scope": ""},
        {"durability": "maybe"},
        {"read_only": 1},
        {"read_only": True},
        {"housekeeping": None},
        {"clock": 7},
        {"pool": object()},
    ):
        await r.do(_open, "memory://", label="open", **options)
    await asyncio.to_thread((r.folder / "garbage.db").write_bytes, b"this is no database" * 100)
    await asyncio.to_thread((r.folder / "folder.db").mkdir)
    for name in ("garbage.db", "folder.db", "missing/agents.db"):
        await r.do(_open, str(r.folder / name), label="open")
    await r.do(_open, str(r.folder / "missing.db"), label="open", read_only=True)
    path = str(r.folder / "small.db")
    store = await perdure.open(path, clock=r.clock, housekeeping=False)
    await r.do("commit", "t", messages=[Message.user("x", id="m")], on=store)
    await store.close()
    await r.do("commit", "t", messages=[USER], on=store)
    await r.do("load", "t", on=store)
    async with perdure.open(path, clock=r.clock, read_only=True) as store:
        await r.do("load", "t", on=store)
        await r.do("commit", "t", messages=[USER], on=store)
        await r.do("threads.create", "t2", on=store)
    await _sync(r)


async def _open(url: Any, **options: Any) -> str:
    async with perdure.open(url, **options):
        return "opened"


async def _sync(r: Recorder) -> None:
    """The blocking face, on memory: the same calls, the same outcomes."""

    def work() -> list[Any]:
        with perdure.sync.open("memory://", clock=r.clock, housekeeping=False) as store:
            outcomes: list[Any] = [store.commit("t", messages=[Message.user("x", id="m")])]
            outcomes += [store.load("t"), store.threads.list(), list(store.messages.iter("t"))]
            run = store.runs.start("t", "a", run_id="r")
            outcomes += [run, store.commit("t", run=run.finish("done")), store.branches.list("t")]
            outcomes += [store.state.put("t", "x", 1), store.pending.append("t", [Message.user("y", id="p")])]
            try:
                store.threads.get("nowhere")
            except perdure.NotFoundError as error:
                outcomes.append(str(error))
            return outcomes

    import perdure.sync

    for outcome in await asyncio.to_thread(work):
        r.note("sync", outcome)


CHAPTERS = (names, arguments, commits, runs, pending, opening)
