"""Cases: compaction. A summary replaces what it covers in the history, and nowhere else."""

from __future__ import annotations

from typing import Any

from perdure.model.message import Message, Text, ToolUse
from perdure.testkit.helpers import calling, ids, parents, say, seqs
from perdure.testkit.kit import Kit, case, equal
from perdure.testkit.probe import dump

HISTORY = ("messages.history",)


async def summarise(kit: Kit, name: str, first: int, last: int, branch: int | str | None = None) -> None:
    """Commit a summary of the given seqs."""
    await kit.store.commit("t", messages=[Message.summary(f"sum of {name}", first, last, id=name)], branch=branch)


async def history(kit: Kit, **query: Any) -> list[str]:
    """The ids in the history."""
    return ids(await kit.store.messages.history("t", **query))


@case("messages", "fold-none", covers=HISTORY)
async def case_fold_none(kit: Kit) -> None:
    """Without a summary nothing is folded."""
    await say(kit.store, "t", *"abc")
    equal(await history(kit), ["a", "b", "c"], "history")


@case("messages", "fold-one", covers=HISTORY)
async def case_fold_one(kit: Kit) -> None:
    """One interval: the summary appears where the interval began, keeps its seq and no longer appears at the end."""
    await say(kit.store, "t", *"abcde")
    await summarise(kit, "S", 2, 4)
    await say(kit.store, "t", "f")
    records = await kit.store.messages.history("t")
    equal((ids(records), seqs(records)), (["a", "S", "e", "f"], [1, 6, 5, 7]), "ids and seqs")
    equal(parents(records), {"a": None, "S": "e", "e": "d", "f": "S"}, "parents are those of the log")
    equal(records[1].text, "sum of S", "the summary")


@case("messages", "fold-only-history", covers=("messages.list", "messages.external", "messages.range"))
async def case_fold_only_history(kit: Kit) -> None:
    """The raw view keeps summary and summarised in place; the external view knows nothing of either folding."""
    await say(kit.store, "t", *"abc")
    await summarise(kit, "S", 1, 2)
    equal(ids((await kit.store.messages.list("t")).items), ["a", "b", "c", "S"], "raw")
    equal(ids(await kit.store.messages.range("t", 1, 4)), ["a", "b", "c", "S"], "range")
    equal(ids(await kit.store.messages.external("t")), ["a", "b", "c"], "external: a summary is internal")
    await kit.store.commit("t", messages=[Message.summary("x", 1, 3, id="X", visibility="all")])
    equal(ids(await kit.store.messages.external("t")), ["a", "b", "c", "X"], "external with a public summary")


@case("messages", "fold-two-disjoint", covers=HISTORY)
async def case_fold_two(kit: Kit) -> None:
    """Two disjoint intervals fold each to its summary, whichever was written first."""
    await say(kit.store, "t", *"abcdefg")
    await summarise(kit, "L", 5, 6)
    await summarise(kit, "E", 1, 2)
    equal(await history(kit), ["E", "c", "d", "L", "g"], "history")


@case("messages", "fold-to-the-end", covers=HISTORY)
async def case_fold_end(kit: Kit) -> None:
    """A summary of everything before it is all there is, until something follows."""
    await say(kit.store, "t", *"abc")
    await summarise(kit, "S", 1, 3)
    equal(await history(kit), ["S"], "history")
    await say(kit.store, "t", "d")
    equal(await history(kit), ["S", "d"], "and later")


@case("messages", "fold-cumulative", covers=HISTORY)
async def case_fold_cumulative(kit: Kit) -> None:
    """Cumulative summaries: the widest wins and takes the earlier ones with it, again and again."""
    await say(kit.store, "t", *"abcd")
    await summarise(kit, "S1", 1, 2)
    await summarise(kit, "S2", 1, 4)
    equal(await history(kit), ["S2"], "the wider one")
    await say(kit.store, "t", "e", "f")
    await summarise(kit, "S3", 1, 7)
    equal(await history(kit), ["S3", "f"], "wider still, covering summaries")
    await summarise(kit, "late", 2, 3)
    equal(await history(kit), ["S3", "f"], "a narrower one that comes later changes nothing")


