"""Cases: profiles. JSON documents by owner and key that no thread owns: guards, races, pages, names and limits."""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import InvalidError, NotFoundError, VersionConflict
from perdure.kernel.ops import Put
from perdure.model.page import Page
from perdure.model.profile import Profile
from perdure.model.state import Doc
from perdure.stores.store import Store
from perdure.testkit.helpers import HOSTILE_IDS, REFUSED_IDS, conflict, everything, expect_cursor_guarded, race
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import dump, overtaken, untouched

ANN = "user:ann"


def keys(profiles: list[Profile]) -> list[str]:
    """The keys of some documents."""
    return [profile.key for profile in profiles]


async def pages(store: Store, owner: str, limit: int, **options: Any) -> list[Page[Profile]]:
    """Every page of a list."""
    cut = [await store.profiles.list(owner, limit=limit, **options)]
    while (cursor := cut[-1].next_cursor) is not None:
        cut.append(await store.profiles.list(owner, limit=limit, cursor=cursor, **options))
    return cut


@case("profiles", "put-get", covers=("profiles.put", "profiles.get", "profiles.find", "profiles.list", "profiles.iter"))
async def case_put_get(kit: Kit) -> None:
    """What was put is read, by get, find, list and iter alike, by another client too; no thread is needed."""
    made = await kit.store.profiles.put(ANN, "prefs", {"tone": "short"})
    now = kit.clock.now
    expected = Profile(
        owner=ANN,
        key="prefs",
        value={"tone": "short"},
        schema=1,
        rev=made.rev,
        created_at=now,
        updated_at=now,
        expires_at=None,
    )
    equal(made, expected, "what put returns")
    city = await kit.store.profiles.put(ANN, "City", "Kyoto")
    for store in (kit.store, await kit.second()):
        equal(await store.profiles.get(ANN, "prefs"), expected, "get")
        equal(await store.profiles.find(ANN, "prefs"), expected, "find")
        equal((await store.profiles.list(ANN)).items, [city, made], "list, by key as bytes")
        equal(await collect(store.profiles.iter(ANN)), [city, made], "iter")
    equal(made.to_json()["value"], {"tone": "short"}, "as JSON")


@case("profiles", "missing", covers=("profiles.get", "profiles.find", "profiles.list", "profiles.delete"))
async def case_missing(kit: Kit) -> None:
    """A missing document is not found, or None; an owner without documents has an empty list."""
    await raises(NotFoundError, kit.store.profiles.get(ANN, "prefs"))
    equal(await kit.store.profiles.find(ANN, "prefs"), None, "find")
    page = await kit.store.profiles.list(ANN)
    equal((page.items, page.next_cursor), ([], None), "list")
    equal(await collect(kit.store.profiles.iter(ANN)), [], "iter")
    await kit.store.profiles.delete(ANN, "prefs")
    await kit.store.profiles.clear(ANN)


@case("profiles", "replace", covers=("profiles.put",))
async def case_replace(kit: Kit) -> None:
    """A put replaces the whole value and the schema, mints a rev, and keeps when the document was created."""
    first = await kit.store.profiles.put(ANN, "prefs", {"a": 1, "b": 2})
    kit.clock.advance(10)
    second = await kit.store.profiles.put(ANN, "prefs", Doc({"a": 3}, 2))
    equal((second.value, second.schema), ({"a": 3}, 2), "the new document")
    equal((second.created_at, second.updated_at), (first.created_at, first.created_at + 10), "times")
    expect(second.rev != first.rev, "a new rev")
    equal(await kit.store.profiles.get(ANN, "prefs"), second, "as stored")


