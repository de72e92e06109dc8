"""Cases: reading the log. Windows, orders, filters, pages, ids, ranges, and following it as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from perdure.errors import CorruptError, InvalidError, NotFoundError
from perdure.kernel.cursor import encode_cursor
from perdure.kernel.ops import Append, Op, Patch
from perdure.model.message import Message, MessageRecord
from perdure.model.receipt import Receipt
from perdure.stores.store import Store
from perdure.testkit.helpers import REFUSED_IDS, expect_cursor_guarded, ids, say, seqs, texts
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import together

LIST = ("messages.list",)
NO_COUNT: tuple[Any, ...] = (-1, 1.0, "1", True, 2**60)
LIMITS_REFUSED: tuple[Any, ...] = (0, -1, 201, True, "3", 3.0, None)


async def mixed(store: Store) -> None:
    """Ten messages: odd ones are internal, every third was produced by run `r`, others by `s`."""
    messages = [
        Message.user(
            f"m{n}",
            id=f"m{n}",
            visibility="internal" if n % 2 else "all",
            run_id="r" if n % 3 == 0 else "s",
        )
        for n in range(1, 11)
    ]
    for start in range(0, 10, 4):
        await store.commit("t", messages=messages[start : start + 4])


async def listed(store: Store, **query: Any) -> list[int]:
    """The seqs of one page."""
    return seqs((await store.messages.list("t", **query)).items)


async def paged(store: Store, limit: int, **query: Any) -> list[int]:
    """The seqs of all pages."""
    all_seqs: list[int] = []
    cursor: str | None = None
    while True:
        page = await store.messages.list("t", limit=limit, cursor=cursor, **query)
        all_seqs += seqs(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return all_seqs
        equal(len(page.items), limit, "a page that is not the last is full")


@case("messages", "append-seqs", covers=("store.commit", "messages.list"))
async def case_append_seqs(kit: Kit) -> None:
    """Appends are numbered 1, 2, 3 … over all commits, in the order given."""
    first = await kit.store.commit("t", messages=[Message.user("a")])
    second = await kit.store.commit("t", messages=[Message.user("b"), Message.user("c")])
    equal((first.seqs, second.seqs, first.version, second.version), ([1], [2, 3], 1, 3), "the receipts")
    records = (await kit.store.messages.list("t")).items
    equal((seqs(records), texts(records)), ([1, 2, 3], ["a", "b", "c"]), "the log")
    equal(ids(records), [*first.message_ids, *second.message_ids], "the ids")


@case("messages", "append-concurrent", covers=("store.commit", "messages.list"))
async def case_append_concurrent(kit: Kit) -> None:
    """64 concurrent appends through two clients: all kept, seqs exactly 1 to 64, receipts true."""
    other = await kit.second()
    await kit.store.threads.create("t")
    receipts = await together(
        *[(kit.store, other)[n % 2].commit("t", messages=[Message.user(f"m{n}", id=f"m{n}")]) for n in range(64)]
    )
    expect(all(isinstance(one, Receipt) for one in receipts), f"all succeed: {receipts!r:.500}")
    records = (await kit.store.messages.list("t", limit=200)).items
    equal(seqs(records), list(range(1, 65)), "seqs")
    equal({r.seq: r.message_id for r in records}, {r.seqs[0]: r.message_ids[0] for r in receipts}, "receipts")
    equal((await kit.store.threads.get("t")).version, 64, "version")


@case("messages", "first-append-race", covers=("store.commit", "messages.list"))
async def case_first_append_race(kit: Kit) -> None:
    """Commits that race to create their thread all land in it."""
    other = await kit.second()
    receipts = await together(
        *[(kit.store, other)[n % 2].commit("t", messages=[Message.user(f"{n}")]) for n in range(8)]
    )
    equal(sorted(r.seqs[0] for r in receipts), list(range(1, 9)), "seqs")


@case("messages", "list-raw", covers=("messages.list", "messages.iter"))
async def case_list_raw(kit: Kit) -> None:
    """The raw list hides nothing: internal messages, markers, summaries, open calls, all branches."""
    await kit.store.commit(
        "t",
        messages=[
            Message.system("s", id="1"),
            Message.assistant("thinking", id="2", visibility="internal"),
            Message.retraction("c9", id="3"),
            Message.summary("all", 1, 2, id="4"),
        ],
    )
    await kit.store.branches.fork("t", at="1", switch=True)
    await say(kit.store, "t", "5")
    await kit.store.branches.switch("t", 0)
    await say(kit.store, "t", "6")
    records = (await kit.store.messages.list("t")).items
    equal(ids(records), ["1", "2", "3", "4", "5", "6"], "every message")
    equal([record.branch for record in records], [0, 0, 0, 0, 1, 0], "branches")
    equal(ids(await collect(kit.store.messages.iter("t"))), ids(records), "iter")


@case("messages", "list-windows", covers=LIST)
async def case_windows(kit: Kit) -> None:
    """after_seq and before_seq are exclusive bounds, alone, together, in both orders, beyond the ends."""
    await mixed(kit.store)
    for after in (None, 0, 1, 5, 10, 99):
        for before in (None, 0, 1, 2, 6, 10, 11, 99):
            inside = [s for s in range(1, 11) if s > (after or 0) and (before is None or s < before)]
            asked = {"after_seq": after, "before_seq": before}
            equal(await listed(kit.store, **asked), inside, f"{asked}")
            equal(await listed(kit.store, order="desc", **asked), inside[::-1], f"{asked} descending")
            equal(await paged(kit.store, 3, **asked), inside, f"{asked} in threes")
            equal(await paged(kit.store, 3, order="desc", **asked), inside[::-1], f"{asked} in threes, descending")


@case("messages", "list-visibility", covers=("messages.list", "messages.iter"))
async def case_visibility(kit: Kit) -> None:
    """Any, external and internal are plain filters."""
    await mixed(kit.store)
    for visibility, expected in (
        ("any", list(range(1, 11))),
        ("external", [2, 4, 6, 8, 10]),
        ("internal", [1, 3, 5, 7, 9]),
    ):
        asked: dict[str, Any] = {"visibility": visibility}
        equal(await listed(kit.store, **asked), expected, visibility)
        equal(await paged(kit.store, 2, order="desc", **asked), expected[::-1], f"{visibility}, descending, in twos")
        equal(seqs(await collect(kit.store.messages.iter("t", **asked))), expected, f"iter {visibility}")
    wrong: Any = "secret"
    await raises(InvalidError, kit.store.messages.list("t", visibility=wrong))


@case("messages", "list-run", covers=LIST)
async def case_run(kit: Kit) -> None:
    """By producing run, alone and together with everything else."""
    await mixed(kit.store)
    equal(await listed(kit.store, run_id="r"), [3, 6, 9], "run r")
    equal(await listed(kit.store, run_id="missing"), [], "an unknown run")
    everything: dict[str, Any] = {"after_seq": 1, "order": "desc", "visibility": "external", "run_id": "s"}
    equal(await listed(kit.store, **everything), [10, 8, 4, 2], "after 1, descending, external, run s")
    equal(await paged(kit.store, 1, **everything), [10, 8, 4, 2], "the same in ones")
    for bad in REFUSED_IDS:
        await raises(InvalidError, kit.store.messages.list("t", run_id=bad), f"run {bad!r}")


@case("messages", "list-limits", covers=LIST)
async def case_limits(kit: Kit) -> None:
    """A page is 1 to 200 records, 50 by default; wrong windows and orders are refused."""
    await kit.store.commit("t", messages=[Message.user(str(n)) for n in range(205)])
    equal(len(await listed(kit.store)), 50, "the default page")
    equal(len(await listed(kit.store, limit=200)), 200, "the largest page")
    equal(seqs(await collect(kit.store.messages.iter("t"))), list(range(1, 206)), "iter goes through all")
    equal(seqs(await collect(kit.store.messages.iter("t", order="desc"))), list(range(205, 0, -1)), "iter descending")
    for bad in LIMITS_REFUSED:
        await raises(InvalidError, kit.store.messages.list("t", limit=bad), f"limit {bad!r}")
    for bad in NO_COUNT:
        await raises(InvalidError, kit.store.messages.list("t", after_seq=bad), f"after_seq {bad!r}")
        await raises(InvalidError, kit.store.messages.list("t", before_seq=bad), f"before_seq {bad!r}")
    wrong: Any = "up"
    await raises(InvalidError, kit.store.messages.list("t", order=wrong))


@case("messages", "missing-thread", covers=("messages.list", "messages.find", "messages.range", "messages.external"))
async def case_missing_thread(kit: Kit) -> None:
    """A thread without messages reads as empty; a missing thread is an error, never an empty answer."""
    await kit.store.threads.create("t")
    page = await kit.store.messages.list("t")
    equal((page.items, page.next_cursor), ([], None), "the page of an empty thread")
    reads = kit.store.messages
    for read in (reads.history("t"), reads.external("t"), reads.range("t", 1, 9), reads.unfinished_calls("t")):
        equal(list(await read), [], "an empty thread")
    for attempt in (
        reads.list("missing"),
        reads.history("missing"),
        reads.external("missing"),
        reads.range("missing", 1, 9),
        reads.unfinished_calls("missing"),
        reads.find("missing", "m"),
        reads.get("missing", "m"),
        collect(reads.iter("missing")),
    ):
        await raises(NotFoundError, attempt)


@case("messages", "by-id", covers=("messages.get", "messages.find"))
async def case_by_id(kit: Kit) -> None:
    """get and find give the record with its place; an absent id is an error or None; other threads' ids are absent."""
    await say(kit.store, "t", "a", "b")
    await say(kit.store, "u", "c")
    record = await kit.store.messages.get("t", "b")
    expected = MessageRecord("t", 2, 0, "a", Message.user("b", id="b"), kit.clock.now)
    equal(record, expected, "get")
    equal(await kit.store.messages.find("t", "b"), expected, "find")
    for absent in ("c", "B", "b ", "%", "2"):
        equal(await kit.store.messages.find("t", absent), None, f"find {absent!r}")
        await raises(NotFoundError, kit.store.messages.get("t", absent), f"get {absent!r}")
    for bad in REFUSED_IDS:
        await raises(InvalidError, kit.store.messages.find("t", bad), f"find {bad!r}")


