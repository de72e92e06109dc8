"""Cases: the external view, the history that reaches the model, and unfinished calls."""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidError, NotFoundError
from perdure.model.message import Block, Message, MessageRecord, Text, Thinking, ToolResult, ToolUse
from perdure.model.run import NewRun
from perdure.testkit.helpers import calling, ids, parents, say
from perdure.testkit.kit import Kit, case, equal, raises

HISTORY = ("messages.history",)
VIEWS = ("messages.history", "messages.external", "messages.list")


async def put(kit: Kit, *messages: Message, branch: int | None = None) -> None:
    """Commit messages one by one, so that nothing depends on their sharing a commit."""
    for message in messages:
        await kit.store.commit("t", messages=[message], branch=branch)


async def history(kit: Kit, **query: Any) -> list[str]:
    """The ids in the history."""
    return ids(await kit.store.messages.history("t", **query))


async def external(kit: Kit, **query: Any) -> list[str]:
    """The ids in the external view."""
    return ids(await kit.store.messages.external("t", **query))


def calls(records: list[MessageRecord]) -> dict[str, list[str]]:
    """The call ids left on each assistant message."""
    return {r.message_id: [call.id for call in r.message.tool_calls] for r in records if r.role == "assistant"}


@case("messages", "views-plain", covers=VIEWS)
async def case_plain(kit: Kit) -> None:
    """Without tools, markers or summaries all three views are the log itself, place and time included."""
    await put(kit, Message.system("s"), Message.user("u"), Message.assistant("a"), Message.user("v"))
    raw = (await kit.store.messages.list("t")).items
    equal(await kit.store.messages.history("t"), raw, "history")
    equal(await kit.store.messages.external("t"), raw, "external")


@case("messages", "views-internal", covers=VIEWS)
async def case_internal(kit: Kit) -> None:
    """Internal messages reach only the model; so does any visibility this build does not know."""
    await put(
        kit,
        Message.user("u", id="u"),
        Message.system("hint", id="hint", visibility="internal"),
        Message.assistant("a", id="a", visibility="audit"),
        Message.user("v", id="v"),
    )
    equal(await history(kit), ["u", "hint", "a", "v"], "history")
    equal(await external(kit), ["u", "v"], "external")


@case("messages", "views-unknown-visibility-tools", covers=VIEWS)
async def case_unknown_visibility_tools(kit: Kit) -> None:
    """A tool result that is not for all is not shown to outsiders, nor the call it answers; it is not a retraction."""
    await put(kit, calling("c1", text="look", id="a"), Message.tool("c1", "secret", id="r", visibility="audit"))
    equal(await external(kit), ["a"], "external")
    equal(calls(await kit.store.messages.external("t")), {"a": []}, "calls in the external view")
    equal(await history(kit), ["a", "r"], "history")


@case("messages", "strip-answered", covers=VIEWS)
async def case_answered(kit: Kit) -> None:
    """A call with its result is shown in both views, whatever is between them."""
    await put(kit, Message.user("u", id="u"), calling("c1", id="a"), Message.user("wait", id="w"))
    await put(kit, Message.tool("c1", "r", id="r"), Message.assistant("done", id="d"))
    for view in (history, external):
        equal(await view(kit), ["u", "a", "w", "r", "d"], view.__name__)


@case("messages", "strip-unanswered", covers=VIEWS)
async def case_unanswered(kit: Kit) -> None:
    """A call without a result leaves both views; its text stays; a message of calls alone disappears."""
    await put(kit, calling("c1", text="let me see", id="a"), Message.user("u", id="u"), calling("c2", id="b"))
    for view in (history, external):
        equal(await view(kit), ["a", "u"], view.__name__)
    (first, _) = await kit.store.messages.history("t")
    equal(first.content, [Text("let me see")], "what is left of the message")
    equal(calls((await kit.store.messages.list("t")).items), {"a": ["c1"], "b": ["c2"]}, "the raw view")


