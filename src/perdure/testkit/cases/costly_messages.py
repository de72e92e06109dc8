"""Cases: content built to be costly. Its keys, blocks, depth and numbers are stored, or refused with a clear error."""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import InvalidError, NotFoundError
from perdure.kernel.ops import NOW, Append, Inc, Patch, Seq
from perdure.model.faithful import Extra, Opaque, Untyped
from perdure.model.message import Message, Text, ToolResult, ToolUse
from perdure.testkit.kit import Kit, case, equal, expect, raises
from perdure.testkit.probe import untouched

MOST = limits.BLOCKS_PER_MESSAGE
WRITES = ("store.commit", "pending.append", "pending.edit", "pending.freeze", "runs.start")
LONG_KEY = "k" * 2_000


async def _refuse_everywhere(kit: Kit, message: Message, saying: str) -> None:
    """Every call that takes a message refuses it alike, and writes nothing."""
    store = kit.store
    if await store.threads.find("t") is None:
        await store.commit("t", messages=[Message.user("first")])
        await store.pending.append("t", [Message.user("waits", id="p")])
    for attempt in (
        store.commit("t", messages=[message]),
        store.runs.start("t", "agent", messages=[message]),
        store.pending.append("t", [message]),
        store.pending.edit("t", "p", message),
        store.pending.freeze("t", messages=[message]),
    ):
        error = await untouched(store, InvalidError, attempt)
        expect(saying in str(error), f"{saying!r} is not in {error!s:.300}")
        expect(len(str(error)) < 1_000, f"a message of {len(str(error)):,} characters")


@case("messages", "blocks-limit", covers=WRITES)
async def case_blocks_limit(kit: Kit) -> None:
    """Ten thousand blocks are kept; one more is refused by every call, and those inside a tool result count."""
    many = Message.user([Text(str(n)) for n in range(MOST)], id="many")
    await kit.store.commit("u", messages=[many])
    equal((await kit.store.messages.get("u", "many")).message, many, "as many as fit")
    await _refuse_everywhere(kit, Message.user([Text("x")] * (MOST + 1)), f"the limit for one message is {MOST:,}")
    unknown = Opaque(Untyped({"type": "new"}))
    await _refuse_everywhere(kit, Message.user([unknown] * (MOST + 1)), f"{MOST + 1:,} blocks")
    await _refuse_everywhere(kit, Message("tool", [ToolResult("c", [Text("x")] * MOST)]), f"{MOST + 1:,} blocks")


@case("messages", "blocks-beyond-limit-read", covers=("messages.history", "store.load", "branches.list"))
async def case_blocks_beyond(kit: Kit) -> None:
    """A message with more blocks than are accepted now, stored by an older build, is read like any other."""
    store = kit.store
    await store.commit("t", messages=[Message.user("first")])
    blocks = b",".join([b'{"type":"text","text":"a"}', *[b'{"type":"new"}'] * MOST])
    entry = ("old", "user", 0, "all", None, None, NOW, b'{"content":[' + blocks + b"]}")
    moved = {"head": "old", "head_seq": Seq("messages"), "length": Inc(1)}
    await store.engine.transact(
        store.scope,
        [
            Append("messages", "t", [entry]),
            Patch("thread_heads", ("t",), {"version": Inc(1)}),
            Patch("branches", ("t", 0), moved),
        ],
    )
    record = (await store.messages.history("t"))[-1]
    equal((record.message_id, len(record.content), record.text), ("old", MOST + 1, "a"), "the old message")
    equal((await store.load("t")).messages[-1], record, "load")
    equal((await store.branches.list("t"))[0].preview, "a", "the preview of its branch")


@case("messages", "repeated-call-late", covers=("store.commit",))
async def case_repeated_call(kit: Kit) -> None:
    """Of ten thousand tool calls the last one repeats an id: refused, naming it; without it all are kept."""
    calls = [ToolUse(f"c{n}", "f") for n in range(MOST - 1)]
    await _refuse_everywhere(kit, Message.assistant([*calls, ToolUse(f"c{MOST - 2}", "f")]), f"'c{MOST - 2}'")
    await kit.store.commit("u", messages=[Message.assistant([*calls], id="m")])
    equal((await kit.store.messages.get("u", "m")).message.tool_calls, calls, "the calls")


