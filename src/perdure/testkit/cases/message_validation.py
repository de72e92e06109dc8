"""Cases: which messages are valid. Every refusal gives its reason and changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import AlreadyExists, InvalidError
from perdure.model import message as media
from perdure.model.faithful import Extra, Opaque, Untyped
from perdure.model.message import Compaction, Message, Text, Thinking, ToolResult, ToolUse
from perdure.testkit.helpers import REFUSED_IDS, calling, ids, say
from perdure.testkit.kit import Kit, case, equal, expect
from perdure.testkit.probe import untouched

COMMIT = ("store.commit",)


async def refuse(kit: Kit, *bad: Any, saying: str = "", kind: type[InvalidError] = InvalidError) -> None:
    """Each message is refused alone and behind a good one, by a store that already holds a thread."""
    if await kit.store.threads.find("t") is None:
        await say(kit.store, "t", "first", "second")
    for message in bad:
        what = repr(message)[:300]
        for messages in ([message], [Message.user("fine"), message]):
            error = await untouched(kit.store, kind, kit.store.commit("t", messages=messages), what)
            expect(saying in str(error), f"{what}: {saying!r} is not in {error}")
            expect(f"messages[{len(messages) - 1}]" in str(error), f"{what}: the message is not named in {error}")
        await untouched(kit.store, kind, kit.store.commit("new thread", messages=[message]), what)


@case("messages", "shape-id", covers=COMMIT)
async def case_shape_id(kit: Kit) -> None:
    """A message id is an id: not blank, no control characters, within 256 bytes."""
    await refuse(kit, *(Message.user("x", id=bad) for bad in REFUSED_IDS))


@case("messages", "shape-id-minted", covers=("store.commit", "messages.get"))
async def case_shape_minted(kit: Kit) -> None:
    """A missing id is minted, returned in order, and is the one that is stored."""
    receipt = await kit.store.commit("t", messages=[Message.user(n) for n in "abc"])
    equal([len(one) for one in receipt.message_ids], [26, 26, 26], "minted ids")
    for text, one in zip("abc", receipt.message_ids, strict=True):
        record = await kit.store.messages.get("t", one)
        equal((record.message.id, record.message_id, record.text), (one, one, text), "the stored message")


@case("messages", "shape-id-taken", covers=COMMIT)
async def case_shape_duplicate_id(kit: Kit) -> None:
    """An id that the thread has, on whatever branch, is refused; never an overwrite, never ignored."""
    await say(kit.store, "t", "one", "two")
    await kit.store.branches.fork("t", at="one", switch=True)
    await say(kit.store, "t", "three")
    for known_id in ("one", "two", "three"):
        for branch in (0, 1):
            messages = [Message.user("new"), Message.user("same", id=known_id)]
            attempt = kit.store.commit("t", messages=messages, branch=branch)
            error = await untouched(kit.store, AlreadyExists, attempt, known_id)
            equal(error.actual, [known_id], "the ids named")
    same = kit.store.commit("t", messages=[Message.user("one", id="one")], branch=0)
    await untouched(kit.store, AlreadyExists, same, "the very same message again")


@case("messages", "shape-id-repeated", covers=COMMIT)
async def case_shape_repeated(kit: Kit) -> None:
    """An id that appears twice in one commit is refused; the same id in two threads is two messages."""
    twice = [Message.user("a", id="x"), Message.user("b"), Message.user("c", id="x")]
    error = await untouched(kit.store, InvalidError, kit.store.commit("t", messages=twice))
    expect("'x'" in str(error) and "messages[2]" in str(error), f"the error says which: {error}")
    await say(kit.store, "t", "x")
    await say(kit.store, "u", "x")
    equal((await kit.store.messages.get("u", "x")).thread_id, "u", "the other thread's message")


@case("messages", "shape-tool-call-id", covers=COMMIT)
async def case_shape_tool_call_id(kit: Kit) -> None:
    """A tool message must say which call it answers."""
    await refuse(kit, *(Message.tool(bad, "result") for bad in REFUSED_IDS))


@case("messages", "shape-tool-one-result", covers=COMMIT)
async def case_shape_one_result(kit: Kit) -> None:
    """A tool message holds exactly one tool result and nothing else."""
    result = ToolResult("c1", [Text("r")])
    contents: list[list[Any]] = [
        [],
        [Text("x")],
        [result, ToolResult("c2")],
        [result, result],
        [result, Text("x")],
        [Text("x"), result],
    ]
    await refuse(kit, *(Message(role="tool", content=content) for content in contents), saying="exactly one")


@case("messages", "shape-result-elsewhere", covers=COMMIT)
async def case_shape_result_elsewhere(kit: Kit) -> None:
    """No other role carries a tool result."""
    for role in ("user", "assistant", "system", "developer"):
        await refuse(kit, Message(role=role, content=[Text("x"), ToolResult("c1")]), saying="tool_result")


@case("messages", "shape-calls-elsewhere", covers=COMMIT)
async def case_shape_calls_elsewhere(kit: Kit) -> None:
    """Only assistant messages have tool calls."""
    for role in ("user", "system", "developer"):
        await refuse(kit, Message(role=role, content=[ToolUse("c1", "search", {})]), saying="tool calls")
    await refuse(kit, Message(role="tool", content=[ToolUse("c1", "search", {})]))


@case("messages", "shape-call-ids", covers=COMMIT)
async def case_shape_call_ids(kit: Kit) -> None:
    """Call ids are ids, unique within their message."""
    await refuse(kit, *(calling(bad) for bad in REFUSED_IDS))
    await refuse(kit, calling("c1", "c1"), calling("c1", "c2", "c1"), saying="'c1' appears twice")


@case("messages", "shape-call-names", covers=COMMIT)
async def case_shape_call_names(kit: Kit) -> None:
    """A call names its tool."""
    await refuse(kit, *(Message.assistant([ToolUse("c1", bad, {})]) for bad in REFUSED_IDS))


@case("messages", "shape-nested-calls", covers=COMMIT)
async def case_shape_nested(kit: Kit) -> None:
    """A tool result holds content, not further calls or results."""
    await refuse(kit, Message.tool("c1", [ToolUse("c2", "search", {})]), Message.tool("c1", [ToolResult("c2")]))


@case("messages", "shape-compaction-range", covers=COMMIT)
async def case_shape_range(kit: Kit) -> None:
    """A compaction range is 1-based and not empty, in whole numbers."""
    for first, last in ((0, 1), (2, 1), (-1, 1), (0, 0), (1, 0), (1, 2**60)):
        await refuse(kit, Message.summary("s", first, last), saying="1-based and not empty")
    wrong: list[Any] = [(1.0, 2), ("1", 2), (True, 2), (None, 2)]
    await refuse(kit, *(Message.summary("s", first, last) for first, last in wrong))
    not_a_mark: Any = {"from_seq": 1, "to_seq": 1}
    await refuse(kit, Message.user("s", compaction=not_a_mark))


@case("messages", "shape-compaction-covers-itself", covers=COMMIT)
async def case_shape_covers_itself(kit: Kit) -> None:
    """A summary comes after everything it covers: not its own seq, nor any later, also inside one commit."""
    await say(kit.store, "t", "one", "two")
    for last in (3, 4, 1000):
        attempt = kit.store.commit("t", messages=[Message.summary("s", 1, last)])
        expect("seq 3" in str(await untouched(kit.store, InvalidError, attempt)), "the seq is named")
    inside = [Message.user("three"), Message.summary("s", 1, 4)]
    await untouched(kit.store, InvalidError, kit.store.commit("t", messages=inside))
    await untouched(kit.store, InvalidError, kit.store.commit("new", messages=[Message.summary("s", 1, 1)]))
    await kit.store.commit("t", messages=[Message.user("three", id="three"), Message.summary("s", 1, 3, id="s")])
    equal(ids(await kit.store.messages.history("t")), ["s"], "a summary of everything before it is fine")


@case("messages", "shape-not-a-message", covers=COMMIT)
async def case_shape_not_a_message(kit: Kit) -> None:
    """A dict, a text or None is not a message, and the error says how to make one."""
    await refuse(kit, {"role": "user", "content": "x"}, "hello", None, 7, saying="Message.user")


@case("messages", "shape-content", covers=COMMIT)
async def case_shape_content(kit: Kit) -> None:
    """Content is a list of blocks."""
    contents: list[Any] = ["text", None, {"type": "text", "text": "x"}, (Text("x"),), [{"type": "text"}], ["x"], [None]]
    await refuse(kit, *(Message(role="user", content=content) for content in contents))


@case("messages", "shape-block-fields", covers=COMMIT)
async def case_shape_block_fields(kit: Kit) -> None:
    """The fields of known blocks have their types; the refusal names the field."""
    wrong: Any = 7
    for block, field in (
        (Text(wrong), "content[0].text"),
        (Thinking(wrong), "content[0].thinking"),
        (Thinking("x", signature=wrong), "content[0].signature"),
        (media.Image(wrong), "content[0].source"),
        (media.Image(media.UrlSource(wrong)), "content[0].source.url"),
        (media.Image(media.Base64Source("image/png", wrong)), "content[0].source.data"),
        (media.Document(media.UrlSource("u"), title=wrong), "content[0].title"),
        (Opaque(Untyped({"no": "type"})), "content[0]"),
    ):
        await refuse(kit, Message.user([block]), saying=field)
    await refuse(kit, Message(role="tool", content=[ToolResult("c", wrong)]))
    await refuse(kit, Message(role="tool", content=[ToolResult("c", [], is_error=wrong)]))


@case("messages", "shape-words", covers=COMMIT)
async def case_shape_words(kit: Kit) -> None:
    """Role and visibility are lower-case words."""
    wrong: list[Any] = ["", "Two Words", "UPPER", "naïve", "x" * 65, "nul\x00", 7, None]
    for bad in wrong:
        await refuse(kit, Message(role=bad, content=[]), saying="role")
        await refuse(kit, Message.user("x", visibility=bad), saying="visibility")


@case("messages", "shape-producer", covers=COMMIT)
async def case_shape_producer(kit: Kit) -> None:
    """Producer and sender are ids, the step is a whole number from 0."""
    await refuse(kit, *(Message.user("x", run_id=bad) for bad in REFUSED_IDS), saying="run_id")
    await refuse(kit, *(Message.user("x", sender_agent_id=bad) for bad in REFUSED_IDS), saying="sender_agent_id")
    wrong: list[Any] = [-1, 1.0, "1", True, 2**60]
    await refuse(kit, *(Message.user("x", step=bad) for bad in wrong), saying="step")


@case("messages", "shape-metadata", covers=COMMIT)
async def case_shape_metadata(kit: Kit) -> None:
    """Metadata is a JSON object."""
    wrong: list[Any] = [[], "x", 7, {1: 2}, {"x": b"y"}]
    await refuse(kit, *(Message.user("x", metadata=bad) for bad in wrong), saying="metadata")


@case("messages", "shape-extra", covers=COMMIT)
async def case_shape_extra(kit: Kit) -> None:
    """Unknown fields may not shadow known ones, at any level."""
    await refuse(kit, Message.user("x", extra=Extra(role="system")), saying="'role'")
    await refuse(kit, Message.user([Text("x", extra=Extra(text="y"))]), saying="'text'")
    await refuse(kit, Message.user([Text("x", extra=Extra(type="y"))]), saying="'type'")
    await refuse(kit, Message.user([media.Image(media.UrlSource("u", extra=Extra(url="v")))]), saying="'url'")
    mark = Compaction(1, 1, extra=Extra(to_seq=2))
    await refuse(kit, Message.user("s", compaction=mark), saying="'to_seq'")
    wrong: Any = 7
    await refuse(kit, Message.user("x", extra=wrong), Message.user([Text("x", extra=wrong)]), saying="extra")
    await refuse(kit, Message.user("x", extra=Extra(new=b"x")), saying="new")


@case("messages", "shape-too-many", covers=COMMIT)
async def case_shape_too_many(kit: Kit) -> None:
    """A thousand messages fit in a commit; one more is refused with the limit named."""
    receipt = await kit.store.commit("t", messages=[Message.user(str(n)) for n in range(1000)])
    equal((receipt.version, len(set(receipt.message_ids))), (1000, 1000), "a thousand")
    attempt = kit.store.commit("t", messages=[Message.user(str(n)) for n in range(1001)])
    expect("1000" in str(await untouched(kit.store, InvalidError, attempt)), "the limit is named")


@case("messages", "shape-thread-id", covers=COMMIT)
async def case_shape_thread_id(kit: Kit) -> None:
    """A commit names a thread by an id."""
    for bad in REFUSED_IDS:
        attempt = kit.store.commit(bad, messages=[Message.user("x")])
        await untouched(kit.store, InvalidError, attempt, f"thread {bad!r}")


@case("messages", "shape-caller-keeps-message", covers=COMMIT)
async def case_shape_caller_keeps(kit: Kit) -> None:
    """A commit does not change the message object it was given, so that it can be used again."""
    message = Message.user([Text("x")], metadata={"k": [1]})
    copy = msgspec.structs.replace(message)
    first = await kit.store.commit("t", messages=[message])
    second = await kit.store.commit("t", messages=[message])
    equal(message, copy, "the message")
    expect(first.message_ids != second.message_ids, "each commit mints its own id")


@case("messages", "shape-opaque-known", covers=("store.commit", "pending.append"))
async def case_shape_opaque_known(kit: Kit) -> None:
    """What has a known type cannot pass as opaque: it would be read back by rules that were never checked."""
    for tag in ("text", "image", "audio", "video", "document", "thinking", "tool_use", "tool_result"):
        await refuse(kit, Message.assistant([Opaque(Untyped({"type": tag, "text": 5}))]), saying="known type")
    for tag in ("base64", "url"):
        message = Message.user([media.Image(Opaque(Untyped({"type": tag, "media_type": 5})))])
        await refuse(kit, message, saying="known type")
        await untouched(kit.store, InvalidError, kit.store.pending.append("t", [message]), tag)


@case("messages", "shape-summary-tools", covers=COMMIT)
async def case_shape_summary_tools(kit: Kit) -> None:
    """A summary neither calls a tool nor answers one: stripping it would take what it covers with it."""
    mark = Compaction(1, 1)
    calling_summary = Message("assistant", [Text("s"), ToolUse("c", "search", {})], compaction=mark)
    answering_summary = Message("tool", [ToolResult("c")], compaction=mark)
    await refuse(kit, calling_summary, answering_summary, saying="summary")