@case("messages", "ranges", covers=("messages.range",))
async def case_ranges(kit: Kit) -> None:
    """A range includes both ends, ends where the log ends, and refuses to be empty or start before 1."""
    await say(kit.store, "t", *"abcde")
    for first, last, expected in ((1, 1, "a"), (2, 4, "bcd"), (1, 5, "abcde"), (5, 99, "e"), (6, 9, "")):
        equal("".join(texts(await kit.store.messages.range("t", first, last))), expected, f"{first}..{last}")
    for first, last in ((0, 1), (2, 1), (-1, 1), (1, 0)):
        await raises(InvalidError, kit.store.messages.range("t", first, last), f"{first}..{last}")
    for bad in NO_COUNT:
        await raises(InvalidError, kit.store.messages.range("t", bad, 5), f"from {bad!r}")
        await raises(InvalidError, kit.store.messages.range("t", 1, bad), f"to {bad!r}")


@case("messages", "cursor-damaged", covers=LIST)
async def case_cursor_damaged(kit: Kit) -> None:
    """A cursor with any character changed, missing or added is refused; so is a forged one."""
    await say(kit.store, "t", "a", "b", "c")
    cursor = (await kit.store.messages.list("t", limit=1)).next_cursor
    expect(cursor is not None, "there is a cursor")
    await expect_cursor_guarded(lambda text: kit.store.messages.list("t", limit=1, cursor=text), str(cursor))
    query = ("messages", "t", None, None, "asc", "any", None)
    equal(encode_cursor(query, (1,)), cursor, "the format this case forges")
    for keyset in ((), ("1",), (None,), (1, 2), (2**63,)):
        forged = encode_cursor(query, keyset)
        await raises(InvalidError, kit.store.messages.list("t", cursor=forged), f"keyset {keyset!r}")