@case("profiles", "if-rev", covers=("profiles.put",))
async def case_if_rev(kit: Kit) -> None:
    """A guarded put needs that very rev, or no document for 0; a refused one writes nothing and names both revs."""
    profiles = kit.store.profiles
    first = await profiles.put(ANN, "prefs", 1, if_rev=0)
    error = await untouched(kit.store, VersionConflict, profiles.put(ANN, "prefs", 2, if_rev=0))
    conflict(error, 0, first.rev)
    second = await profiles.put(ANN, "prefs", 2, if_rev=first.rev)
    error = await untouched(kit.store, VersionConflict, profiles.put(ANN, "prefs", 3, if_rev=first.rev))
    conflict(error, first.rev, second.rev)
    error = await untouched(kit.store, VersionConflict, profiles.put(ANN, "other", 3, if_rev=second.rev))
    conflict(error, second.rev, 0)
    wrong: tuple[Any, ...] = (-1, 2**53, 1.0, "1", True)
    for bad in wrong:
        await untouched(kit.store, InvalidError, profiles.put(ANN, "prefs", 1, if_rev=bad), repr(bad))


@case("profiles", "delete", covers=("profiles.delete",))
async def case_delete(kit: Kit) -> None:
    """A deleted document is gone and may be created anew; a guarded delete needs that very rev."""
    profiles = kit.store.profiles
    first = await profiles.put(ANN, "prefs", 1)
    second = await profiles.put(ANN, "prefs", 2)
    conflict(
        await untouched(kit.store, VersionConflict, profiles.delete(ANN, "prefs", if_rev=first.rev)),
        first.rev,
        second.rev,
    )
    await untouched(kit.store, InvalidError, profiles.delete(ANN, "prefs", if_rev=0))
    await profiles.delete(ANN, "prefs", if_rev=second.rev)
    equal((await dump(kit.store))["profiles"], [], "rows")
    conflict(await raises(VersionConflict, profiles.delete(ANN, "prefs", if_rev=second.rev)), second.rev, 0)
    kit.clock.advance(5)
    equal((await profiles.put(ANN, "prefs", 3, if_rev=0)).created_at, kit.clock.now, "a new document")
    await profiles.delete(ANN, "prefs")
    equal(await profiles.find(ANN, "prefs"), None, "gone again")


@case("profiles", "clear", covers=("profiles.clear",))
async def case_clear(kit: Kit) -> None:
    """Clearing an owner removes all its documents, however many, and nobody else's."""
    count = 2 * limits.ERASE_ROWS + 3
    for owner in (ANN, "user:an", "user:anna"):
        for n in range(count if owner == ANN else 1):
            await kit.store.profiles.put(owner, f"k{n:03}", n)
    await kit.store.profiles.clear(ANN)
    left = [row.key for row in (await dump(kit.store))["profiles"]]
    equal(left, [("user:an", "k000"), ("user:anna", "k000")], "what is left")


@case("profiles", "create-race", covers=("profiles.put",))
async def case_create_race(kit: Kit) -> None:
    """Of many clients that create one document, exactly one does; the others are told its rev."""
    other = await kit.second()
    puts = [(kit.store, other)[n % 2].profiles.put(ANN, "prefs", n, if_rev=0) for n in range(16)]
    won, lost = await race(*puts)
    equal((len(won), len(lost)), (1, 15), "winners and losers")
    equal(await kit.store.profiles.get(ANN, "prefs"), won[0], "the winner's document")
    equal({error.actual for error in lost}, {won[0].rev}, "what the losers are told")


@case("profiles", "counter-race", covers=("profiles.put", "profiles.get"))
async def case_counter_race(kit: Kit) -> None:
    """Guarded writers that read again after a conflict lose no update."""
    other = await kit.second()
    await kit.store.profiles.put(ANN, "count", 0)

    async def add(store: Store) -> None:
        while True:
            profile = await store.profiles.get(ANN, "count")
            try:
                await store.profiles.put(ANN, "count", profile.value + 1, if_rev=profile.rev)
            except VersionConflict:
                continue
            return

    await race(*[add((kit.store, other)[n % 2]) for n in range(20)])
    equal((await other.profiles.get(ANN, "count")).value, 20, "the count")


