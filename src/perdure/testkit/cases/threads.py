"""Cases: threads as records. Creating, finding, changing; names, titles, custom data, revisions."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import AlreadyExists, CorruptError, InvalidError, NotFoundError, VersionConflict
from perdure.kernel.ops import Delete, Patch
from perdure.model.thread import Thread
from perdure.testkit.helpers import HOSTILE_IDS, REFUSED_IDS, say
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import dump, overtaken, together, untouched

LINEAGE_REFUSED: tuple[Any, ...] = ("x\x00y", "\ud800", "x" * 257, 7, b"p")
TITLES_REFUSED: tuple[Any, ...] = ("é" * 2048 + "x", "nul\x00", "\ud800", 7, b"x")
CUSTOM_REFUSED: tuple[Any, ...] = ({"x": "y" * (64 * 1024 - 7)}, [], "text", 7)
RICH = {"plan": {"steps": [1, 2.5, -0.0, 1e300, 2**70, True, None]}, "": "", "ключ": "значение 🙂", "deep": [[[{}]]]}


@case("threads", "create-get", covers=("threads.create", "threads.get", "threads.find"))
async def case_create_get(kit: Kit) -> None:
    """What was created is what is read, with every field at its documented default."""
    made = await kit.store.threads.create("a")
    now = kit.clock.now
    expected = Thread(
        id="a",
        title=None,
        resource_id=None,
        parent_thread_id=None,
        custom={},
        created_at=now,
        updated_at=now,
        version=0,
        branch=0,
        children=0,
        fence=None,
        active_run_id=None,
        open_run_id=None,
        latest_run_id=None,
        rev=made.rev,
    )
    equal(made, expected, "the created thread")
    equal(await kit.store.threads.get("a"), expected, "get")
    equal(await kit.store.threads.find("a"), expected, "find")


@case("threads", "create-mints-id", covers=("threads.create",))
async def case_create_mints_id(kit: Kit) -> None:
    """Without an id the store makes one: 26 characters, never the same twice, ascending with time."""
    ids = []
    for _ in range(20):
        ids.append((await kit.store.threads.create()).id)
        kit.clock.advance(1)
    equal({len(one) for one in ids}, {26}, "the length of minted ids")
    equal(sorted(set(ids)), ids, "minted ids ascend and differ")


@case("threads", "missing", covers=("threads.get", "threads.find"))
async def case_missing(kit: Kit) -> None:
    """A thread that does not exist is None to find and an error to get."""
    equal(await kit.store.threads.find("unknown"), None, "find")
    error = await raises(NotFoundError, kit.store.threads.get("unknown"))
    expect("unknown" in str(error) and isinstance(error, LookupError), "the error names the thread")


@case("threads", "title-custom-round-trip", covers=("threads.create", "threads.get"))
async def case_round_trip(kit: Kit) -> None:
    """Title and custom data come back equal, types included."""
    title = "Ein Titel, 'quoted' \"twice\"\nover two lines 🙂"
    await kit.store.threads.create("a", title=title, custom=RICH)
    thread = await kit.store.threads.get("a")
    equal(thread.title, title, "title")
    equal(msgspec.json.encode(thread.custom), msgspec.json.encode(RICH), "custom")


@case("threads", "defaults-store-nothing", covers=("threads.create",))
async def case_defaults_store_nothing(kit: Kit) -> None:
    """A thread without metadata stores an empty object: empty fields are omitted."""
    await kit.store.threads.create("a")
    (row,) = (await dump(kit.store))["threads"]
    equal(msgspec.json.decode(row.body), {}, "the stored body")


@case("threads", "create-taken", covers=("threads.create",))
async def case_create_duplicate(kit: Kit) -> None:
    """An id that is taken is refused, and the thread that has it stays as it was."""
    await kit.store.threads.create("a", title="first")
    error = await untouched(kit.store, AlreadyExists, kit.store.threads.create("a", title="second"))
    equal(error.actual, "a", "actual")


@case("threads", "lineage-normalised", covers=("threads.create", "threads.update"))
async def case_lineage(kit: Kit) -> None:
    """Resource and parent are trimmed, blank means none, on create and on update."""
    threads = kit.store.threads
    await threads.create("p")
    made = await threads.create("a", resource_id="  r 1 ", parent_thread_id="\u2003p ")
    equal((made.resource_id, made.parent_thread_id), ("r 1", "p"), "trimmed on create")
    blank = await threads.create("b", resource_id="  ", parent_thread_id="")
    equal((blank.resource_id, blank.parent_thread_id), (None, None), "blank on create")
    moved = await threads.update("b", resource_id=" r2 ", parent_thread_id=" p ")
    equal((moved.resource_id, moved.parent_thread_id), ("r2", "p"), "trimmed on update")
    cleared = await threads.update("b", resource_id=" ", parent_thread_id=None)
    equal((cleared.resource_id, cleared.parent_thread_id), (None, None), "blank on update")


@case("threads", "ids-refused", covers=("threads.create", "threads.get", "threads.find", "threads.update"))
async def case_ids_refused(kit: Kit) -> None:
    """Blank, control, over-long and non-text ids are refused everywhere and nothing is stored."""
    threads = kit.store.threads
    for bad in REFUSED_IDS:
        for call in (threads.create, threads.get, threads.find, threads.update, threads.delete, threads.children):
            await untouched(kit.store, InvalidError, call(bad), f"{call.__name__}({bad!r})")
        await untouched(kit.store, InvalidError, threads.validate_parent(bad, None), f"validate_parent({bad!r})")
    equal(await collect(threads.iter()), [], "threads after the refusals")


@case("threads", "lineage-refused", covers=("threads.create", "threads.update", "threads.list"))
async def case_lineage_refused(kit: Kit) -> None:
    """An invalid lineage id is refused, not trimmed into one."""
    threads = kit.store.threads
    await threads.create("a")
    for bad in LINEAGE_REFUSED:
        await untouched(kit.store, InvalidError, threads.create("b", resource_id=bad), f"resource {bad!r}")
        await untouched(kit.store, InvalidError, threads.create("b", parent_thread_id=bad), f"parent {bad!r}")
        await untouched(kit.store, InvalidError, threads.update("a", resource_id=bad), f"update {bad!r}")
        await raises(InvalidError, threads.list(resource_id=bad), f"list {bad!r}")


@case("threads", "hostile-ids", covers=("threads.create", "threads.get", "threads.list", "threads.delete"))
async def case_hostile_ids(kit: Kit) -> None:
    """Quotes, wildcards, emoji, lookalikes, case and 256 bytes: every id is itself and no other."""
    threads = kit.store.threads
    for one in HOSTILE_IDS:
        await threads.create(one, title=f"title of {one}")
        await say(kit.store, one, one)
    for one in HOSTILE_IDS:
        equal((await threads.get(one)).title, f"title of {one}", f"thread {one!r}")
        equal((await threads.get(one)).version, 1, f"version of {one!r}")
    equal({thread.id for thread in await collect(threads.iter())}, set(HOSTILE_IDS), "the list")
    for one in HOSTILE_IDS[::2]:
        await threads.delete(one)
    left = {thread.id for thread in await collect(threads.iter())}
    equal(left, set(HOSTILE_IDS[1::2]), "what is left after every second was deleted")


@case("threads", "title-limits", covers=("threads.create", "threads.update"))
async def case_title_limits(kit: Kit) -> None:
    """4,096 bytes of title fit; one more, NUL, a lone surrogate or another type do not."""
    threads = kit.store.threads
    await threads.create("a", title="é" * 2048)
    for bad in TITLES_REFUSED:
        await untouched(kit.store, InvalidError, threads.create("b", title=bad), f"create {bad!r:.20}")
        await untouched(kit.store, InvalidError, threads.update("a", title=bad), f"update {bad!r:.20}")


@case("threads", "custom-limits", covers=("threads.create", "threads.update"))
async def case_custom_limits(kit: Kit) -> None:
    """Custom data is an object of at most 64 KB of plain JSON; a refusal names the place."""
    threads = kit.store.threads
    fits = {"x": "y" * (64 * 1024 - 8)}
    await threads.create("a", custom=fits)
    equal((await threads.get("a")).custom, fits, "exactly 64 KB")
    for bad in CUSTOM_REFUSED:
        await untouched(kit.store, InvalidError, threads.create("b", custom=bad), f"custom {bad!r:.20}")
    for value in (float("nan"), float("inf"), b"x", {1}, (1,), {1: 2}, object()):
        bad_one = {"list": [0, {"key": value}]}
        error = await untouched(kit.store, InvalidError, threads.update("a", custom=bad_one), f"custom {value!r:.20}")
        expect("custom.list[1].key" in str(error), f"the path is not named in {error}")


@case("threads", "update-leaves-the-rest", covers=("threads.update",))
async def case_update_partial(kit: Kit) -> None:
    """An update changes what it was given, nothing else, and moves rev but not version."""
    threads = kit.store.threads
    await threads.create("p")
    old = await threads.create("a", title="t", resource_id="r", parent_thread_id="p", custom={"k": 1})
    kit.clock.advance(5)
    new = await threads.update("a", title="t2")
    expect(new.rev != old.rev, "rev moves")
    expected = msgspec.structs.replace(old, title="t2", rev=new.rev, updated_at=kit.clock.now)
    equal(new, expected, "the updated thread")
    equal(await threads.get("a"), new, "what is read afterwards")


@case("threads", "update-clears", covers=("threads.update",))
async def case_update_clears(kit: Kit) -> None:
    """None clears a field; custom is replaced as a whole."""
    threads = kit.store.threads
    await threads.create("a", title="t", resource_id="r", custom={"k": 1, "l": 2})
    equal((await threads.update("a", custom={"l": 3})).custom, {"l": 3}, "custom replaced")
    cleared = await threads.update("a", title=None, resource_id=None, custom=None)
    equal((cleared.title, cleared.resource_id, cleared.custom), (None, None, {}), "cleared")


@case("threads", "update-missing", covers=("threads.update",))
async def case_update_missing(kit: Kit) -> None:
    """Updating a thread that does not exist is refused, never a creation."""
    await untouched(kit.store, NotFoundError, kit.store.threads.update("unknown", title="t"))


@case("threads", "update-if-rev", covers=("threads.update",))
async def case_update_if_rev(kit: Kit) -> None:
    """A stale rev is refused with both revs named; the right one passes."""
    threads = kit.store.threads
    first = await threads.create("a")
    second = await threads.update("a", title="1", if_rev=first.rev)
    error = await untouched(kit.store, VersionConflict, threads.update("a", title="2", if_rev=first.rev))
    equal((error.expected, error.actual), (first.rev, second.rev), "the conflict")
    equal((await threads.update("a", title="3", if_rev=second.rev)).title, "3", "with the right rev")


@case("threads", "commits-keep-rev", covers=("threads.get", "store.commit"))
async def case_commits_keep_rev(kit: Kit) -> None:
    """Messages raise the version and the time of activity; rev belongs to what people edit."""
    first = await kit.store.threads.create("a", title="t")
    kit.clock.advance(7)
    await say(kit.store, "a", "one", "two")
    thread = await kit.store.threads.get("a")
    expected = msgspec.structs.replace(first, version=2, updated_at=kit.clock.now)
    equal(thread, expected, "the thread after a commit")
    await kit.store.threads.update("a", title="u", if_rev=first.rev)


@case("threads", "rev-never-repeats", covers=("threads.update", "threads.create", "threads.delete"))
async def case_rev_never_repeats(kit: Kit) -> None:
    """No rev of an id comes back, across updates, deletion and a new life."""
    revs: list[int] = []
    for _ in range(3):
        revs.append((await kit.store.threads.create("a")).rev)
        for title in ("x", "x", "y"):
            thread = await kit.store.threads.update("a", title=title)
            revs.append(thread.rev)
        await kit.store.threads.delete("a")
    equal(len(set(revs)), len(revs), "distinct revs")


@case("threads", "update-no-lost-update", covers=("threads.update",))
async def case_no_lost_update(kit: Kit) -> None:
    """An update that another one overtakes changes its own field on top of the other's."""
    await kit.store.threads.create("a", title="old", custom={"n": 0})
    await overtaken(kit, lambda s: s.threads.update("a", title="new"), lambda s: s.threads.update("a", custom={"n": 1}))
    thread = await kit.store.threads.get("a")
    equal((thread.title, thread.custom), ("new", {"n": 1}), "both changes")


