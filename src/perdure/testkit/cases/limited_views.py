"""Cases: a limited view is the end of the whole view. What a view hides does not count, wherever the cut falls."""

from __future__ import annotations

from perdure.model.message import Message, MessageRecord
from perdure.testkit.helpers import calling, ids, parents
from perdure.testkit.kit import Kit, case, equal

EXTERNAL = ("messages.external",)
HISTORY = ("messages.history",)
BOTH = ("messages.external", "messages.history")


async def write(kit: Kit, *messages: Message, branch: str | None = None) -> None:
    """Commit messages together."""
    await kit.store.commit("t", messages=messages, branch=branch)


def users(start: int, stop: int) -> list[Message]:
    """Plain user messages u<start> … u<stop - 1>."""
    return [Message.user(f"text {i}", id=f"u{i}") for i in range(start, stop)]


def notes(count: int, name: str = "n") -> list[Message]:
    """Messages that only the model may see."""
    return [Message.user("note", id=f"{name}{i}", visibility="internal") for i in range(count)]


def without_cut_results(records: list[MessageRecord]) -> list[MessageRecord]:
    """Records without the tool results whose calls are not among them."""
    asked: set[str] = set()
    visible = []
    for record in records:
        if record.role == "tool" and record.content[0].tool_use_id not in asked:  # type: ignore[union-attr]
            continue
        asked.update(call.id for call in record.message.tool_calls)
        visible.append(record)
    return visible


async def expect_tails(kit: Kit, most: int, branch: str | None = None) -> None:
    """Every limited view is the end of the whole one; the history then drops results whose call was cut off."""
    external = await kit.store.messages.external("t", branch=branch)
    history = await kit.store.messages.history("t", branch=branch)
    for limit in range(1, most + 1):
        view = await kit.store.messages.external("t", branch=branch, limit=limit)
        equal(view, external[-limit:], f"external, limit {limit}")
        view = await kit.store.messages.history("t", branch=branch, limit=limit)
        equal(view, without_cut_results(history[-limit:]), f"history, limit {limit}")


@case("messages", "limit-skips-internal", covers=EXTERNAL)
async def case_internal(kit: Kit) -> None:
    """Ten visible messages, then ten internal: `external(limit=5)` is the newest five visible ones, not nothing."""
    await write(kit, *users(0, 10), *notes(10))
    records = await kit.store.messages.external("t", limit=5)
    equal(ids(records), ["u5", "u6", "u7", "u8", "u9"], "the newest visible")
    equal(parents(records)["u5"], "u4", "the parent of the first")
    equal(ids(await kit.store.messages.external("t", limit=5, upto="n3")), [f"u{i}" for i in range(5, 10)], "upto")
    await expect_tails(kit, 21)


@case("messages", "limit-skips-unanswered", covers=BOTH)
async def case_unanswered(kit: Kit) -> None:
    """Unanswered calls are hidden, so they do not count: both views go further back."""
    await write(kit, *users(0, 10), *[calling(f"c{i}", id=f"a{i}") for i in range(5)])
    for view in (kit.store.messages.external, kit.store.messages.history):
        equal(ids(await view("t", limit=5)), ["u5", "u6", "u7", "u8", "u9"], "the newest shown")
    await expect_tails(kit, 16)


@case("messages", "limit-skips-retracted", covers=BOTH)
async def case_retracted(kit: Kit) -> None:
    """A retracted call, its result, late ones too, and the marker do not count, on either side of the cut."""
    await write(kit, *users(0, 3), calling("c1", id="a1"), Message.retraction("c1", id="x1"), *users(3, 6))
    await write(kit, Message.tool("c1", "late", id="r1"), calling("c2", id="a2"), Message.tool("c2", id="r2"))
    await write(kit, *users(6, 8), Message.retraction("c2", id="x2"), Message.tool("c9", "stray", id="r9"))
    equal(ids(await kit.store.messages.external("t", limit=4)), ["u5", "u6", "u7", "r9"], "external")
    equal(ids(await kit.store.messages.history("t", limit=4)), ["u4", "u5", "u6", "u7"], "history")
    await expect_tails(kit, 15)
    await write(kit, calling("c3", id="a3"), Message.retraction("c3", id="x3"), *users(8, 40))
    await write(kit, Message.tool("c3", "late", id="r3"))
    equal(ids(await kit.store.messages.external("t", limit=2)), ["u38", "u39"], "a marker far before the late result")