@case("profiles", "plain-race", covers=("profiles.put", "profiles.delete"))
async def case_plain_race(kit: Kit) -> None:
    """Unguarded writers all succeed, whatever overtakes them: the document is one of theirs."""
    created = await kit.store.profiles.put(ANN, "prefs", "old")
    slow, fast = await overtaken(
        kit, lambda store: store.profiles.put(ANN, "prefs", "slow"), lambda store: store.profiles.put(ANN, "prefs", 1)
    )
    equal(await kit.store.profiles.get(ANN, "prefs"), slow, "the last writer wins")
    equal((slow.created_at, fast.created_at), (created.created_at, created.created_at), "created once")
    slow, _ = await overtaken(
        kit, lambda store: store.profiles.put(ANN, "prefs", "slow"), lambda store: store.profiles.delete(ANN, "prefs")
    )
    equal(await kit.store.profiles.get(ANN, "prefs"), slow, "written after it was deleted")


@case("profiles", "guarded-race", covers=("profiles.put", "profiles.delete"))
async def case_guarded_race(kit: Kit) -> None:
    """A guarded writer that is overtaken between reading and writing is refused; so is a guarded delete."""
    first = await kit.store.profiles.put(ANN, "prefs", 1)
    slow, fast = await overtaken(
        kit,
        lambda store: store.profiles.put(ANN, "prefs", 2, if_rev=first.rev),
        lambda store: store.profiles.put(ANN, "prefs", 3, if_rev=first.rev),
    )
    expect(isinstance(slow, VersionConflict), f"the slow put: {slow!r}")
    conflict(slow, first.rev, fast.rev)
    slow, fast = await overtaken(
        kit,
        lambda store: store.profiles.delete(ANN, "prefs", if_rev=fast.rev),
        lambda store: store.profiles.put(ANN, "prefs", 4),
    )
    expect(isinstance(slow, VersionConflict), f"the slow delete: {slow!r}")
    equal(await kit.store.profiles.get(ANN, "prefs"), fast, "what is there")


@case("profiles", "pages", covers=("profiles.list", "profiles.iter"))
async def case_pages(kit: Kit) -> None:
    """Pages of any size show every document once, by key, and the last one has no cursor."""
    names = [f"k{n:02}" for n in range(11)]
    for name in reversed(names):
        await kit.store.profiles.put(ANN, name, name)
    await kit.store.profiles.put("user:bob", "k00", 1)
    for limit in (1, 2, 5, 10, 11, 12, 200):
        cut = await pages(kit.store, ANN, limit)
        equal([key for page in cut for key in keys(page.items)], names, f"pages of {limit}")
        equal([len(page.items) for page in cut[:-1]], [limit] * (len(cut) - 1), f"full pages of {limit}")
        expect(cut[-1].items, f"no empty last page of {limit}")
    equal(keys(await collect(kit.store.profiles.iter(ANN))), names, "iter")
    for bad in (0, 201, -1, True, "5", None):
        await raises(InvalidError, kit.store.profiles.list(ANN, limit=bad), repr(bad))  # type: ignore[arg-type]


@case("profiles", "cursor", covers=("profiles.list",))
async def case_cursor(kit: Kit) -> None:
    """A cursor goes on behind its document even if that is gone, and belongs to its owner and prefix."""
    for name in ("a1", "a2", "a3", "b"):
        await kit.store.profiles.put(ANN, name, 1)
        await kit.store.profiles.put("user:bob", name, 1)
    cursor = (await kit.store.profiles.list(ANN, limit=2)).next_cursor or ""
    await kit.store.profiles.delete(ANN, "a2")
    await kit.store.profiles.put(ANN, "a0", 1)
    equal(keys((await kit.store.profiles.list(ANN, cursor=cursor)).items), ["a3", "b"], "behind a2")
    await raises(InvalidError, kit.store.profiles.list("user:bob", cursor=cursor))
    await raises(InvalidError, kit.store.profiles.list(ANN, prefix="a", cursor=cursor))
    await expect_cursor_guarded(lambda text: kit.store.profiles.list(ANN, cursor=text), cursor)