@case("messages", "cursor-window", covers=LIST)
async def case_cursor_window(kit: Kit) -> None:
    """A forged cursor begins no page outside the window that its query asks for."""
    await mixed(kit.store)
    rising, falling = ("messages", "t", 2, 6, "asc", "any", None), ("messages", "t", 2, 6, "desc", "any", None)
    for last in (-(2**52), -1, 0, 1):
        rest = await listed(kit.store, after_seq=2, before_seq=6, cursor=encode_cursor(rising, (last,)))
        equal(rest, [3, 4, 5], f"continued after {last}")
    for last in (6, 7, 9, 2**52):
        cursor = encode_cursor(falling, (last,))
        rest = await listed(kit.store, after_seq=2, before_seq=6, order="desc", cursor=cursor)
        equal(rest, [5, 4, 3], f"continued before {last}")
    cursor = encode_cursor(("messages", "t", None, None, "asc", "any", None), (-5,))
    equal(await listed(kit.store, cursor=cursor), list(range(1, 11)), "continued before the first")


@case("messages", "cursor-foreign", covers=LIST)
async def case_cursor_foreign(kit: Kit) -> None:
    """A cursor belongs to its thread, window, order, visibility and run; not to its limit or its client."""
    await mixed(kit.store)
    await say(kit.store, "u", "x", "y")
    queries: list[dict[str, Any]] = [
        {},
        {"after_seq": 1},
        {"before_seq": 9},
        {"order": "desc"},
        {"visibility": "external"},
        {"visibility": "internal"},
        {"run_id": "r"},
        {"run_id": "s"},
    ]
    other = await kit.second()
    for mine in queries:
        page = await kit.store.messages.list("t", limit=1, **mine)
        rest = await other.messages.list("t", limit=200, cursor=page.next_cursor, **mine)
        equal(seqs(page.items + rest.items), await listed(kit.store, **mine), f"the pages of {mine}")
        for query in queries:
            if query != mine:
                attempt = kit.store.messages.list("t", cursor=page.next_cursor, **query)
                await raises(InvalidError, attempt, f"the cursor of {mine} with {query}")
        await raises(InvalidError, kit.store.messages.list("u", cursor=page.next_cursor, **mine), "another thread")