@case("messages", "interrupted", covers=HISTORY)
async def case_interrupted(kit: Kit) -> None:
    """A call that never got a result is shown with one that says so and is not stored; the calls of one run are not."""
    store = kit.store
    await put(kit, calling("gone", text="Hm.", id="d"), Message.tool("gone", "x", visibility="internal", id="x"))
    run = await store.runs.start("t", "agent", messages=[Message.user("q", id="q")])
    both = calling("c1", "c2", text="Let me see.", id="a")
    run = (await store.commit("t", messages=[both, Message.tool("c2", "two", id="r2")], run=run.step())).run
    await store.commit("t", messages=[calling("c3", id="b"), calling("c3", id="c"), Message.tool("c3", id="r3")])
    query: dict[str, Any] = {"interrupted": "It was cut off."}
    records = await store.messages.history("t", **query)
    about = [each.message.tool_call_id or [call.id for call in each.message.tool_calls] for each in records]
    equal(about, [[], [], ["c1", "c2"], "c1", "c2", ["c3"], "c3", ["c3"], "c3"], "a result right after every call")
    cut = records[3]
    texts = (cut.result_text, cut.seq, cut.parent_id, cut.message.id, cut.run_id)
    equal(texts, ("It was cut off.", 4, "a", None, run.id), "the result that is not stored")
    equal([isinstance(block, ToolResult) and block.is_error for block in cut.content], [True], "an error")
    own = await store.messages.history("t", run_id=run.id, **query)
    equal(calls(own)["a"], ["c2"], "the calls of a run that is at work are left out")
    equal(len(own), len(records) - 1, "and the others are shown")
    newest = await store.messages.history("t", limit=3, **query)
    equal(newest, records[-2:], "the newest: a result never comes without its call")
    equal(await history(kit), ["d", "q", "a", "r2", "c", "r3"], "without it, such calls are left out")
    await put(kit, Message.tool("c1", "late", id="late"))
    later = await store.messages.history("t", **query)
    equal([each.result_text for each in later if each.message.tool_call_id == "c1"], ["late"], "a late result")
    await raises(InvalidError, store.messages.history("t", interrupted=5), "no text")  # type: ignore[arg-type]
    await raises(InvalidError, store.messages.history("t", run_id=run.id), "a run without a text")


@case("messages", "strip-parallel", covers=VIEWS)
async def case_parallel(kit: Kit) -> None:
    """Of parallel calls the answered ones stay, in their order, with everything else in the message."""
    blocks: list[Block] = [Thinking("hm"), ToolUse("c1", "f"), Text("and"), ToolUse("c2", "g"), ToolUse("c3", "h")]
    await put(kit, Message.assistant(blocks, id="a"), Message.tool("c3", id="r3"), Message.tool("c1", id="r1"))
    for records in (await kit.store.messages.history("t"), await kit.store.messages.external("t")):
        equal(ids(records), ["a", "r3", "r1"], "messages")
        equal(records[0].content, [blocks[0], blocks[1], blocks[2], blocks[4]], "blocks")


@case("messages", "strip-second-result", covers=(*VIEWS, "messages.page", "store.load"))
async def case_second_result(kit: Kit) -> None:
    """Of several results of one call the model sees the first; the external and the raw view show all."""
    await put(kit, calling("c1", "c2", id="a"), Message.tool("c1", "one", id="r1"), Message.user("u", id="u"))
    await put(kit, Message.tool("c1", "two", id="x"), Message.tool("c2", "other", id="r2"), Message.tool("c1", id="y"))
    everything = ["a", "r1", "u", "x", "r2", "y"]
    equal(await history(kit), ["a", "r1", "u", "r2"], "history")
    equal(ids((await kit.store.load("t")).messages), ["a", "r1", "u", "r2"], "load")
    equal(ids((await kit.store.messages.page("t", view="history", limit=50)).items), ["a", "r1", "u", "r2"], "a page")
    equal(ids(await kit.store.messages.history("t", limit=1)), [], "the end: a result without its call")
    equal(await external(kit), everything, "external")
    equal(ids(await kit.store.messages.path("t")), everything, "the path")
    await put(kit, calling("c1", id="b"), Message.tool("c1", "again", id="z"), Message.tool("c1", "late", id="w"))
    equal(await history(kit), ["a", "r1", "u", "r2", "b", "z"], "a call made again has a result of its own")
    await put(kit, Message.retraction("c2"))
    equal(await history(kit), ["a", "r1", "u", "b", "z"], "a retraction takes the other call's result alone")
    equal(await kit.store.messages.unfinished_calls("t"), [], "nothing is unfinished")


@case("messages", "second-result-compacted", covers=("messages.history",))
async def case_second_result_compacted(kit: Kit) -> None:
    """The first result is the first that the model sees: where a summary covers it, a later one takes its part."""
    await put(kit, calling("c1", id="a"), Message.tool("c1", "one", id="r1"), Message.tool("c1", "two", id="r2"))
    equal(await history(kit), ["a", "r1"], "as written")
    await put(kit, Message.summary("sum", 2, 2, id="s"))
    equal(await history(kit), ["a", "s", "r2"], "the first is covered")


@case("messages", "strip-orphan-result", covers=VIEWS)
async def case_orphan_result(kit: Kit) -> None:
    """A result whose call is nowhere before it: the history leaves it out, the external view keeps it."""
    await put(kit, Message.tool("c1", "early", id="r1"), calling("c1", id="a"), Message.tool("c9", "stray", id="r9"))
    equal(await history(kit), [], "history")
    equal(await external(kit), ["r1", "r9"], "external")