@case("threads", "update-crowd", covers=("threads.update",))
async def case_update_crowd(kit: Kit) -> None:
    """Edits without a guard never fail because others edit too: 32 at once all go through."""
    other = await kit.second()
    await kit.store.threads.create("a")
    made = await together(*[(kit.store, other)[n % 2].threads.update("a", title=str(n)) for n in range(32)])
    expect(all(isinstance(one, Thread) for one in made), f"all succeed: {made!r:.500}")


@case("threads", "update-if-rev-race", covers=("threads.update",))
async def case_if_rev_race(kit: Kit) -> None:
    """Of two updates that hold the same rev exactly one goes through, and its data is what stays."""
    made = await kit.store.threads.create("a")
    slow, fast = await overtaken(
        kit,
        lambda s: s.threads.update("a", title="slow", if_rev=made.rev),
        lambda s: s.threads.update("a", title="fast", if_rev=made.rev),
    )
    expect(isinstance(slow, VersionConflict) and isinstance(fast, Thread), f"outcomes {slow!r} and {fast!r}")
    equal((await kit.store.threads.get("a")).title, "fast", "the title that stays")


@case("threads", "concurrent-creates", covers=("threads.create", "threads.list"))
async def case_concurrent_creates(kit: Kit) -> None:
    """Threads created at the same time through two clients are all there."""
    other = await kit.second()
    made = await together(*[(kit.store, other)[n % 2].threads.create(f"t{n:02}") for n in range(40)])
    expect(all(isinstance(one, Thread) for one in made), f"every create succeeds: {made!r:.500}")
    equal(sorted(t.id for t in await collect(other.threads.iter())), [f"t{n:02}" for n in range(40)], "the list")