@case("messages", "long-keys", covers=("store.commit", "threads.update", "state.put"))
async def case_long_keys(kit: Kit) -> None:
    """Long keys above long lists are kept; where one leads to something wrong, the path shows its beginning only."""
    store = kit.store
    value = {LONG_KEY: [0] * 20_000}
    await store.commit("t", messages=[Message.assistant([ToolUse("c", "f", value)], id="m", metadata=value)])
    message = (await store.messages.get("t", "m")).message
    equal((message.tool_calls[0].input, message.metadata), (value, value), "input and metadata")
    equal((await store.threads.update("t", custom=value)).custom, value, "custom")
    await store.state.put("t", "s", value)
    equal((await store.state.get("t", "s")).value, value, "state")
    wrong: Any = {LONG_KEY: [0] * 20_000 + [b"x"]}
    for attempt in (
        store.commit("t", messages=[Message.assistant([ToolUse("c", "f", wrong)])]),
        store.commit("t", messages=[Message.user("x", extra=Extra(new=wrong))]),
        store.threads.update("t", custom=wrong),
        store.state.put("t", "s", wrong),
    ):
        error = await untouched(store, InvalidError, attempt)
        expect("…[20000]" in str(error) and len(str(error)) < 500, f"the path is cut: {error!s:.300}")


@case("messages", "shared-parts", covers=("store.commit", "state.put"))
async def case_shared_parts(kit: Kit) -> None:
    """What is small in memory and huge as JSON is refused before it is encoded: one part, named a million times."""
    laughs: Any = [0] * 10
    for _ in range(20):
        laughs = [laughs] * 10
    text = "x" * limits.MESSAGE_BYTES
    integers = [2**4_000] * 100_000
    store = kit.store
    await store.commit("t", messages=[Message.user("first")])
    for value in (laughs, [text] * 1_000, integers):
        call = Message.assistant([ToolUse("c", "f", value)])
        error = await untouched(store, InvalidError, store.commit("t", messages=[call]))
        expect("messages[0].content[0].input: more than" in str(error), f"the call's input is named: {error}")
        await untouched(store, InvalidError, store.state.put("t", "s", value))
    await untouched(store, InvalidError, store.commit("t", messages=[Message.user([Text(text)] * MOST)]))
    await untouched(store, InvalidError, store.commit("t", messages=[Message.user(text[:-100])] * 1_000))


@case("messages", "huge-integers", covers=("store.commit", "state.put", "threads.update", "runs.create"))
async def case_huge_integers(kit: Kit) -> None:
    """Integers of 4,096 bits are kept to the last digit; longer ones are refused, whatever Python thinks of them."""
    store = kit.store
    for value in (2**4_096 - 1, 1 - 2**4_096):
        await store.commit("s", state={"n": value})
        equal((await store.state.get("s", "n")).value, value, "4,096 bits")
    await store.commit("t", messages=[Message.user("first")])
    for value in (2**4_096, -(2**4_096), 10**5_000, -(10**50_000)):
        holder = {"n": [value]}
        for attempt in (
            store.commit("t", messages=[Message.assistant([ToolUse("c", "f", holder)])]),
            store.commit("t", messages=[Message.user("x", metadata=holder)]),
            store.commit("t", messages=[Message.user("x", extra=Extra(new=holder))]),
            store.commit("t", state={"d": holder}),
            store.state.put("t", "d", holder),
            store.threads.update("t", custom=holder),
            store.runs.create("t", "agent", metadata=holder),
        ):
            error = await untouched(store, InvalidError, attempt)
            expect("4096 bits" in str(error), f"the limit is named: {error!s:.300}")
    await raises(NotFoundError, store.state.get("t", "d"))


@case("messages", "nested-results", covers=("store.commit",))
async def case_nested_results(kit: Kit) -> None:
    """Tool results inside tool results are refused in words however deep they go, never by exhausting the stack."""
    store = kit.store
    await store.commit("t", messages=[Message.user("first")])
    for depth in (2, 70, 300, 5_000):
        block: Any = {"type": "text", "text": "x"}
        built: Any = Text("x")
        for _ in range(depth):
            block = {"type": "tool_result", "tool_use_id": "c", "content": [block]}
            built = ToolResult("c", [built])
        message = Message("tool", [built])
        await untouched(store, InvalidError, store.commit("t", messages=[message]), f"{depth} levels")
        if depth <= 64 // 2:
            equal(Message.from_json({"role": "tool", "content": [block]}), message, "from_json")
            continue
        try:
            Message.from_json({"role": "tool", "content": [block]})
        except InvalidError as error:
            expect("nested deeper than 64 levels" in str(error), f"the limit is named: {error}")
            expect(len(str(error)) < 1_000, "the path is cut")
        else:
            expect(False, f"{depth} nested results were accepted")


@case("pending", "too-many-ids", covers=("pending.reorder", "pending.freeze"))
async def case_too_many_ids(kit: Kit) -> None:
    """More ids than a queue holds are refused before anything is read, for a new order and for a selection."""
    await kit.store.commit("t", messages=[Message.user("first")])
    many = [f"m{n}" for n in range(limits.PENDING_PER_THREAD + 1)]
    for attempt in (
        kit.store.pending.reorder("t", many),
        kit.store.pending.freeze("t", expect_ids=many),
    ):
        error = await untouched(kit.store, InvalidError, attempt)
        expect(f"{limits.PENDING_PER_THREAD:,}" in str(error), f"the limit is named: {error}")