@case("profiles", "prefix", covers=("profiles.list", "profiles.iter"))
async def case_prefix(kit: Kit) -> None:
    """A prefix selects the keys that begin with it, itself included, in pages; it is text, not a pattern."""
    names = [
        "a",
        "fact",
        "fact:1",
        "fact:2",
        "fact:é",
        "fact:日",
        "fact:🙂",
        "facts",
        "fac",
        "fact%",
        "fact_x",
        "g",
        "é",
    ]
    for name in names:
        await kit.store.profiles.put(ANN, name, name)
    for prefix in ("fact", "fact:", "fact:1", "f", "é", "fact%", "fact_", "Fact", "z", "fact:🙂"):
        expected = sorted((name for name in names if name.startswith(prefix)), key=str.encode)
        for limit in (1, 3, 200):
            cut = await pages(kit.store, ANN, limit, prefix=prefix)
            equal([key for page in cut for key in keys(page.items)], expected, f"{prefix!r} in pages of {limit}")
        equal(keys(await collect(kit.store.profiles.iter(ANN, prefix=prefix))), expected, f"iter {prefix!r}")
    for bad in REFUSED_IDS:
        await raises(InvalidError, kit.store.profiles.list(ANN, prefix=bad), f"prefix {bad!r}")


@case("profiles", "names", covers=("profiles.put", "profiles.get", "profiles.list", "profiles.delete"))
async def case_names(kit: Kit) -> None:
    """Owners and keys are any ids, compared as bytes: none is changed, none meets another."""
    for name in HOSTILE_IDS:
        await kit.store.profiles.put(name, "key", name)
        await kit.store.profiles.put("owner", name, name)
    for name in HOSTILE_IDS:
        equal((await kit.store.profiles.get(name, "key")).value, name, f"owner {name!r}")
        equal((await kit.store.profiles.get("owner", name)).value, name, f"key {name!r}")
        equal(keys((await kit.store.profiles.list(name)).items), ["key"], f"of {name!r}")
    equal(
        keys(await collect(kit.store.profiles.iter("owner"))), sorted(HOSTILE_IDS, key=str.encode), "every key in order"
    )
    await kit.store.profiles.put("a", "b/c", 1)
    await kit.store.profiles.put("a/b", "c", 2)
    equal((await kit.store.profiles.get("a", "b/c")).value, 1, "owner and key are never joined")


@case("profiles", "bad-names", covers=("profiles.put", "profiles.get", "profiles.delete", "profiles.clear"))
async def case_bad_names(kit: Kit) -> None:
    """Owners and keys have the rules of ids, in every call."""
    profiles = kit.store.profiles
    for bad in REFUSED_IDS:
        for owner, key in ((bad, "k"), (ANN, bad)):
            await untouched(kit.store, InvalidError, profiles.put(owner, key, 1), repr((owner, key)))
            await raises(InvalidError, profiles.get(owner, key))
            await raises(InvalidError, profiles.find(owner, key))
            await raises(InvalidError, profiles.delete(owner, key))
        await raises(InvalidError, profiles.list(bad))
        await raises(InvalidError, profiles.clear(bad))
        await raises(InvalidError, _first_followed(kit, bad))


async def _first_followed(kit: Kit, owner: str) -> object:
    """`follow` refuses its arguments when it is called, not when it is read."""
    return kit.store.profiles.follow(owner)


@case("profiles", "values", covers=("profiles.put", "profiles.get"))
async def case_values(kit: Kit) -> None:
    """Any JSON comes back equal, null too; what is not JSON is refused with its path, and so is a bad schema."""
    profiles = kit.store.profiles
    values: tuple[Any, ...] = (None, True, 0, -0.0, 2**70, "", 'é 🙂 \x00 "', [], {}, {"": [1, {"deep": [None]}]})
    for value in values:
        made = await profiles.put(ANN, "v", value)
        equal(repr((await profiles.get(ANN, "v")).value), repr(value), "the value")
        equal(made, await profiles.get(ANN, "v"), "what put returned")
    for bad in (float("nan"), b"x", {1}, (1,), "\ud800", {1: 1}, object()):
        error = await untouched(kit.store, InvalidError, profiles.put(ANN, "v", {"a": [bad]}), repr(bad))
        expect("a[0]" in str(error), f"the path is named: {error}")
    for schema in (0, -1, 1.0, "1", True, None):
        await untouched(kit.store, InvalidError, profiles.put(ANN, "v", Doc(1, schema)), repr(schema))  # type: ignore[arg-type]


