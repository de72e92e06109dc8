"""Cases: one branch in pages and as a whole. Every view, branches of branches, and writers between two pages."""

from __future__ import annotations

from random import Random
from typing import Any

from perdure.errors import CursorExpired, InvalidError, NotFoundError
from perdure.kernel.cursor import encode_cursor
from perdure.model.message import Message, MessageRecord
from perdure.model.page import Page
from perdure.stores.message_pages import View
from perdure.stores.store import Store
from perdure.testkit.helpers import REFUSED_IDS, calling, expect_cursor_guarded, ids, parents, say, seqs
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises

PAGE = ("messages.page",)
PATH = ("messages.path",)
VIEWS: tuple[View, ...] = ("external", "history", "raw")
LIMITS_REFUSED: tuple[Any, ...] = (0, -1, True, "3", 3.0)
LIMITS_OF_PAGES_REFUSED: tuple[Any, ...] = (*LIMITS_REFUSED, 201, None)
ENDS_REFUSED: tuple[Any, ...] = (0, -1, True, 1.5, 2**60, [], *REFUSED_IDS[:6])
VIEWS_REFUSED: tuple[Any, ...] = ("", "all", "External", None, 3)
BRANCHES_REFUSED: tuple[Any, ...] = (1.5, [], "", True, 2**60)
SEEDS = 8
Records = list[MessageRecord]


async def whole(store: Store, view: str, branch: int | str | None = None) -> Records:
    """A view of a branch that is not cut into pages."""
    read = {"external": store.messages.external, "history": store.messages.history, "raw": store.messages.path}[view]
    return await read("t", branch=branch)


async def walk(store: Store, limit: int, **query: Any) -> list[Records]:
    """All pages, oldest first, checked for an honest end."""
    pages: list[Records] = []
    cursor: str | None = None
    while True:
        page = await store.messages.page("t", limit=limit, cursor=cursor, **query)
        expect(page.items or not pages, f"an empty page of {query}")
        pages.insert(0, page.items)
        cursor = page.next_cursor
        if cursor is None:
            return pages


def joined(pages: list[Records]) -> Records:
    """The records of all pages."""
    return [record for page in pages for record in page]


def separated(records: Records) -> list[str]:
    """The results whose calls are not among the records before them."""
    asked: set[str] = set()
    missing: list[str] = []
    for record in records:
        call = record.message.tool_call_id
        if record.role == "tool" and call is not None and call not in asked:
            missing.append(call)
        asked.update(call.id for call in record.message.tool_calls)
    return missing


async def expect_pages(store: Store, limit: int, what: str, branch: int | str | None = None) -> None:
    """The pages of each view are the view: none too short, none too long but for a group that does not fit."""
    for view in VIEWS:
        expected = await whole(store, view, branch)
        pages = await walk(store, limit, view=view, branch=branch)
        equal(joined(pages), expected, f"{what}: {view} by {limit}")
        if view != "history":
            sizes = [len(page) for page in pages[1:]]
            equal(sizes, [limit] * len(sizes), f"{what}: sizes of {view} by {limit}")
            continue
        for page in pages:
            equal(separated(page), [], f"{what}: results without their call, by {limit}")
            groups = [at for at in range(1, len(page)) if not separated(page[at:])]
            expect(len(page) <= limit or not groups, f"{what}: {len(page)} records by {limit}, separable at {groups}")