@case("messages", "paging-stable", covers=LIST)
async def case_paging_stable(kit: Kit) -> None:
    """While others append: every record exactly once, in both directions."""
    other = await kit.second()
    await say(kit.store, "t", *[f"m{n}" for n in range(10)])
    for order in ("asc", "desc"):
        all_seqs: list[int] = []
        start = (await kit.store.threads.get("t")).version
        cursor: str | None = None
        for turn in range(100):
            page = await kit.store.messages.list("t", limit=2, order=order, cursor=cursor)
            all_seqs += seqs(page.items)
            cursor = page.next_cursor
            if cursor is None:
                break
            if turn < 8:
                await say(other, "t", f"{order}{turn}")
        equal(len(set(all_seqs)), len(all_seqs), "nothing twice")
        expect(set(range(1, start + 1)) <= set(all_seqs), "everything that was there")
        equal(all_seqs, sorted(all_seqs, reverse=order == "desc"), "in order")


@case("messages", "damage-is-reported", covers=("messages.list", "messages.history", "messages.get"))
async def case_damage(kit: Kit) -> None:
    """A damaged record is an error that names thread and seq on every read; it is not skipped."""
    await say(kit.store, "t", "a")
    entry = ("broken", "user", 0, "all", None, None, 0, b'{"content": "not blocks"}')
    ops: list[Op] = [Append("messages", "t", [entry]), Patch("thread_heads", ("t",), {"version": 2})]
    await kit.store.engine.transact(kit.store.scope, ops)
    await say(kit.store, "t", "b")
    reads = kit.store.messages
    for attempt in (reads.list("t"), reads.history("t"), reads.external("t"), reads.get("t", "broken")):
        where = (await raises(CorruptError, attempt)).where
        expect("'t'" in where and "2" in where, f"the damage is named: {where}")
    equal(texts(await reads.range("t", 3, 3)), ["b"], "what is sound can be read")


@case("messages", "lost-messages-reported", covers=("messages.history",))
async def case_lost(kit: Kit) -> None:
    """A log shorter than the thread's version is damage, not a shorter conversation."""
    await say(kit.store, "t", "a", "b")
    await kit.store.engine.transact(kit.store.scope, [Patch("thread_heads", ("t",), {"version": 3})])
    error = await raises(CorruptError, kit.store.messages.history("t"))
    expect("2" in str(error) and "3" in str(error), f"both numbers are named: {error}")


async def take(records: AsyncIterator[MessageRecord], count: int) -> list[int]:
    """The seqs of the next records."""
    return [(await anext(records)).seq for _ in range(count)]


@case("messages", "follow", covers=("messages.follow",))
async def case_follow(kit: Kit) -> None:
    """History first, then live, from any seq, no gap and no repeat, also when another client writes."""
    other = await kit.second()
    await say(kit.store, "t", "a", "b", "c")
    whole = kit.store.messages.follow("t")
    tail = other.messages.follow("t", after_seq=2)
    equal((await take(whole, 3), await take(tail, 1)), ([1, 2, 3], [3]), "history")
    for n in range(5):
        waiting = asyncio.ensure_future(take(whole, 2)), asyncio.ensure_future(take(tail, 2))
        await asyncio.sleep(0)
        await say((kit.store, other)[n % 2], "t", f"x{n}")
        await say((other, kit.store)[n % 2], "t", f"y{n}")
        expected = [4 + 2 * n, 5 + 2 * n]
        equal([await one for one in waiting], [expected, expected], "live")
    for stream in (whole, tail):
        await stream.aclose()


@case("messages", "follow-burst", covers=("messages.follow",))
async def case_follow_burst(kit: Kit) -> None:
    """A follower sees hundreds of concurrent commits of two clients once each, in order."""
    other = await kit.second()
    await kit.store.threads.create("t")
    stream = other.messages.follow("t")
    reader = asyncio.ensure_future(take(stream, 300))
    for start in range(0, 300, 20):
        batch = [(kit.store, other)[n % 2].commit("t", messages=[Message.user("x")]) for n in range(start, start + 20)]
        await asyncio.gather(*batch)
    equal(await reader, list(range(1, 301)), "everything")
    await stream.aclose()


@case("messages", "follow-ends", covers=("messages.follow", "threads.delete"))
async def case_follow_ends(kit: Kit) -> None:
    """Following a missing thread, or one that is deleted in between, ends with NotFoundError."""
    await raises(NotFoundError, anext(kit.store.messages.follow("missing")))
    await say(kit.store, "t", "a")
    stream = kit.store.messages.follow("t", after_seq=1)
    waiting = asyncio.ensure_future(take(stream, 1))
    await asyncio.sleep(0)
    await (await kit.second()).threads.delete("t")
    await raises(NotFoundError, waiting)