@case("messages", "strip-reused-ids", covers=VIEWS)
async def case_reused(kit: Kit) -> None:
    """A call id used again is another call: each needs its own result, after it."""
    await put(kit, calling("c", text="1", id="a1"), Message.tool("c", id="r1"), calling("c", text="2", id="a2"))
    for view in (kit.store.messages.history, kit.store.messages.external):
        equal(calls(await view("t")), {"a1": ["c"], "a2": []}, "only the first is answered")
    equal([c.message_id for c in await kit.store.messages.unfinished_calls("t")], ["a2"], "unfinished")
    await put(kit, Message.tool("c", id="r2"))
    for view in (kit.store.messages.history, kit.store.messages.external):
        equal(calls(await view("t")), {"a1": ["c"], "a2": ["c"]}, "both are answered")


@case("messages", "strip-reused-unanswered-first", covers=VIEWS)
async def case_reused_first_open(kit: Kit) -> None:
    """When the first of two calls with one id was never answered, the result belongs to the second."""
    await put(kit, calling("c", text="1", id="a1"), calling("c", text="2", id="a2"), Message.tool("c", id="r"))
    for view in (kit.store.messages.history, kit.store.messages.external):
        equal(calls(await view("t")), {"a1": [], "a2": ["c"]}, "the calls shown")


@case("messages", "retraction", covers=VIEWS)
async def case_retraction(kit: Kit) -> None:
    """A retraction marker hides the call, its result and itself from both views; the raw view keeps all three."""
    await put(kit, Message.user("u", id="u"), calling("c1", "c2", text="x", id="a"))
    await put(kit, Message.tool("c1", id="r1"), Message.tool("c2", id="r2"), Message.retraction("c1", id="x1"))
    for records in (await kit.store.messages.history("t"), await kit.store.messages.external("t")):
        equal((ids(records), calls(records)), (["u", "a", "r2"], {"a": ["c2"]}), "one of two retracted")
    await put(kit, Message.retraction("c2", id="x2"))
    equal((await history(kit), await external(kit)), (["u", "a"], ["u", "a"]), "both retracted")
    equal(ids((await kit.store.messages.list("t")).items), ["u", "a", "r1", "r2", "x1", "x2"], "raw")


@case("messages", "retraction-without-result", covers=VIEWS)
async def case_retraction_open(kit: Kit) -> None:
    """A call that is retracted before it was answered is finished and hidden; a late result of it is hidden too."""
    await put(kit, Message.user("u", id="u"), calling("c1", id="a"), Message.retraction("c1"))
    equal(await kit.store.messages.unfinished_calls("t"), [], "unfinished")
    await put(kit, Message.tool("c1", "late", id="late"))
    equal((await history(kit), await external(kit)), (["u"], ["u"]), "both views")


@case("messages", "unfinished", covers=("messages.unfinished_calls",))
async def case_unfinished(kit: Kit) -> None:
    """Calls without a later tool message, in order, with message, seq and run; parallel ones one by one."""
    await put(kit, Message.user("u"), calling("c1", "c2", "c3", text="x", id="a", run_id="r"))
    await put(kit, Message.tool("c2"), calling("c4", id="b"))
    unfinished = await kit.store.messages.unfinished_calls("t")
    fields = [(c.call.id, c.call.name, c.call.input, c.message_id, c.seq, c.run_id) for c in unfinished]
    expected = [(c, "search", {"q": c}, m, s, r) for c, m, s, r in (("c1", "a", 2, "r"), ("c3", "a", 2, "r"))]
    equal(fields, [*expected, ("c4", "search", {"q": "c4"}, "b", 4, None)], "unfinished")
    equal([c.call.id for c in await kit.store.messages.unfinished_calls("t", run_id="r")], ["c1", "c3"], "of a run")
    equal(await kit.store.messages.unfinished_calls("t", run_id="missing"), [], "of another run")
    await put(kit, Message.tool("c1"), Message.tool("c3", is_error=True), Message.tool("c4", visibility="internal"))
    equal(await kit.store.messages.unfinished_calls("t"), [], "after the results")


@case("messages", "unfinished-reused", covers=("messages.unfinished_calls",))
async def case_unfinished_reused(kit: Kit) -> None:
    """Two open calls with one id are two open calls, and one result answers whatever asked before it."""
    await put(kit, Message.tool("c", id="too early"), calling("c", id="a"), calling("c", id="b"))
    equal([c.message_id for c in await kit.store.messages.unfinished_calls("t")], ["a", "b"], "both")
    await put(kit, Message.tool("c"))
    equal(await kit.store.messages.unfinished_calls("t"), [], "after a result")