class Conversation:
    """Random messages: talk, notes, calls with early, late and no results, retractions, and ids used again."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._made = 0
        self._calls: list[str] = ["never-called"]

    def some(self, count: int, *, written: int = 0) -> list[Message]:
        """So many messages; summaries among them cover some of those already written."""
        return [self._message(written) for _ in range(count)]

    def _message(self, written: int) -> Message:
        self._made += 1
        name = f"m{self._made}"
        kind = self._random.choice("uuuuaanccccrrrrrxs")
        if kind == "s" and written:
            first, last = sorted(self._random.choices(range(1, written + 1), k=2))
            return Message.summary("so far", first, last, id=name)
        if kind == "c":
            calls = [f"c{self._made}-{n}" for n in range(self._random.randrange(1, 4))]
            again = [self._random.choice(self._calls)] if self._random.random() < 0.1 else []
            self._calls += calls
            return calling(*calls, *again, text=self._random.choice(["", "let me see"]), id=name)
        if kind in "rx":
            call = self._random.choice(self._calls[-6:])
            return Message.retraction(call, id=name) if kind == "x" else Message.tool(call, "result", id=name)
        return Message.user("text", id=name, visibility="internal" if kind == "n" else "all")


async def grow(store: Store, random: Random) -> list[int]:
    """A thread with branches of branches, whose messages were written alternately; the branches."""
    conversation = Conversation(random)
    await store.threads.create("t")
    await store.commit("t", messages=conversation.some(30))
    branches = [0]
    for _ in range(3):
        line = await store.messages.path("t", branch=random.choice(branches))
        fork = await store.branches.fork("t", at=random.choice(line).message_id)
        branches.append(fork.id)
        for branch in (fork.id, random.choice(branches)):
            written = (await store.threads.get("t")).version
            await store.commit("t", messages=conversation.some(10, written=written), branch=branch)
    return branches


@case("messages", "page-random", covers=(*PAGE, *PATH, "messages.external", "messages.history"))
async def case_random(kit: Kit) -> None:
    """Of random threads with branches of branches, the pages of each view are exactly that view."""
    for seed in range(SEEDS):
        random = Random(seed)
        for branch in await grow(kit.store, random):
            for limit in (1, random.randrange(2, 12), 200):
                await expect_pages(kit.store, limit, f"seed {seed}, branch {branch}", branch)
        await kit.store.threads.delete("t")


@case("messages", "page-before", covers=PAGE)
async def case_before(kit: Kit) -> None:
    """`before` leaves out a seq or a message and what comes later; answers and retractions from there still count."""
    for seed in range(SEEDS // 2):
        await grow(kit.store, Random(seed))
        expected = {view: await whole(kit.store, view) for view in VIEWS}
        for record in expected["raw"][:: 1 + seed]:
            for view in ("external", "raw"):
                older = [other for other in expected[view] if other.seq < record.seq][-3:]
                for before in (record.seq, record.message_id):
                    page = await kit.store.messages.page("t", view=view, before=before, limit=3)
                    equal(page.items, older, f"seed {seed}: {view} before {before!r}")
        for at, record in enumerate(expected["history"]):
            page = await kit.store.messages.page("t", view="history", before=record.message_id, limit=200)
            equal(page.items, expected["history"][:at], f"seed {seed}: history before {record.message_id}")
        await kit.store.threads.delete("t")


@case("messages", "page-late-verdicts", covers=PAGE)
async def case_late(kit: Kit) -> None:
    """An older page knows of results and retractions that came much later, and shows nothing that was withdrawn."""
    talk = [Message.user("text") for _ in range(60)]
    asked = [calling("late", id="a"), calling("withdrawn", id="b"), calling("open", id="c"), calling("again", id="d")]
    await kit.store.commit("t", messages=[*asked, Message.tool("withdrawn", id="r"), Message.user("x", id="x")])
    await kit.store.commit("t", messages=[*talk, Message.tool("late"), calling("again", id="e"), Message.tool("again")])
    first = await kit.store.messages.page("t", before="x", limit=9)
    equal(ids(first.items), ["a", "b", "r"], "before the retraction")
    await kit.store.commit("t", messages=[*talk, Message.retraction("withdrawn")])
    for limit, expected in ((9, ["a"]), (1, ["a"])):
        page = await kit.store.messages.page("t", before="x", limit=limit)
        equal((ids(page.items), page.next_cursor), (expected, None), f"after it, by {limit}")
    equal([call.id for call in page.items[0].message.tool_calls], ["late"], "the call that was answered late")


@case("messages", "page-pairs", covers=PAGE)
async def case_pairs(kit: Kit) -> None:
    """A page of the history is shortened to keep a call with its results, and lengthened if they fit no page."""
    results = [Message.tool(f"c{n}", id=f"r{n}") for n in range(4)]
    await say(kit.store, "t", "u")
    await kit.store.commit("t", messages=[calling("c0", "c1", "c2", "c3", id="a"), *results, Message.user("v", id="v")])
    group = ["a", "r0", "r1", "r2", "r3"]
    for limit, expected in (
        (1, [["u"], group, ["v"]]),
        (4, [["u"], group, ["v"]]),
        (5, [["u"], group, ["v"]]),
        (6, [["u"], [*group, "v"]]),
        (7, [["u", *group, "v"]]),
    ):
        pages = await walk(kit.store, limit, view="history")
        equal([ids(page) for page in pages], expected, f"by {limit}")
    equal([ids(page) for page in await walk(kit.store, 4)], [["u", "a", "r0"], ["r1", "r2", "r3", "v"]], "external")


@case("messages", "page-writers", covers=(*PAGE, "branches.switch", "branches.rename"))
async def case_writers(kit: Kit) -> None:
    """While others write, switch and rename: nothing twice, and everything that the view shows throughout."""
    other = await kit.second()
    for seed in range(SEEDS):
        random = Random(seed)
        branches = await grow(kit.store, random)
        chosen, view = random.choice(branches), VIEWS[seed % 3]
        await kit.store.branches.switch("t", chosen)
        start = await whole(kit.store, view)
        conversation = Conversation(random)
        cursor: str | None = None
        all_seqs: list[int] = []
        for turn in range(1_000):
            page = await kit.store.messages.page("t", view=view, limit=2, cursor=cursor)
            all_seqs[:0] = seqs(page.items)
            cursor = page.next_cursor
            if cursor is None:
                break
            if turn < 6:
                messages = [Message(m.role, m.content, visibility=m.visibility) for m in conversation.some(3)]
                await other.commit("t", messages=messages, branch=random.choice([chosen, random.choice(branches)]))
                await other.branches.switch("t", random.choice(branches))
                await other.branches.rename("t", chosen, f"name-{turn}")
        equal(len(set(all_seqs)), len(all_seqs), f"seed {seed}: nothing twice")
        end = seqs(await whole(kit.store, view, chosen))
        lost = set(seqs(start)) & set(end) - set(all_seqs)
        equal(lost, set(), f"seed {seed}: what {view} of branch {chosen} shows throughout")
        strangers = set(all_seqs) - set(seqs(await whole(kit.store, "raw", chosen)))
        equal(strangers, set(), f"seed {seed}: records of other lines")
        await kit.store.threads.delete("t")


@case("messages", "page-cursors", covers=PAGE)
async def case_cursors(kit: Kit) -> None:
    """A cursor belongs to its thread, branch, view and end, and to any limit and client; a damaged one is refused."""
    await say(kit.store, "t", *"abcdef")
    await say(kit.store, "u", *"xyz")
    await kit.store.branches.fork("t", at="d", name="side")
    queries: list[dict[str, Any]] = [{}, {"view": "raw"}, {"view": "history"}, {"branch": 1}, {"branch": "main"}]
    queries += [{"before": 6}, {"before": "f"}, {"branch": "side"}]
    other = await kit.second()
    for mine in queries:
        page = await kit.store.messages.page("t", limit=1, **mine)
        rest = await other.messages.page("t", limit=200, cursor=page.next_cursor, **mine)
        everything = await kit.store.messages.page("t", limit=200, **mine)
        equal(rest.items + page.items, everything.items, f"the pages of {mine}")
        for query in (query for query in queries if query != mine and (query or mine != {"branch": 1})):
            attempt = kit.store.messages.page("t", cursor=page.next_cursor, **query)
            await raises(InvalidError, attempt, f"the cursor of {mine} with {query}")
        await raises(InvalidError, kit.store.messages.page("u", cursor=page.next_cursor, **mine), "another thread")
    page = await kit.store.messages.page("t", limit=1)
    cursor = str(page.next_cursor)
    rest = await kit.store.messages.page("t", branch=page.branch, cursor=cursor)
    equal(ids(rest.items), [*"abcde"], "the branch may be named by the number that the page returned")
    await expect_cursor_guarded(lambda text: kit.store.messages.page("t", limit=1, cursor=text), cursor)
    await raises(InvalidError, kit.store.messages.list("t", cursor=cursor), "a cursor of pages for a list")


@case("messages", "page-cursor-forged", covers=PAGE)
async def case_forged(kit: Kit) -> None:
    """A forged cursor leaves neither the branch that the query names nor its window."""
    await say(kit.store, "t", *"abcdef")
    await kit.store.branches.fork("t", at="b", name="side")
    await say(kit.store, "t", "g", branch="side")
    for branch, kind in ((0, InvalidError), ("main", CursorExpired)):
        query = ("page", "t", branch if isinstance(branch, str) else None, "external", 5)
        for end, expected in ((2**52, "abcd"), (9, "abcd"), (3, "ab"), (1, ""), (0, ""), (-(2**52), "")):
            page = await kit.store.messages.page("t", branch=branch, before=5, cursor=encode_cursor(query, (0, end)))
            equal("".join(ids(page.items)), expected, f"continued before {end}")
        forged = encode_cursor(query, (1, 9))
        await raises(kind, kit.store.messages.page("t", branch=branch, before=5, cursor=forged), "another branch")
    for keyset in ((), (0,), ("0", 9), (0, "9"), (0, None), (0, 9, 9)):
        forged = encode_cursor(("page", "t", None, "external", None), keyset)
        await raises(InvalidError, kit.store.messages.page("t", cursor=forged), f"keyset {keyset!r}")
    for number in (7, -1):
        forged = encode_cursor(("page", "t", None, "external", None), (number, 9))
        await raises(CursorExpired, kit.store.messages.page("t", cursor=forged), f"branch {number}")


@case("messages", "page-branch-gone", covers=(*PAGE, "branches.delete"))
async def case_branch_gone(kit: Kit) -> None:
    """A cursor expires with its branch, not with its name being changed; with its thread nothing is left to find."""
    await say(kit.store, "t", *"abcd")
    await kit.store.branches.fork("t", at="d", name="side")
    named = await kit.store.messages.page("t", branch="side", limit=1)
    numbered = await kit.store.messages.page("t", branch=1, limit=1)
    await kit.store.branches.rename("t", "side", "other")
    rest = await kit.store.messages.page("t", branch=1, cursor=numbered.next_cursor)
    equal(ids(rest.items), ["a", "b", "c"], "by its number")
    await raises(NotFoundError, kit.store.messages.page("t", branch="side", cursor=named.next_cursor), "the old name")
    await kit.store.branches.fork("t", at="a", name="side")
    await raises(CursorExpired, kit.store.messages.page("t", branch="side", cursor=named.next_cursor), "another side")
    await kit.store.branches.delete("t", 1)
    await raises(NotFoundError, kit.store.messages.page("t", branch=1), "a deleted branch")
    await raises(CursorExpired, kit.store.messages.page("t", branch=1, cursor=numbered.next_cursor), "its cursor")
    await kit.store.threads.delete("t")
    await raises(NotFoundError, kit.store.messages.page("t", branch=1, cursor=numbered.next_cursor), "no thread")


@case("messages", "page-arguments", covers=PAGE)
async def case_arguments(kit: Kit) -> None:
    """Wrong arguments are refused before anything is read; a message of another line is not found."""
    pages = kit.store.messages
    await raises(NotFoundError, pages.page("missing"), "a missing thread")
    await raises(NotFoundError, pages.page("missing", before="m"), "a missing thread, by message")
    await kit.store.threads.create("t")
    for view in VIEWS:
        empty = await pages.page("t", view=view)
        equal((empty.items, empty.next_cursor), ([], None), f"an empty {view}")
    for bad in LIMITS_OF_PAGES_REFUSED:
        await raises(InvalidError, pages.page("t", limit=bad), f"limit {bad!r}")
    for bad in ENDS_REFUSED:
        await raises(InvalidError, pages.page("t", before=bad), f"before {bad!r}")
    for bad in VIEWS_REFUSED:
        await raises(InvalidError, pages.page("t", view=bad), f"view {bad!r}")
    for bad in BRANCHES_REFUSED:
        await raises(InvalidError, pages.page("t", branch=bad), f"branch {bad!r}")
    await say(kit.store, "t", *"abc")
    await kit.store.branches.fork("t", at="b", name="side", switch=True)
    await say(kit.store, "t", "d")
    await raises(NotFoundError, pages.page("t", before="c"), "a message of the other branch")
    await raises(NotFoundError, pages.page("t", before="nobody"), "no message")
    equal(ids((await pages.page("t", before="c", branch="main")).items), ["a", "b"], "on its own branch")
    equal(ids((await pages.page("t", before=1)).items), [], "before the first")
    await say(kit.store, "u", *"abcdefghijklmnopqrstuvwxyz")
    await kit.store.commit("u", messages=[Message.summary("x", 1, 1, id="sum")])
    page = await pages.page("u", view="history", before="sum", limit=1)
    equal((page.items, page.next_cursor), ([], None), "a summary stands where the first that it covers stood")
    equal(ids((await pages.page("t", before=99)).items), ["a", "b", "d"], "before what is not there yet")


@case("messages", "page-iterates", covers=PAGE)
async def case_iterates(kit: Kit) -> None:
    """A page is iterated like its items, and is false without any."""
    await say(kit.store, "t", *"abc")
    page = await kit.store.messages.page("t", limit=2)
    equal((list(page), len(page), bool(page)), (page.items, 2, True), "a page with items")
    empty = await kit.store.messages.page("t", before=1)
    equal((list(empty), len(empty), bool(empty)), ([], 0, False), "a page without")
    equal(bool(Page[int]([], "more")), False, "a cursor does not make it true")


@case("messages", "page-follow", covers=(*PAGE, "messages.follow"))
async def case_page_follow(kit: Kit) -> None:
    """Following a page from its `after_seq` misses nothing: neither later records nor calls that the page hides."""
    store = kit.store
    await say(store, "t", *"abc")
    page = await store.messages.page("t", limit=2)
    equal((page.branch, page.after_seq, page.open_run_id), (0, 3, None), "at rest")
    run = await store.runs.start("t", "agent", messages=[Message.user("q", id="q")])
    asked = await store.commit("t", messages=[calling("x", id="m", text="Wait.")], run=run.step())
    ends: dict[View, int] = {"external": 4, "history": 4, "raw": 5}
    for view, after in ends.items():
        page = await store.messages.page("t", view=view, limit=2)
        equal((page.after_seq, page.open_run_id), (after, run.id), f"an open call: {view}")
    page = await store.messages.page("t")
    equal(page.items[-1].message.tool_calls, [], "the page hides the call")
    answered = await store.commit("t", messages=[Message.tool("x", "done", id="r")], run=asked.run.step())
    followed = await collect(store.messages.follow("t", view="external", after_seq=page.after_seq, timeout=0))
    equal([(each.message_id, len(each.message.tool_calls)) for each in followed], [("m", 1), ("r", 0)], "what is sent")
    page = await store.messages.page("t", limit=1)
    equal((ids(page.items), page.after_seq), (["r"], 6), "the call is answered")
    left = await store.commit("t", messages=[calling("y", id="n")], run=answered.run.step())
    hidden = await store.messages.page("t", limit=1)
    equal((ids(hidden.items), hidden.after_seq), (["r"], 6), "nothing but a call is hidden wholly")
    await store.runs.cancel(left.run.id)
    page = await store.messages.page("t", limit=1)
    equal((page.after_seq, page.open_run_id), (7, None), "nobody answers the calls of a run that is done")
    await store.branches.fork("t", at="b", name="side")
    side = await store.messages.page("t", branch="side")
    equal((side.branch, side.after_seq, ids(side.items)), (1, 2, ["a", "b"]), "the path of another branch")
    root = await store.branches.fork("t", at=None, name="root")
    equal((await store.messages.page("t", branch=root.id)).after_seq, 0, "an empty branch")


@case("messages", "path", covers=PATH)
async def case_path(kit: Kit) -> None:
    """The path of a branch is its raw line, inherited records included, nothing folded or left out."""
    await kit.store.commit(
        "t", messages=[Message.user("a", id="a"), calling("c", id="b"), Message.retraction("c", id="c")]
    )
    await kit.store.commit("t", messages=[Message.user("n", id="n", visibility="internal")])
    await kit.store.branches.fork("t", at="b", name="side")
    await kit.store.commit("t", messages=[Message.summary("all", 1, 4, id="s"), calling("open", id="o")])
    await say(kit.store, "t", "d", branch="side")
    await kit.store.branches.fork("t", at="d", name="deep", switch=True)
    await say(kit.store, "t", "e")
    read = kit.store.messages.path
    for branch, expected in (("main", "abcnso"), ("side", "abd"), ("deep", "abde"), (None, "abde"), (1, "abd")):
        records = await read("t", branch=branch)
        equal("".join(ids(records)), expected, f"branch {branch}")
        equal(list(parents(records).values()), [None, *expected[:-1]], f"parents of branch {branch}")
        for limit in range(1, 8):
            equal(await read("t", branch=branch, limit=limit), records[-limit:], f"branch {branch}, limit {limit}")
    equal("".join(ids(await read("t", upto="c"))), "abc", "up to a message of another branch")
    equal("".join(ids(await read("t", upto=2))), "ab", "up to a seq")
    equal("".join(ids(await read("t", upto="c", limit=2))), "bc", "the newest up to a message")
    await kit.store.branches.delete("t", "side")
    equal("".join(ids(await read("t", upto="d"))), "abd", "up to a message of a deleted branch")
    await raises(NotFoundError, read("t", branch=1), "a deleted branch")
    await raises(NotFoundError, read("missing"), "a missing thread")
    await raises(InvalidError, read("t", branch=0, upto="a"), "a branch and a message")
    for bad in LIMITS_REFUSED:
        await raises(InvalidError, read("t", limit=bad), f"limit {bad!r}")