@case("profiles", "size", covers=("profiles.put",))
async def case_size(kit: Kit) -> None:
    """A document takes 256 KiB of JSON and not a byte more."""
    largest = "x" * (limits.PROFILE_BYTES - 2)
    await kit.store.profiles.put(ANN, "big", largest)
    equal((await kit.store.profiles.get(ANN, "big")).value, largest, "the largest")
    error = await untouched(kit.store, InvalidError, kit.store.profiles.put(ANN, "big", largest + "x"))
    expect(f"{limits.PROFILE_BYTES:,}" in str(error), f"the limit is named: {error}")


@case("profiles", "scopes", covers=("profiles.get", "profiles.list", "profiles.clear", "profiles.delete"))
async def case_scopes(kit: Kit) -> None:
    """Profiles of one scope are neither seen nor changed from another."""
    other = kit.store.scoped("other")
    mine = await kit.store.profiles.put(ANN, "prefs", "mine")
    equal(await other.profiles.find(ANN, "prefs"), None, "before")
    await other.profiles.put(ANN, "prefs", "theirs", if_rev=0)
    await other.profiles.delete(ANN, "prefs")
    await other.profiles.put(ANN, "prefs", "theirs")
    await other.profiles.clear(ANN)
    equal(await kit.store.profiles.get(ANN, "prefs"), mine, "after")
    equal((await other.profiles.list(ANN)).items, [], "the other's")


@case("profiles", "beside-threads", covers=("profiles.put", "threads.delete"))
async def case_beside_threads(kit: Kit) -> None:
    """Deleting a thread never touches profiles, even those whose owner has the thread's id, and clearing no thread."""
    await everything(kit.store, "t")
    documents = [await kit.store.profiles.put(owner, "t", "t") for owner in ("t", "r", ANN)]
    before = (await dump(kit.store))["profiles"]
    await kit.store.threads.delete("t")
    await kit.sweep()
    equal((await dump(kit.store))["profiles"], before, "rows")
    equal([await kit.store.profiles.get(each.owner, "t") for each in documents], documents, "documents")
    await everything(kit.store, "u")
    before_threads = {name: rows for name, rows in (await dump(kit.store)).items() if name != "profiles"}
    await kit.store.profiles.clear("u")
    await kit.store.profiles.clear("t")
    after = {name: rows for name, rows in (await dump(kit.store)).items() if name != "profiles"}
    equal(after, before_threads, "the threads")


@case("profiles", "durable", covers=("profiles.put", "profiles.get"), needs=("durable",))
async def case_durable(kit: Kit) -> None:
    """What was put is there after a close and after a crash, byte for byte."""
    made = await kit.store.profiles.put(ANN, "prefs", {"é": [1.5, None]}, ttl_ms=60_000)
    equal(await (await kit.reopen()).profiles.get(ANN, "prefs"), made, "after a close")
    equal(await (await kit.crash()).profiles.get(ANN, "prefs"), made, "after a crash")


@case("profiles", "damaged", covers=("profiles.get",))
async def case_damaged(kit: Kit) -> None:
    """An owner can be cleared although one of its rows cannot be read."""
    columns = {"schema": None, "created_at": 1, "updated_at": 1}
    await kit.store.engine.transact(kit.store.scope, [Put("profiles", (ANN, "broken"), columns, b"1")])
    await kit.store.profiles.put(ANN, "sound", 1)
    await kit.store.profiles.clear(ANN)
    equal((await dump(kit.store))["profiles"], [], "rows")