@case("messages", "limit-skips-far", covers=BOTH)
async def case_far(kit: Kit) -> None:
    """However much is hidden at the end, the limit is filled from before it, and the parents are true."""
    await write(kit, *users(0, 30), calling("c", text="let me see", id="a"))
    for part in range(3):
        await write(kit, *notes(200, f"n{part}-"))
    await write(kit, Message.tool("c", id="r"), calling("open", id="b"))
    records = await kit.store.messages.external("t", limit=4)
    equal(ids(records), ["u28", "u29", "a", "r"], "the newest visible")
    equal([call.id for call in records[2].message.tool_calls], ["c"], "the call is shown with its late result")
    expected = {"u28": "u27", "u29": "u28", "a": "u29", "r": "n2-199"}
    equal(parents(records), expected, "parents")
    equal(len(await kit.store.messages.external("t", limit=31)), 31, "a larger limit")
    equal(len(await kit.store.messages.external("t", limit=500)), 32, "more than there is")
    equal(ids(await kit.store.messages.history("t", limit=2)), ["n2-199"], "the history leaves out the cut result")


@case("messages", "limit-folded", covers=HISTORY)
async def case_folded(kit: Kit) -> None:
    """With summaries the limit counts the folded history: one for each summary, none for what it covers."""
    await write(kit, *users(0, 20), Message.summary("1 to 12", 1, 12, id="s1"), *users(20, 24))
    await write(kit, Message.summary("13 to 16", 13, 16, id="s2"), *users(24, 26), *notes(2))
    await expect_tails(kit, 20)
    await write(kit, Message.summary("1 to 23", 1, 23, id="s3"), calling("c", id="a"), *users(26, 28))
    await expect_tails(kit, 20)
    # A later summary inside the interval of an earlier one is dropped, and does not count.
    await write(kit, Message.summary("2 to 3", 2, 3, id="s4"), *users(28, 30))
    await expect_tails(kit, 20)


@case("messages", "limit-on-a-branch", covers=(*BOTH, "branches.fork"))
async def case_branch(kit: Kit) -> None:
    """On a branch the limit reaches back over the fork point, past what was written elsewhere in the meantime."""
    await write(kit, *users(0, 6), calling("c", id="a"))
    await kit.store.branches.fork("t", at="a", name="side")
    await write(kit, *users(6, 9))
    await write(kit, *notes(12), Message.tool("c", id="r"), *notes(3, "m"), branch="side")
    await write(kit, *users(9, 12), Message.tool("c", id="main-r"))
    equal(ids(await kit.store.messages.external("t", branch="side", limit=3)), ["u5", "a", "r"], "the side branch")
    await expect_tails(kit, 24, branch="side")
    await expect_tails(kit, 16)


@case("messages", "limit-reused-ids", covers=BOTH)
async def case_reused(kit: Kit) -> None:
    """Calls that share an id are distinguished wherever the cut falls."""
    for turn in range(4):
        await write(kit, calling("c", text=f"turn {turn}", id=f"a{turn}"), *notes(turn, f"n{turn}-"))
        answer = Message.retraction("c", id="x") if turn == 1 else Message.tool("c", id=f"r{turn}")
        await write(kit, answer, *users(turn, turn + 1))
    await write(kit, Message.tool("c", "again", id="again"))
    await expect_tails(kit, 22)