@case("messages", "fold-equal", covers=HISTORY)
async def case_fold_equal(kit: Kit) -> None:
    """Of summaries of the same interval the newest wins."""
    await say(kit.store, "t", *"abc")
    for name in ("S1", "S2", "S3"):
        await summarise(kit, name, 1, 2)
        equal(await history(kit), [name, "c"], f"after {name}")


@case("messages", "fold-overlap", covers=HISTORY)
async def case_fold_overlap(kit: Kit) -> None:
    """Intervals that overlap without containing each other both apply; what either covers is gone."""
    await say(kit.store, "t", *"abcdef")
    await summarise(kit, "E", 1, 3)
    await summarise(kit, "L", 3, 5)
    equal(await history(kit), ["E", "L", "f"], "history")


@case("messages", "fold-covers-a-summary", covers=HISTORY)
async def case_fold_covers_summary(kit: Kit) -> None:
    """A summary whose interval takes in another summary's own place, but not its interval, leaves both standing."""
    await say(kit.store, "t", *"abc")
    await summarise(kit, "E", 1, 2)
    await say(kit.store, "t", "d")
    await summarise(kit, "L", 3, 5)
    equal(await history(kit), ["E", "L"], "history")


@case("messages", "fold-before-strip", covers=HISTORY)
async def case_fold_strip(kit: Kit) -> None:
    """Folding comes first: a result whose call went into a summary goes too, and so does a call without its result."""
    await kit.store.commit("t", messages=[Message.user("u", id="u"), calling("c1", id="a"), Message.tool("c1", id="r")])
    await say(kit.store, "t", "v")
    await summarise(kit, "S", 1, 2)
    equal(await history(kit), ["S", "v"], "the call was folded away")
    await kit.store.commit("t", messages=[calling("c2", text="x", id="b"), Message.tool("c2", id="r2")])
    await summarise(kit, "R", 7, 7)
    (*_, last) = await kit.store.messages.history("t")
    await say(kit.store, "t", "w")
    records = await kit.store.messages.history("t")
    equal(ids(records), ["S", "v", "b", "R", "w"], "the result was folded away")
    equal([call.id for record in records for call in record.message.tool_calls], [], "so its call is left out")
    equal(last.message_id, "R", "the summary is where the result was")


@case("messages", "fold-limit", covers=HISTORY)
async def case_fold_limit(kit: Kit) -> None:
    """A limit counts the folded history: its newest records, in its order, with true parents."""
    await say(kit.store, "t", *"abcde")
    await summarise(kit, "S", 1, 3)
    await say(kit.store, "t", "f")
    whole = await kit.store.messages.history("t")
    equal(ids(whole), ["S", "d", "e", "f"], "the whole")
    for limit in range(1, 8):
        equal(await kit.store.messages.history("t", limit=limit), whole[-limit:], f"limit {limit}")


@case("messages", "fold-upto", covers=HISTORY)
async def case_fold_upto(kit: Kit) -> None:
    """Before a summary was written it does not apply."""
    await say(kit.store, "t", *"abc")
    await summarise(kit, "S", 1, 2)
    await say(kit.store, "t", "d")
    equal(await history(kit, upto=3), ["a", "b", "c"], "before it")
    equal(await history(kit, upto="S"), ["S", "c"], "at it")
    equal(await history(kit, upto="d"), ["S", "c", "d"], "after it")


@case("messages", "fold-other-branch", covers=("messages.history", "branches.fork"))
async def case_fold_other_branch(kit: Kit) -> None:
    """A summary folds the branch it was written on, not the others, not even its parent's records seen from there."""
    await say(kit.store, "t", *"abc")
    await kit.store.branches.fork("t", at="c", name="x")
    await summarise(kit, "S", 1, 2, branch="x")
    equal(await history(kit, branch="x"), ["S", "c"], "on its branch")
    equal(await history(kit), ["a", "b", "c"], "on the main branch")
    await kit.store.branches.fork("t", at="S", name="y")
    equal(await history(kit, branch="y"), ["S", "c"], "on a fork that has it")
    await kit.store.branches.fork("t", before="S", name="z")
    equal(await history(kit, branch="z"), ["a", "b", "c"], "on a fork before it")


