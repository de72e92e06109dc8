"""Cases: look-ups for people and tools: ids by their beginning, a raw path, a count, and housekeeping on demand."""

from __future__ import annotations

from perdure import failpoints, limits
from perdure.errors import InvalidError, NotFoundError
from perdure.model.message import Message
from perdure.testkit.helpers import REFUSED_IDS, Died, commit_texts, die, everything, ids, texts
from perdure.testkit.kit import Kit, case, equal, raises
from perdure.testkit.probe import belongs_to, dump

IDS = ("a", "ab", "abc", "abd", "ac", "b", "AB", "ab京", "ab%", "ab_", "ab*", "ab\\", "ab\U0001f980")
PREFIXES = ("a", "ab", "abc", "abcd", "b", "A", "ab京", "ab%", "ab_", "ab*", "z")
LIMITS_REFUSED = (0, -1, limits.PAGE_MAX + 1, True, "3", None)


def _matching(prefix: str) -> list[str]:
    """The ids that start with the prefix, in the order of their code points."""
    return sorted(name for name in IDS if name.startswith(prefix))


@case("threads", "with-prefix", covers=("threads.with_prefix",))
async def case_threads_with_prefix(kit: Kit) -> None:
    """Threads by the beginning of their ids: in order, case matters, no character is a wildcard."""
    threads = kit.store.threads
    equal(await threads.with_prefix("a"), [], "no threads at all")
    for name in IDS:
        await threads.create(name, title=f"title of {name}")
    await kit.store.scoped("other").threads.create("abz")
    for prefix in PREFIXES:
        equal([thread.id for thread in await threads.with_prefix(prefix)], _matching(prefix), prefix)
    equal(await threads.with_prefix("abc"), [await threads.get("abc")], "items are whole records")
    for limit in (1, 2, 5):
        ids_of_page = [thread.id for thread in await threads.with_prefix("ab", limit=limit)]
        equal(ids_of_page, _matching("ab")[:limit], f"at most {limit}")
    await threads.delete("ab")
    equal([thread.id for thread in await threads.with_prefix("ab", limit=1)], _matching("ab")[1:2], "a deleted one")


@case("runs", "with-prefix", covers=("runs.with_prefix",))
async def case_runs_with_prefix(kit: Kit) -> None:
    """Runs by the beginning of their ids, whatever their thread."""
    runs = kit.store.runs
    equal(await runs.with_prefix("a"), [], "no runs at all")
    for number, name in enumerate(IDS):
        await runs.create(f"t{number % 3}", "agent", run_id=name)
    await kit.store.scoped("other").runs.create("t", "agent", run_id="abz")
    for prefix in PREFIXES:
        equal([run.id for run in await runs.with_prefix(prefix)], _matching(prefix), prefix)
    equal(await runs.with_prefix("abc"), [await runs.get("abc")], "items are whole records")
    for limit in (1, 2, 5):
        equal([run.id for run in await runs.with_prefix("ab", limit=limit)], _matching("ab")[:limit], f"{limit}")


@case("runs", "with-prefix-erased", covers=("runs.with_prefix", "threads.with_prefix"))
async def case_with_prefix_erased(kit: Kit) -> None:
    """Runs of a thread that is being erased are left out, and do not hide the ones behind them."""
    for number in range(7):
        await kit.store.runs.create("t-doomed", "agent", run_id=f"r{number}")
    await kit.store.runs.create("t-alive", "agent", run_id="r9")
    failpoints.arm("delete.after_tombstone", die)
    await raises(Died, kit.store.threads.delete("t-doomed"))
    for limit in (1, 2, 50):
        equal([run.id for run in await kit.store.runs.with_prefix("r", limit=limit)], ["r9"], f"limit {limit}")
    equal(await kit.store.runs.with_prefix("r3"), [], "an exact id")
    equal([thread.id for thread in await kit.store.threads.with_prefix("t-")], ["t-alive"], "threads")


@case("threads", "with-prefix-refused", covers=("threads.with_prefix", "runs.with_prefix"))
async def case_with_prefix_refused(kit: Kit) -> None:
    """A prefix is text like an id; a limit is that of a page."""
    for look_up in (kit.store.threads.with_prefix, kit.store.runs.with_prefix):
        for bad in REFUSED_IDS:
            await raises(InvalidError, look_up(bad), f"prefix {bad!r}")
        for limit in LIMITS_REFUSED:
            await raises(InvalidError, look_up("a", limit=limit), f"limit {limit!r}")  # type: ignore[arg-type]


@case("messages", "path-against-list", covers=("messages.path",))
async def case_path(kit: Kit) -> None:
    """The raw records of one branch: internal, compacted and unanswered ones too, from the root to the head."""
    store = kit.store
    await commit_texts(store, "t", "a", "b", "c")
    first = (await store.messages.range("t", 2, 2))[0].message_id
    await store.branches.fork("t", at=first, name="side", switch=True)
    hidden = Message.user("hidden", visibility="internal")
    await store.commit("t", messages=[Message.user("d"), hidden, Message.summary("so far", 1, 2)])
    equal("|".join(texts(await store.messages.path("t"))), "a|b|d|hidden|so far", "the current branch")
    equal("".join(texts(await store.messages.path("t", branch="main"))), "abc", "another branch")
    equal("|".join(texts(await store.messages.path("t", limit=2))), "hidden|so far", "the newest two")
    equal("".join(texts(await store.messages.path("t", upto=4))), "abd", "up to a seq")
    equal("".join(texts(await store.messages.path("t", upto=first))), "ab", "up to a message")
    listed = {record.message_id: record for record in (await store.messages.list("t")).items}
    for limit in (None, 1, 3):
        records = await store.messages.path("t", limit=limit)
        equal(records, [listed[name] for name in ids(records)], f"the records of the list, limit {limit}")
    for bad in (0, -1, "3", True):
        await raises(InvalidError, store.messages.path("t", limit=bad), f"limit {bad!r}")  # type: ignore[arg-type]
    await raises(NotFoundError, store.messages.path("nowhere"), "no thread")
    await raises(NotFoundError, store.messages.path("t", branch="nowhere"), "no branch")


@case("pending", "count", covers=("pending.count",))
async def case_count(kit: Kit) -> None:
    """How many messages are pending, after everything that changes it."""
    pending = kit.store.pending
    await raises(NotFoundError, pending.count("t"), "no thread")
    await kit.store.threads.create("t")
    equal(await pending.count("t"), 0, "no queue yet")
    await pending.append("t", [Message.user(text, id=text) for text in "abc"])
    equal(await pending.count("t"), 3, "after an append")
    await pending.retract("t", "b")
    equal(await pending.count("t"), len((await pending.list("t")).items), "after a retraction")
    await pending.freeze("t")
    equal(await pending.count("t"), 0, "after a freeze")
    for bad in REFUSED_IDS:
        await raises(InvalidError, pending.count(bad), f"{bad!r}")


@case("lifecycle", "sweep-now", covers=("store.sweep",))
async def case_sweep_now(kit: Kit) -> None:
    """Housekeeping on demand finishes what was interrupted in its own scope, and may be repeated."""
    other = kit.store.scoped("other")
    for store in (kit.store, other):
        await everything(store)
        failpoints.arm("delete.after_tombstone", die)
        await raises(Died, store.threads.delete("t"))
    await kit.store.sweep()
    await kit.store.sweep()
    equal(sorted(belongs_to(await dump(kit.store, "t"), "t")), ["threads"], "nothing but the tombstone is left")
    await other.sweep()
    equal(sorted(belongs_to(await dump(other, "t"), "t")), ["threads"], "the other scope")
