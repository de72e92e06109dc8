"""Cases: message content. Every kind of block, unknown fields and blocks, the limits of JSON, size and names."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.errors import InvalidError
from perdure.model import message as media
from perdure.model.faithful import Extra, Opaque, Untyped
from perdure.model.message import Block, Message, MessageRecord, Text, Thinking, ToolResult, ToolUse, Usage
from perdure.model.run import NewRun
from perdure.testkit.helpers import HOSTILE_IDS, calling, ids
from perdure.testkit.kit import Kit, case, equal, expect
from perdure.testkit.probe import untouched

READS = ("store.commit", "messages.get", "messages.list", "messages.history")
MEGABYTE = 1024 * 1024
INLINE = media.Base64Source("image/png", "iVBORw0KGgo=")
LINKED = media.UrlSource("https://example.org/a?b=c&d=%20")
BLOCKS: tuple[Block, ...] = (
    Text("plain"),
    Text(""),
    media.Image(INLINE),
    media.Image(LINKED),
    media.Audio(media.Base64Source("audio/wav", "UklGRg==")),
    media.Video(LINKED),
    media.Document(LINKED),
    media.Document(media.Base64Source("application/pdf", "JVBERi0="), title="A title"),
    Thinking("because", signature="c2ln"),
    Thinking("just so"),
    Opaque(Untyped({"type": "citation", "cited_text": "x", "nested": [{"type": "text", "text": "y"}, None, 1.5]})),
)
NOT_JSON: tuple[tuple[Any, str], ...] = (
    (float("nan"), "nan"),
    (float("inf"), "inf"),
    (float("-inf"), "-inf"),
    (b"bytes", "bytes"),
    (bytearray(b"x"), "bytearray"),
    ({1, 2}, "set"),
    (frozenset(), "frozenset"),
    ((1, 2), "tuple"),
    (datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), "datetime"),
    (datetime.date(2020, 1, 1), "date"),
    ({1: "x"}, "key"),
    ({None: "x"}, "key"),
    ("\ud800", "surrogate"),
    ({"\udfff": 1}, "surrogate"),
    (1j, "complex"),
    (object(), "object"),
    (type("Text", (str,), {})("x"), "Text"),
)


async def stored(kit: Kit, message: Message) -> Message:
    """The message as every way of reading gives it back, after a commit."""
    receipt = await kit.store.commit("t", messages=[message])
    (identity,) = receipt.message_ids
    record = await kit.store.messages.get("t", identity)
    (last,) = (await kit.store.messages.list("t", order="desc", limit=1)).items
    equal(last, record, "list and get agree")
    (ranged,) = await kit.store.messages.range("t", record.seq, record.seq)
    equal(ranged, record, "range and get agree")
    other = await (await kit.second()).messages.get("t", identity)
    equal(other, record, "another client agrees")
    return msgspec.structs.replace(record.message, id=message.id)


@case("messages", "blocks-round-trip", covers=READS)
async def case_blocks(kit: Kit) -> None:
    """Every kind of block comes back equal, alone and all together, on every reading."""
    for content in [[block] for block in BLOCKS] + [list(BLOCKS), []]:
        for role in ("user", "assistant", "system"):
            message = Message(role=role, content=content)
            equal(await stored(kit, message), message, f"{role} {content!r:.100}")
    result = Message.tool("c1", [*BLOCKS], is_error=True, id="r")
    equal(await stored(kit, result), result, "all kinds inside a tool result")


@case("messages", "fields-round-trip", covers=READS)
async def case_fields(kit: Kit) -> None:
    """Visibility, producer, step, sender, metadata, model, stop reason and usage come back as given."""
    message = Message.assistant(
        "x",
        id="m",
        visibility="internal",
        run_id="some run",
        step=3,
        sender_agent_id="other agent",
        metadata={"tokens": 12, "": None, "deep": [{"ü": [True, 1.0, 2**64]}]},
        model="some model",
        stop_reason="end_turn",
        usage=Usage(120, 18, 64, extra=Extra(service_tier="standard")),
    )
    equal(await stored(kit, message), message, "the message")
    record = await kit.store.messages.get("t", "m")
    equal(record.usage, message.usage, "the usage")
    equal((record.visibility, record.run_id, record.step, record.role), ("internal", "some run", 3, "assistant"), "it")
    bare = Message.assistant("y", sender_agent_id="s", model="some model", stop_reason="end_turn", usage=Usage(1, 2))
    (minted,) = (await kit.store.commit("t", messages=[bare])).message_ids
    equal((await kit.store.messages.get("t", minted)).message, msgspec.structs.replace(bare, id=minted), "a minted id")


@case("messages", "usage-of-another-shape", covers=(*READS, "pending.append", "pending.freeze"))
async def case_other_usage(kit: Kit) -> None:
    """What cannot be a usage, a model or a stop reason is an unknown field, as it was before these existed."""
    shapes: list[dict[str, Any]] = [
        {"usage": "a string"},
        {"usage": {"input_tokens": "x"}, "model": "some model"},
        {"usage": {"input_tokens": -1}},
        {"model": 3, "stop_reason": ["stop"]},
    ]
    for n, shape in enumerate(shapes):
        message = Message.from_json({"role": "user", "content": [], "id": f"m{n}", **shape})
        equal(await stored(kit, message), message, f"{shape}")
        equal({**message.to_json(), **shape}, message.to_json(), f"the JSON of {shape}")
        await kit.store.pending.append("t", [Message.from_json({**message.to_json(), "id": f"p{n}"})])
    await kit.store.pending.freeze("t")
    history = [record.message.to_json() for record in await kit.store.messages.history("t")]
    equal([{**data, **shape} for data, shape in zip(history, shapes * 2, strict=True)], history, "the history")
    for extra in (Extra(usage={"input_tokens": 1}), Extra(model="some model"), Extra(stop_reason=None)):
        refused = kit.store.commit("t", messages=[Message.user("x", extra=extra)])
        await untouched(kit.store, InvalidError, refused, f"{extra}")


@case("messages", "tool-calls-round-trip", covers=READS)
async def case_tool_calls(kit: Kit) -> None:
    """Single and parallel tool calls, their inputs and results, survive a commit."""
    inputs: list[Any] = [None, {}, [], "text", 0, {"q": {"nested": [1, None]}}]
    one = Message.assistant([Text("let me look"), ToolUse("c0", "search", {"q": "x"})], id="one")
    many = Message.assistant([ToolUse(f"c{n}", f"tool {n}", value) for n, value in enumerate(inputs, 1)], id="many")
    for message in (one, many):
        equal(await stored(kit, message), message, f"message {message.id}")
    equal([call.input for call in many.tool_calls], inputs, "the calls as a property")
    results = [Message.tool(f"c{n}", f"result {n}", id=f"r{n}") for n in range(len(inputs) + 1)]
    await kit.store.commit("t", messages=results)
    history = await kit.store.messages.history("t")
    equal([record.message for record in history], [one, many, *results], "the history")
    equal([record.message.tool_call_id for record in history[2:]], [f"c{n}" for n in range(7)], "call ids")


@case("messages", "text-property", covers=("messages.get",))
async def case_text_property(kit: Kit) -> None:
    """`text` joins the text blocks, and only those, without a separator."""
    blocks: list[Block] = [Text("a"), Thinking("no"), Text("b "), media.Image(INLINE), Text("c")]
    await kit.store.commit("t", messages=[Message.user(blocks, id="m"), Message.user("", id="e")])
    equal((await kit.store.messages.get("t", "m")).text, "ab c", "text")
    empty = await kit.store.messages.get("t", "e")
    equal((empty.text, empty.content), ("", []), "an empty message")


@case("messages", "unknown-carried", covers=READS)
async def case_unknown(kit: Kit) -> None:
    """Unknown fields at every level, blocks, sources and enum values come back where they stood."""
    raw = {
        "role": "developer",
        "visibility": "audit",
        "id": "m",
        "cache_control": {"type": "ephemeral"},
        "extra": {"a field that is itself called extra": True},
        "metadata": {"m": 1},
        "content": [
            {"type": "text", "text": "x", "citations": [], "extra": 1, "annotations": None},
            {"type": "image", "source": {"type": "file", "file_id": "f1"}, "detail": "high"},
            {"type": "image", "source": {"type": "url", "url": "u", "expires": 1.5}},
            {"type": "hologram", "data": {"type": "text", "text": 7}},
            {"type": "thinking", "thinking": "t", "encrypted": "zzz"},
        ],
    }
    message = Message.from_json(raw)
    equal((await stored(kit, message)).to_json(), raw, "the message as JSON")
    (record,) = await kit.store.messages.history("t")
    equal(record.message.to_json(), raw, "in the history")
    equal(record.message.extra["cache_control"], {"type": "ephemeral"}, "an unknown field")
    kinds = [block.kind if isinstance(block, Opaque) else type(block).__name__ for block in record.content]
    equal(kinds, ["Text", "Image", "Image", "hologram", "Thinking"], "the blocks")


@case("messages", "unknown-in-tools", covers=READS)
async def case_unknown_tools(kit: Kit) -> None:
    """Calls, results and compaction marks carry unknown fields too."""
    raw: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "id": "a",
            "content": [{"type": "tool_use", "id": "c", "name": "n", "input": {"extra": {}}, "thought": "s"}],
        },
        {
            "role": "tool",
            "id": "b",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "chart"}], "usage": {"t": 1}}],
        },
        {"role": "user", "id": "s", "compaction": {"from_seq": 1, "to_seq": 1, "tokens": 99}, "content": []},
    ]
    await kit.store.commit("t", messages=[Message.from_json(one) for one in raw])
    records = (await kit.store.messages.list("t")).items
    equal([record.message.to_json() for record in records], raw, "the messages as JSON")


@case("messages", "not-json-refused", covers=("store.commit",))
async def case_not_json(kit: Kit) -> None:
    """What JSON cannot carry is refused with its path, at any depth; nothing is coerced."""
    nestings: list[tuple[str, Callable[[Any], Message]]] = [
        ("messages[0].metadata.k[1]", lambda v: Message.user("x", metadata={"k": [0, v]})),
        ("messages[0].content[0].input.k", lambda v: Message.assistant([ToolUse("c", "n", {"k": v})])),
        ("messages[0].content[0].data", lambda v: Message.user([Opaque(Untyped({"type": "x", "data": v}))])),
        ("messages[0].content[0].new", lambda v: Message.user([Text("x", extra=Extra(new=v))])),
        ("messages[0].new", lambda v: Message.user("x", extra=Extra(new={"deep": v}))),
        ("messages[0].content[0].content[0].new", lambda v: Message.tool("c", [Text("x", extra=Extra(new=v))])),
    ]
    await kit.store.commit("t", messages=[Message.user("first")])
    for value, word in NOT_JSON:
        for path, make in nestings:
            attempt = kit.store.commit("t", messages=[make(value)])
            error = await untouched(kit.store, InvalidError, attempt, f"{value!r:.60} at {path}")
            expect(path in str(error) and word in str(error), f"{path} and {word!r} are not in {error}")


@case("messages", "surrogates-refused", covers=("store.commit",))
async def case_surrogates(kit: Kit) -> None:
    """A lone surrogate is refused in every text, with its path."""
    bad = "ok \ud83d"
    blocks: list[tuple[str, Block]] = [
        ("text", Text(bad)),
        ("thinking", Thinking(bad)),
        ("signature", Thinking("x", signature=bad)),
        ("source.url", media.Image(media.UrlSource(bad))),
        ("source.data", media.Audio(media.Base64Source("a/b", bad))),
        ("source.media_type", media.Audio(media.Base64Source(bad, "x"))),
        ("title", media.Document(LINKED, title=bad)),
    ]
    for field, block in blocks:
        for message, path in (
            (Message.user([block]), f"messages[0].content[0].{field}"),
            (Message.tool("c", [block]), f"messages[0].content[0].content[0].{field}"),
        ):
            error = await untouched(kit.store, InvalidError, kit.store.commit("t", messages=[message]), path)
            expect(path in str(error) and "surrogate" in str(error), f"{path} is not in {error}")


def nested(depth: int, *, lists: bool) -> Any:
    """A value nested so deep."""
    value: Any = [] if lists else {}
    for _ in range(depth - 1):
        value = [value] if lists else {"k": value}
    return value


@case("messages", "json-depth", covers=READS)
async def case_depth(kit: Kit) -> None:
    """64 levels of nesting are carried, 65 are refused with the path."""
    for lists in (True, False):
        deep = Message.assistant([ToolUse("c", "n", nested(64, lists=lists))])
        equal(await stored(kit, deep), deep, "64 levels")
        too_deep = Message.assistant([ToolUse("c", "n", nested(65, lists=lists))])
        error = await untouched(kit.store, InvalidError, kit.store.commit("t", messages=[too_deep]))
        expect("64" in str(error) and "messages[0].content[0].input" in str(error), f"the message: {error}")


@case("messages", "json-values", covers=READS)
async def case_values(kit: Kit) -> None:
    """Numbers keep value and type, also beyond 64 bits; every text comes back character for character."""
    numbers: list[Any] = [0, -1, 2**53 + 1, 2**63, -(2**63) - 1, 2**200, 0.1, 1.0, -0.0, 1e-308, 1.7e308, 1e16, True]
    message = Message.user("x", metadata={"numbers": numbers})
    metadata = (await stored(kit, message)).metadata or {}
    equal([repr(n) for n in metadata["numbers"]], [repr(n) for n in numbers], "numbers")
    characters = "".join(map(chr, [*range(0x20), 0x7F, 0x85, 0x2028, 0x2029, 0xFEFF, 0xFFFD, 0xFFFF, 0x10FFFF]))
    for text in (characters, '"\\/', "é e\u0301", "\U0001f468\u200d\U0001f469", "\r\n", " ", "\x00", "</script>"):
        message = Message.user([Text(text), Thinking(text)], metadata={text: text})
        equal(await stored(kit, message), message, f"{text!r}")


@case("messages", "large-text", covers=READS)
async def case_large(kit: Kit) -> None:
    """A text of 1 MB and a message of exactly 4 MB are carried whole."""
    for text in ("x" * MEGABYTE, "é" * (MEGABYTE // 2), '"\\' * (MEGABYTE // 4)):
        message = Message.user(text)
        equal((await stored(kit, message)).text == text, True, f"1 MB of {text[:2]!r}")
    frame = len('{"content":[{"type":"text","text":""}]}')
    text = "x" * (4 * MEGABYTE - frame)
    equal(len((await stored(kit, Message.user(text))).text), len(text), "4 MB")


@case("messages", "too-large-refused", covers=("store.commit",))
async def case_too_large(kit: Kit) -> None:
    """A message over 4 MB, or a commit over 8 MB, is refused with the sizes; what was there stays."""
    await kit.store.commit("t", messages=[Message.user("first")])
    big = Message.user("x" * (4 * MEGABYTE))
    error = await untouched(kit.store, InvalidError, kit.store.commit("t", messages=[Message.user("y"), big]))
    expect("messages[1]" in str(error) and "4,194,304" in str(error), f"the message: {error}")
    three = [Message.user("x" * (3 * MEGABYTE))] * 3
    error = await untouched(kit.store, InvalidError, kit.store.commit("t", messages=three))
    expect("8,388,608" in str(error), f"the message: {error}")
    await untouched(kit.store, InvalidError, kit.store.commit("new", messages=[big]))


@case("messages", "hostile-names", covers=READS)
async def case_hostile(kit: Kit) -> None:
    """Message ids, call ids, tool names, run ids and senders may be any id, and are found by exactly that."""
    for name in HOSTILE_IDS:
        call = Message.assistant([ToolUse(name, name, {name: name})], id=name, run_id=name, sender_agent_id=name)
        await kit.store.commit("t", messages=[call, Message(role="tool", content=[ToolResult(name)])])
    for name in HOSTILE_IDS:
        record = await kit.store.messages.get("t", name)
        (use,) = record.message.tool_calls
        fields = (record.message_id, record.run_id, record.message.sender_agent_id, use.id, use.name, use.input)
        equal(fields, (name, name, name, name, name, {name: name}), f"message {name!r}")
        equal(ids((await kit.store.messages.list("t", run_id=name)).items), [name], f"by run {name!r}")
    equal(await kit.store.messages.unfinished_calls("t"), [], "every call has found its result")


@case("messages", "times", covers=READS)
async def case_times(kit: Kit) -> None:
    """A message carries the time of its commit, whatever the clock does afterwards."""
    for step in (0, 5, -1000, 10**9):
        kit.clock.advance(step)
        receipt = await kit.store.commit("t", messages=[Message.user("a"), Message.user("b")])
        equal(receipt.at, kit.clock.now, "the receipt")
        records = await kit.store.messages.range("t", receipt.seqs[0], receipt.seqs[-1])
        equal([record.at for record in records], [kit.clock.now] * 2, "the messages")


@case("messages", "producer", covers=READS)
async def case_producer(kit: Kit) -> None:
    """A commit with a run marks its messages as produced by it, and leaves a producer that is already there."""
    messages = [calling("c", id="a"), Message.tool("c", id="b"), Message.user("x", id="c", run_id="other", step=9)]
    await kit.store.commit("t", messages=messages, run=NewRun(agent_id="agent", id="run"))
    run = await kit.store.runs.get("run")
    await kit.store.commit("t", messages=[Message.assistant("y", id="d")], run=run.step())
    produced = {r.message_id: r.run_id for r in (await kit.store.messages.list("t")).items}
    equal(produced, {"a": "run", "b": "run", "c": "other", "d": "run"}, "producers")
    equal((await kit.store.messages.get("t", "c")).step, 9, "the step that was given")


@case("messages", "record-json", covers=("messages.get",))
async def case_record_json(kit: Kit) -> None:
    """A record as JSON: its place, and the message with nothing added and nothing lost."""
    message = Message.user("x", id="m", metadata={"k": 1}, extra=Extra(new=[1]))
    await kit.store.commit("t", messages=[message])
    record: MessageRecord = await kit.store.messages.get("t", "m")
    position = {"thread_id": "t", "seq": 1, "branch": 0, "parent_id": None, "at": kit.clock.now}
    equal(record.to_json(), {**position, "message": message.to_json()}, "the record")
    equal(Message.from_json(record.to_json()["message"]), message, "and back")


@case("messages", "survive-reopen", covers=READS, needs=("durable",))
async def case_survive(kit: Kit) -> None:
    """Closed or crashed, every message comes back: blocks, tool calls, unknown parts, order, seqs, times."""
    message = Message.from_json({"role": "user", "content": [{"type": "new", "x": [1]}], "y": {}})
    await kit.store.commit("t", messages=[message, Message.user(list(BLOCKS))])
    kit.clock.advance(5)
    await kit.store.commit("t", messages=[calling("c1", "c2"), Message.tool("c1", "r")])
    before = (await kit.store.messages.list("t")).items
    equal((await (await kit.reopen()).messages.list("t")).items, before, "after a close")
    await kit.store.commit("t", messages=[Message.tool("c2", "r")])
    after = (await (await kit.crash()).messages.list("t")).items
    equal((after[:-1], after[-1].seq), (before, 5), "after a crash")