@case("threads", "create-race", covers=("threads.create",))
async def case_create_race(kit: Kit) -> None:
    """Of many creations of one id exactly one succeeds; the rest learn that it exists."""
    other = await kit.second()
    made = await together(*[(kit.store, other)[n % 2].threads.create("a", title=str(n)) for n in range(10)])
    winners = [one for one in made if isinstance(one, Thread)]
    equal(len(winners), 1, "winners")
    expect(all(isinstance(one, AlreadyExists) for one in made if one not in winners), f"losers: {made!r:.500}")
    equal((await kit.store.threads.get("a")).title, winners[0].title, "the winner's title")


@case("threads", "create-commit-race", covers=("threads.create", "store.commit"))
async def case_create_commit_race(kit: Kit) -> None:
    """A commit that creates its thread and a creation overtaking it: one birth, nothing lost."""
    slow, fast = await overtaken(
        kit, lambda s: say(s, "a", "hello"), lambda s: s.threads.create("a", title="from create")
    )
    equal(slow, ["hello"], "the commit goes through")
    expect(isinstance(fast, Thread), f"the creation goes through: {fast!r}")
    thread = await kit.store.threads.get("a")
    equal((thread.title, thread.version), ("from create", 1), "title and version")


@case("threads", "times", covers=("threads.create", "threads.update"))
async def case_times(kit: Kit) -> None:
    """created_at stays, updated_at follows the clock."""
    start = kit.clock.now
    await kit.store.threads.create("a")
    for step in (1, 1000, 3_600_000):
        kit.clock.advance(step)
        thread = await kit.store.threads.update("a", title=str(step))
        equal((thread.created_at, thread.updated_at), (start, kit.clock.now), "times")


