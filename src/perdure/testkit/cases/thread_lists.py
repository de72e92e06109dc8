"""Cases: lists of threads. Filters, orders, pages that stay stable during writes, guarded cursors."""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidError
from perdure.kernel.cursor import encode_cursor
from perdure.stores.store import Store
from perdure.testkit.helpers import expect_cursor_guarded, say
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises

LIMITS_REFUSED: tuple[Any, ...] = (0, -1, 201, True, "3", 3.0, None)
FORGED: tuple[tuple[Any, ...], ...] = ((), (1,), (1, "a", "b"), ("a", "b"), (None, None), (1, 1), (2**63, "a"))


async def listed(store: Store, **query: Any) -> list[str]:
    """The ids of one page."""
    return [thread.id for thread in (await store.threads.list(**query)).items]


async def paged(store: Store, limit: int, **query: Any) -> list[list[str]]:
    """The ids of every page."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = await store.threads.list(limit=limit, cursor=cursor, **query)
        pages.append([thread.id for thread in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return pages


async def family(kit: Kit) -> None:
    """Roots and children of two resources, each a millisecond apart: r1 r2 r3 | c1 (of r1) c2 (of r1) c3 (of r2)."""
    for name, resource, parent in (
        ("r1", "x", None),
        ("r2", "y", None),
        ("r3", None, None),
        ("c1", "x", "r1"),
        ("c2", "y", "r1"),
        ("c3", "x", "r2"),
    ):
        kit.clock.advance(1)
        await kit.store.threads.create(name, resource_id=resource, parent_thread_id=parent)


@case("threads", "list-empty", covers=("threads.list", "threads.iter"))
async def case_list_empty(kit: Kit) -> None:
    """A store without threads lists none and offers no further page."""
    page = await kit.store.threads.list()
    equal((page.items, page.next_cursor), ([], None), "the page")
    equal(await collect(kit.store.threads.iter()), [], "iter")


@case("threads", "list-pages", covers=("threads.list",))
async def case_list_pages(kit: Kit) -> None:
    """Five threads in pages of three: three, then two, then the end; a full last page has no cursor."""
    for n in range(5):
        await kit.store.threads.create(f"t{n}")
        kit.clock.advance(1)
    equal(await paged(kit.store, 3), [["t4", "t3", "t2"], ["t1", "t0"]], "pages of three")
    equal(await paged(kit.store, 5), [["t4", "t3", "t2", "t1", "t0"]], "one full page")
    equal(await paged(kit.store, 1), [["t4"], ["t3"], ["t2"], ["t1"], ["t0"]], "pages of one")


@case("threads", "list-limit", covers=("threads.list", "threads.children"))
async def case_list_limit(kit: Kit) -> None:
    """A limit is 1 to 200; anything else is refused, 0 included."""
    await kit.store.threads.create("a")
    for limit in (1, 200):
        equal(await listed(kit.store, limit=limit), ["a"], f"limit {limit}")
    for bad in LIMITS_REFUSED:
        await raises(InvalidError, kit.store.threads.list(limit=bad), f"limit {bad!r}")
        await raises(InvalidError, kit.store.threads.children("a", limit=bad), f"children with limit {bad!r}")


@case("threads", "list-default-limit", covers=("threads.list", "threads.iter"))
async def case_list_default(kit: Kit) -> None:
    """A page holds 50 by default; iter goes through all of them, beyond the largest page."""
    for n in range(205):
        await kit.store.threads.create(f"t{n:03}")
    page = await kit.store.threads.list()
    equal(len(page.items), 50, "the default page")
    expect(page.next_cursor is not None, "there is more")
    equal(sorted(t.id for t in await collect(kit.store.threads.iter())), [f"t{n:03}" for n in range(205)], "iter")


@case("threads", "list-by-activity", covers=("threads.list", "threads.update", "store.commit"))
async def case_list_activity(kit: Kit) -> None:
    """The default order is newest activity first: a commit or an update brings a thread to the front."""
    await family(kit)
    kit.clock.advance(1)
    await say(kit.store, "r2", "hi")
    kit.clock.advance(1)
    await kit.store.threads.update("c1", title="t")
    equal(await listed(kit.store), ["c1", "r2", "c3", "c2", "r3", "r1"], "by activity")
    equal(await listed(kit.store, order="active", resource_id="x"), ["c1", "c3", "r1"], "of a resource")
    equal(await listed(kit.store, order="active", parent_thread_id="r1"), ["c1", "c2"], "of a parent")


@case("threads", "list-by-creation", covers=("threads.list",))
async def case_list_creation(kit: Kit) -> None:
    """By creation nothing that happens later changes a place."""
    await family(kit)
    kit.clock.advance(1)
    await say(kit.store, "r1", "hi")
    equal(await listed(kit.store, order="created"), ["c3", "c2", "c1", "r3", "r2", "r1"], "by creation")
    equal(await listed(kit.store, order="created", resource_id="x"), ["c3", "c1", "r1"], "of a resource")
    equal(await listed(kit.store, order="created", parent_thread_id="r1"), ["c2", "c1"], "of a parent")
    await raises(InvalidError, kit.store.threads.list(order="oldest"))  # type: ignore[arg-type]


@case("threads", "list-filters", covers=("threads.list", "threads.iter"))
async def case_list_filters(kit: Kit) -> None:
    """Any, root, parent, resource and every combination, in both orders, paged and iterated."""
    await family(kit)
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["c3", "c2", "c1", "r3", "r2", "r1"]),
        ({"root": True}, ["r3", "r2", "r1"]),
        ({"parent_thread_id": "r1"}, ["c2", "c1"]),
        ({"parent_thread_id": "c1"}, []),
        ({"parent_thread_id": "ghost"}, []),
        ({"resource_id": "x"}, ["c3", "c1", "r1"]),
        ({"resource_id": "z"}, []),
        ({"resource_id": "x", "root": True}, ["r1"]),
        ({"resource_id": "x", "parent_thread_id": "r1"}, ["c1"]),
        ({"resource_id": "y", "parent_thread_id": "r2"}, []),
    ]
    for query, names in expected:
        for order in ("active", "created"):
            asked: dict[str, Any] = {**query, "order": order}
            equal(await listed(kit.store, **asked), names, f"{asked}")
            equal([n for page in await paged(kit.store, 1, **asked) for n in page], names, f"{asked} in ones")
            equal([t.id for t in await collect(kit.store.threads.iter(**asked))], names, f"iter {asked}")
    await raises(InvalidError, kit.store.threads.list(root=True, parent_thread_id="r1"), "root with a parent")


@case("threads", "list-filters-normalised", covers=("threads.list",))
async def case_list_normalised(kit: Kit) -> None:
    """Filters are trimmed as lineage is; a blank one filters nothing."""
    await family(kit)
    equal(await listed(kit.store, resource_id=" x  "), ["c3", "c1", "r1"], "an untrimmed resource")
    equal(await listed(kit.store, parent_thread_id="\u2003r1 "), ["c2", "c1"], "an untrimmed parent")
    equal(len(await listed(kit.store, resource_id="  ", parent_thread_id="")), 6, "blank filters")
    equal(await listed(kit.store, root=True, parent_thread_id=" "), ["r3", "r2", "r1"], "root with a blank parent")


@case("threads", "list-filters-literal", covers=("threads.list",))
async def case_list_literal(kit: Kit) -> None:
    """No character of a filter is a pattern, and case and accents count."""
    names = ("a%", "a_", "a\\", "ab", "A%", "a'", 'a"', "a*", "a?", "a[b]", "e\u0301", "\u00e9")
    for n, resource in enumerate(names):
        await kit.store.threads.create(f"t{n}", resource_id=resource)
        await kit.store.threads.create(resource)
        await kit.store.threads.create(f"c{n}", parent_thread_id=resource)
    for n, resource in enumerate(names):
        equal(await listed(kit.store, resource_id=resource), [f"t{n}"], f"resource {resource!r}")
        equal(await listed(kit.store, parent_thread_id=resource), [f"c{n}"], f"parent {resource!r}")


@case("threads", "list-ties", covers=("threads.list",))
async def case_list_ties(kit: Kit) -> None:
    """Threads of the same millisecond are paged completely and always in the same order."""
    for n in range(23):
        await kit.store.threads.create(f"t{n}", resource_id="r")
    for query in ({}, {"resource_id": "r"}, {"root": True}):
        for order in ("active", "created"):
            asked: dict[str, Any] = {**query, "order": order}
            whole = await listed(kit.store, limit=200, **asked)
            equal(sorted(whole), sorted(f"t{n}" for n in range(23)), f"all of {asked}")
            for limit in (1, 4, 22, 23):
                equal([n for p in await paged(kit.store, limit, **asked) for n in p], whole, f"{asked} by {limit}")


@case("threads", "paging-stable", covers=("threads.list",))
async def case_paging_stable(kit: Kit) -> None:
    """While others commit, create and delete between pages: no duplicates, and the unmodified exactly once."""
    other = await kit.second()
    for order in ("active", "created"):
        names = [f"{order}{n:02}" for n in range(30)]
        for name in names:
            kit.clock.advance(1)
            await kit.store.threads.create(name, resource_id=order)
        ids: list[str] = []
        touched: set[str] = set()
        cursor: str | None = None
        for turn in range(60):
            page = await kit.store.threads.list(resource_id=order, order=order, limit=3, cursor=cursor)
            ids += [thread.id for thread in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
            kit.clock.advance(1)
            busy = [names[turn], names[-1 - turn], names[(turn * 7) % 30]]
            touched.update(busy)
            await disturb(other, busy, f"{order}-new-{turn}", order)
        equal(len(ids), len(set(ids)), "nothing appears twice")
        for name in set(names) - touched:
            equal(ids.count(name), 1, f"{name}, which was not touched")


async def disturb(store: Store, names: list[str], newcomer: str, resource: str) -> None:
    """Commit on one thread, edit one, delete one, create one."""
    commit, edit, gone = names
    if await store.threads.find(commit) is not None:
        await store.commit(commit, state={"busy": 1})
    if await store.threads.find(edit) is not None:
        await store.threads.update(edit, title=newcomer)
    if await store.threads.find(gone) is not None:
        await store.threads.delete(gone)
    await store.threads.create(newcomer, resource_id=resource)


@case("threads", "cursor-after-deletion", covers=("threads.list",))
async def case_cursor_after_deletion(kit: Kit) -> None:
    """A cursor continues although the row it points to was deleted."""
    for n in range(6):
        kit.clock.advance(1)
        await kit.store.threads.create(f"t{n}")
    page = await kit.store.threads.list(limit=2)
    await kit.store.threads.delete("t4")
    equal(await listed(kit.store, limit=2, cursor=page.next_cursor), ["t3", "t2"], "the next page")


@case("threads", "cursor-damaged", covers=("threads.list", "threads.children"))
async def case_cursor_damaged(kit: Kit) -> None:
    """A cursor with any character flipped, missing or added is refused as expired."""
    for n in range(3):
        await kit.store.threads.create(f"t{n}")
    cursor = (await kit.store.threads.list(limit=1)).next_cursor
    expect(cursor is not None, "there is a cursor")
    await expect_cursor_guarded(lambda text: kit.store.threads.list(limit=1, cursor=text), str(cursor))


@case("threads", "cursor-foreign", covers=("threads.list", "threads.children"))
async def case_cursor_foreign(kit: Kit) -> None:
    """A cursor continues its own query only: other filters, another order or another list are refused."""
    await family(kit)
    queries: list[dict[str, Any]] = [
        {},
        {"order": "created"},
        {"root": True},
        {"resource_id": "x"},
        {"resource_id": "y"},
        {"parent_thread_id": "r1"},
        {"resource_id": "x", "order": "created"},
    ]
    for mine in queries:
        cursor = (await kit.store.threads.list(limit=1, **mine)).next_cursor
        for query in queries:
            ask = kit.store.threads.list(limit=1, cursor=cursor, **query)
            if query is mine:
                await ask
            elif cursor is not None:
                await raises(InvalidError, ask, f"the cursor of {mine} with {query}")
            else:
                ask.close()
    await say(kit.store, "r1", "a", "b")
    foreign = (await kit.store.messages.list("r1", limit=1)).next_cursor
    await raises(InvalidError, kit.store.threads.list(cursor=foreign), "a cursor of messages")


@case("threads", "cursor-forged", covers=("threads.list",))
async def case_cursor_forged(kit: Kit) -> None:
    """A cursor forged in the right format, with wrong values inside, is refused as well."""
    await family(kit)
    for keyset in FORGED:
        cursor = encode_cursor(("threads", None, None, False, "active"), keyset)
        await raises(InvalidError, kit.store.threads.list(cursor=cursor), f"keyset {keyset!r}")


@case("threads", "cursor-limit-free", covers=("threads.list",))
async def case_cursor_limit(kit: Kit) -> None:
    """The page size may change from page to page, and another client may go on with the cursor."""
    other = await kit.second()
    for n in range(9):
        kit.clock.advance(1)
        await kit.store.threads.create(f"t{n}")
    first = await kit.store.threads.list(limit=2)
    second = await other.threads.list(limit=4, cursor=first.next_cursor)
    third = await kit.store.threads.list(limit=100, cursor=second.next_cursor)
    names = [thread.id for page in (first, second, third) for thread in page.items]
    equal(names, [f"t{n}" for n in reversed(range(9))], "all of them")


@case("threads", "children-pages", covers=("threads.children",))
async def case_children_pages(kit: Kit) -> None:
    """Children are paged like any list."""
    await kit.store.threads.create("p")
    for n in range(7):
        kit.clock.advance(1)
        await kit.store.threads.create(f"c{n}", parent_thread_id="p")
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await kit.store.threads.children("p", limit=3, cursor=cursor)
        ids += [thread.id for thread in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    equal(ids, [f"c{n}" for n in reversed(range(7))], "all children")


@case("threads", "list-second-client", covers=("threads.list",))
async def case_list_second(kit: Kit) -> None:
    """What one client did, the other lists at once."""
    other = await kit.second()
    await kit.store.threads.create("a", resource_id="r")
    equal(await listed(other, resource_id="r"), ["a"], "created")
    await other.threads.update("a", resource_id="s")
    equal((await listed(kit.store, resource_id="r"), await listed(kit.store, resource_id="s")), ([], ["a"]), "moved")
    await other.threads.delete("a")
    equal(await listed(kit.store), [], "deleted")