@case("messages", "unfinished-per-branch", covers=("messages.unfinished_calls", "branches.fork"))
async def case_unfinished_branch(kit: Kit) -> None:
    """A result on another branch finishes nothing here."""
    await put(kit, Message.user("u", id="u"), calling("c", id="a"))
    await kit.store.branches.fork("t", at="a", name="other")
    await kit.store.commit("t", messages=[Message.tool("c")], branch="other")
    unfinished = kit.store.messages.unfinished_calls
    equal([c.message_id for c in await unfinished("t")], ["a"], "on the main branch")
    equal(await unfinished("t", branch="other"), [], "on the other branch, by name")
    equal(await unfinished("t", branch=1), [], "on the other branch, by number")
    await raises(NotFoundError, unfinished("t", branch="nowhere"))


@case("messages", "unfinished-survives", covers=("messages.unfinished_calls",), needs=("durable",))
async def case_unfinished_survives(kit: Kit) -> None:
    """After a crash in mid-run the unfinished call is there to be found, and can be answered."""
    await kit.store.commit("t", messages=[calling("c", id="a")], run=NewRun(agent_id="agent", id="r", status="running"))
    await kit.crash()
    equal([c.run_id for c in await kit.store.messages.unfinished_calls("t")], ["r"], "after the crash")
    await put(kit, Message.tool("c", "at last"))
    equal(await (await kit.reopen()).messages.unfinished_calls("t"), [], "after the result")


@case("messages", "history-limit", covers=VIEWS)
async def case_limit(kit: Kit) -> None:
    """A limit keeps the newest records with their true parents; more than there is means all."""
    await say(kit.store, "t", *"abcdef")
    for limit, expected in ((1, "f"), (3, "def"), (6, "abcdef"), (100_000, "abcdef")):
        for view in (kit.store.messages.history, kit.store.messages.external):
            records = await view("t", limit=limit)
            equal("".join(ids(records)), expected, f"limit {limit}")
            equal(parents(records), {m: "abcdef"[i - 1] if (i := "abcdef".index(m)) else None for m in expected}, "it")
    wrong: Any
    for wrong in (0, -1, True, "3", 2.0):
        await raises(InvalidError, kit.store.messages.history("t", limit=wrong), f"limit {wrong!r}")


@case("messages", "history-limit-tools", covers=HISTORY)
async def case_limit_tools(kit: Kit) -> None:
    """A limited history never has a result without its call, wherever the cut falls."""
    await put(kit, Message.user("u", id="u"), calling("c1", "c2", id="a"), Message.tool("c1", id="r1"))
    await put(kit, Message.tool("c2", id="r2"), Message.assistant("done", id="d"))
    expected = [["d"], ["d"], ["d"], ["a", "r1", "r2", "d"], ["u", "a", "r1", "r2", "d"]]
    for limit, names in enumerate(expected, 1):
        equal(await history(kit, limit=limit), names, f"limit {limit}")


@case("messages", "history-upto", covers=VIEWS)
async def case_upto(kit: Kit) -> None:
    """`upto` ends the path at a seq or at a message, on that message's own branch; views apply to what is left."""
    await say(kit.store, "t", "a", "b", "c")
    await kit.store.branches.fork("t", at="b", name="x")
    await say(kit.store, "t", "d", "e", branch="x")
    await put(kit, calling("c1", id="f"), Message.tool("c1", id="g"))
    for view in (history, external):
        equal(await view(kit, upto=0), [], "before everything")
        equal(await view(kit, upto=2), ["a", "b"], "at a seq")
        equal(await view(kit, upto=5), ["a", "b", "c"], "at a seq of another branch")
        equal(await view(kit, upto=99), ["a", "b", "c", "f", "g"], "beyond the end")
        equal(await view(kit, upto=4, branch="x"), ["a", "b", "d"], "at a seq on a named branch")
        equal(await view(kit, upto=1, branch="x"), ["a"], "at a seq before its fork point")
        equal(await view(kit, upto="d"), ["a", "b", "d"], "at a message of another branch")
        equal(await view(kit, upto="f"), ["a", "b", "c"], "at a call whose result comes later")
        equal(await view(kit, upto="g", limit=2), ["f", "g"], "with a limit")
    await raises(NotFoundError, kit.store.messages.history("t", upto="missing"))
    await raises(InvalidError, kit.store.messages.history("t", upto="d", branch="x"))
    wrong: Any
    for wrong in (-1, True, 1.5, "", "nul\x00"):
        await raises(InvalidError, kit.store.messages.history("t", upto=wrong), f"upto {wrong!r}")