@case("threads", "survives-reopen", covers=("threads.get", "threads.list"), needs=("durable",))
async def case_survives_reopen(kit: Kit) -> None:
    """A closed and a crashed store both come back with every thread as it was."""
    await kit.store.threads.create("p", custom=RICH)
    await kit.store.threads.create("a", title="t", resource_id="r", parent_thread_id="p")
    before = await collect(kit.store.threads.iter())
    equal(await collect((await kit.reopen()).threads.iter()), before, "after a close")
    equal(await collect((await kit.crash()).threads.iter()), before, "after a crash")


@case("threads", "unknown-fields-carried", covers=("threads.update",))
async def case_unknown_fields(kit: Kit) -> None:
    """A field that a newer build stored next to custom survives an update by this one."""
    await kit.store.threads.create("a", custom={"k": 1})
    body = msgspec.json.encode({"custom": {"k": 1}, "future": {"x": [1]}})
    await kit.store.engine.transact(kit.store.scope, [Patch("threads", ("a",), {}, body=body)])
    await kit.store.threads.update("a", custom={"k": 2})
    (row,) = (await dump(kit.store))["threads"]
    equal(msgspec.json.decode(row.body), {"custom": {"k": 2}, "future": {"x": [1]}}, "the stored body")


@case("threads", "damage-is-reported", covers=("threads.get", "threads.find", "threads.list"))
async def case_damage(kit: Kit) -> None:
    """A damaged record is an error that names it: never skipped, never served, never taken for absent."""
    store = kit.store
    for name in ("good", "bad"):
        await store.threads.create(name)
    await store.engine.transact(store.scope, [Patch("threads", ("bad",), {}, body=b'{"custom": [1]}')])
    for attempt in (store.threads.get("bad"), store.threads.find("bad"), store.threads.list()):
        expect("bad" in (await raises(CorruptError, attempt)).where, "the damage is named")
    equal((await store.threads.get("good")).id, "good", "the other thread")
    await store.engine.transact(store.scope, [Delete("threads", ("bad",))])
    for attempt in (store.threads.get("bad"), store.threads.find("bad"), store.threads.list()):
        expect("bad" in (await raises(CorruptError, attempt)).where, "a lost cold row is named")