@case("messages", "fold-path-only", covers=("messages.history", "branches.fork"))
async def case_fold_path_only(kit: Kit) -> None:
    """Seqs of other branches inside an interval are not on the path: the summary takes only what is."""
    await say(kit.store, "t", "a", "b")
    await kit.store.branches.fork("t", at="a", name="x")
    await say(kit.store, "t", "x1", "x2", branch="x")
    await say(kit.store, "t", "c")
    await summarise(kit, "S", 2, 4)
    equal(await history(kit), ["a", "S", "c"], "the main branch")
    equal(await history(kit, branch="x"), ["a", "x1", "x2"], "the other branch")


@case("messages", "fold-covers-nothing", covers=("messages.history", "branches.fork"))
async def case_fold_nothing(kit: Kit) -> None:
    """A summary of records that are not on its path (of the branch left behind) stays where it was written."""
    await say(kit.store, "t", "a", "b", "c")
    await kit.store.branches.fork("t", at="a", name="x", switch=True)
    await summarise(kit, "S", 2, 3)
    await say(kit.store, "t", "d")
    equal(await history(kit), ["a", "S", "d"], "history")
    equal(await history(kit, limit=2), ["S", "d"], "with a limit")


@case("messages", "fold-writes-nothing", covers=HISTORY)
async def case_fold_writes_nothing(kit: Kit) -> None:
    """Reading a folded history changes nothing: what was summarised is still there."""
    await say(kit.store, "t", *"abc")
    await summarise(kit, "S", 1, 3)
    before = await dump(kit.store)
    for _ in range(3):
        await history(kit)
        await kit.store.load("t")
    equal(await dump(kit.store), before, "the stored data")
    equal(len((await kit.store.messages.list("t")).items), 4, "the log")


@case("messages", "fold-load", covers=("store.load", "messages.history"))
async def case_fold_load(kit: Kit) -> None:
    """load gives the same folded history, and a version that counts every message."""
    await say(kit.store, "t", *"abcd")
    await summarise(kit, "S", 1, 3)
    snapshot = await kit.store.load("t")
    equal(list(snapshot.messages), list(await kit.store.messages.history("t")), "the history")
    equal((snapshot.version, ids(snapshot.messages)), (5, ["S", "d"]), "version and ids")


@case("messages", "fold-many", covers=HISTORY)
async def case_fold_many(kit: Kit) -> None:
    """A long thread compacted again and again: one summary and the tail."""
    for turn in range(20):
        await say(kit.store, "t", *[f"m{turn}-{n}" for n in range(9)])
        version = (await kit.store.threads.get("t")).version
        await summarise(kit, f"S{turn}", 1, version - 3)
    equal(await history(kit), ["S19", "m19-6", "m19-7", "m19-8"], "history")
    equal(await history(kit, limit=2), ["m19-7", "m19-8"], "its tail")


@case("messages", "fold-keeps-retractions", covers=("messages.history",))
async def case_fold_keeps_retractions(kit: Kit) -> None:
    """A summary that covers a retraction marker does not bring the retracted call back."""
    await kit.store.commit(
        "t",
        messages=[
            Message.user("go"),
            Message.assistant([Text("trying"), ToolUse("c1", "search", {})]),
            Message.tool("c1", "found"),
            Message.user("no, forget that"),
            Message.retraction("c1"),
        ],
    )
    await kit.store.commit("t", messages=[Message.summary("they took it back", 4, 5)])
    for limit in (None, 10):
        history = await kit.store.messages.history("t", limit=limit)
        equal([record.text for record in history], ["go", "trying", "they took it back"], f"texts with limit {limit}")
        equal([call for record in history for call in record.message.tool_calls], [], f"calls with limit {limit}")
