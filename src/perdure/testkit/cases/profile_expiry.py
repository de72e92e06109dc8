"""Cases: profiles that expire. The engine's clock decides, no read shows what is over, and housekeeping removes it."""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.audit import verify
from perdure.errors import AlreadyExists, InvalidError, NotFoundError, VersionConflict
from perdure.stores.cleanup import sweep
from perdure.stores.store import Store
from perdure.stores.transfer.export import export_lines, import_lines
from perdure.testkit.cases.clock_skew import SKEWS, wall_clock_off_by
from perdure.testkit.cases.profiles import ANN, keys, pages
from perdure.testkit.helpers import conflict, race
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises
from perdure.testkit.probe import dump, overtaken, untouched

_DAY = 24 * 3600 * 1000


async def visible_keys(store: Store, owner: str = ANN) -> list[str]:
    """The keys that every kind of read shows, which must agree."""
    listed = keys((await store.profiles.list(owner, limit=200)).items)
    equal(keys(await collect(store.profiles.iter(owner))), listed, "iter")
    rows = [str(row.key[1]) for row in (await dump(store))["profiles"] if row.key[0] == owner]
    visible = [key for key in rows if await store.profiles.find(owner, key) is not None]
    equal(visible, listed, "find")
    return listed


@case("profiles", "ttl", covers=("profiles.put", "profiles.get", "profiles.find", "profiles.list", "profiles.iter"))
async def case_ttl(kit: Kit) -> None:
    """A document is there until its last millisecond and then nowhere, for every client; others stay."""
    made = await kit.store.profiles.put(ANN, "short", 1, ttl_ms=1_000)
    await kit.store.profiles.put(ANN, "shortest", 1, ttl_ms=1)
    await kit.store.profiles.put(ANN, "stays", 1)
    equal(made.expires_at, kit.clock.now + 1_000, "when it expires")
    clients = (kit.store, await kit.second())
    kit.clock.advance(999)
    for store in clients:
        equal(await store.profiles.get(ANN, "short"), made, "in its last millisecond")
        equal(await visible_keys(store), ["short", "stays"], "what is shown then")
    kit.clock.advance(1)
    for store in clients:
        await raises(NotFoundError, store.profiles.get(ANN, "short"))
        equal(await visible_keys(store), ["stays"], "what is shown after it")


@case("profiles", "ttl-refused", covers=("profiles.put",))
async def case_ttl_refused(kit: Kit) -> None:
    """A time to live is a whole number of milliseconds, from one to about a hundred years."""
    for bad in (0, -1, 1.5, "1000", True, limits.PROFILE_TTL_MS + 1, 2**60):
        wrong: Any = bad
        await untouched(kit.store, InvalidError, kit.store.profiles.put(ANN, "k", 1, ttl_ms=wrong), repr(bad))
    longest = await kit.store.profiles.put(ANN, "k", 1, ttl_ms=limits.PROFILE_TTL_MS)
    equal(longest.expires_at, kit.clock.now + limits.PROFILE_TTL_MS, "the longest life")
    equal(await verify(kit.store), [], "the audit")


@case("profiles", "ttl-renewed", covers=("profiles.put",))
async def case_ttl_renewed(kit: Kit) -> None:
    """Every put decides anew how long the document lives; one without a time to live makes it permanent."""
    await kit.store.profiles.put(ANN, "renewed", 1, ttl_ms=100)
    await kit.store.profiles.put(ANN, "kept", 1, ttl_ms=100)
    cut = await kit.store.profiles.put(ANN, "cut", 1)
    kit.clock.advance(60)
    renewed = await kit.store.profiles.put(ANN, "renewed", 2, ttl_ms=100)
    permanent = await kit.store.profiles.put(ANN, "kept", 2)
    await kit.store.profiles.put(ANN, "cut", 2, if_rev=cut.rev, ttl_ms=10)
    equal((renewed.expires_at, permanent.expires_at), (kit.clock.now + 100, None), "new lives")
    equal(renewed.created_at, kit.clock.now - 60, "created once")
    kit.clock.advance(99)
    equal(await visible_keys(kit.store), ["kept", "renewed"], "after the first life")
    kit.clock.advance(1)
    equal(await visible_keys(kit.store), ["kept"], "after the second")


@case("profiles", "expired-is-absent", covers=("profiles.put", "profiles.delete"))
async def case_expired_is_absent(kit: Kit) -> None:
    """Writers meet an expired document as if there were none: it is created anew, and its old rev is no guard."""
    for swept in (False, True):
        old = await kit.store.profiles.put(ANN, "k", "old", ttl_ms=10)
        kit.clock.advance(10)
        if swept:
            await kit.sweep()
        error = await untouched(kit.store, VersionConflict, kit.store.profiles.put(ANN, "k", 1, if_rev=old.rev))
        conflict(error, old.rev, 0)
        error = await untouched(kit.store, VersionConflict, kit.store.profiles.delete(ANN, "k", if_rev=old.rev))
        conflict(error, old.rev, 0)
        new = await kit.store.profiles.put(ANN, "k", "new", if_rev=0)
        equal((new.created_at, new.expires_at), (kit.clock.now, None), "a new document")
        await kit.store.profiles.put(ANN, "k", "again", ttl_ms=10)
        kit.clock.advance(11)
        plain = await kit.store.profiles.put(ANN, "k", "plain")
        equal(plain.created_at, kit.clock.now, "a plain put creates it too")
        await kit.store.profiles.delete(ANN, "k")


@case("profiles", "expired-race", covers=("profiles.put",))
async def case_expired_race(kit: Kit) -> None:
    """Of many clients that replace one expired document, exactly one creates it."""
    other = await kit.second()
    await kit.store.profiles.put(ANN, "k", "old", ttl_ms=10)
    kit.clock.advance(10)
    won, lost = await race(*[(kit.store, other)[n % 2].profiles.put(ANN, "k", n, if_rev=0) for n in range(12)])
    equal((len(won), len(lost)), (1, 11), "winners and losers")
    equal(await other.profiles.get(ANN, "k"), won[0], "the winner's document")


@case("profiles", "expired-pages", covers=("profiles.list", "profiles.iter"))
async def case_expired_pages(kit: Kit) -> None:
    """Expired documents neither shorten a page nor promise a next one, wherever they stand."""
    for n in range(60):
        await kit.store.profiles.put(ANN, f"k{n:02}", n, ttl_ms=None if n in (0, 20, 21, 40) else 10)
    kit.clock.advance(10)
    expected = ["k00", "k20", "k21", "k40"]
    for limit in (1, 2, 3, 4, 5, 200):
        cut = await pages(kit.store, ANN, limit)
        equal([key for page in cut for key in keys(page.items)], expected, f"pages of {limit}")
        equal([len(page.items) for page in cut[:-1]], [limit] * (len(cut) - 1), f"full pages of {limit}")
        expect(cut[-1].items, f"no empty last page of {limit}")
        some = await pages(kit.store, ANN, limit, prefix="k2")
        equal([key for page in some for key in keys(page.items)], ["k20", "k21"], f"a prefix in pages of {limit}")
    await kit.store.profiles.put(ANN, "k1", 1, ttl_ms=10)
    kit.clock.advance(10)
    equal((await kit.store.profiles.list(ANN, prefix="k1")).items, [], "the prefix itself has expired")


@case("profiles", "expired-swept", covers=("profiles.put",))
async def case_expired_swept(kit: Kit) -> None:
    """Housekeeping removes every expired row, some at a time, and no other."""
    count = 2 * limits.CLEANUP_ROWS + 3
    for n in range(count):
        await kit.store.profiles.put(f"user:{n}", "k", n, ttl_ms=10 + n % 3)
    await kit.store.profiles.put(ANN, "later", 1, ttl_ms=13)
    await kit.store.profiles.put(ANN, "stays", 1)
    kit.clock.advance(9)
    await kit.sweep()
    equal(len((await dump(kit.store))["profiles"]), count + 2, "nothing has expired yet")
    kit.clock.advance(3)
    await kit.sweep(await kit.second())
    rows = [row.key for row in (await dump(kit.store))["profiles"]]
    equal(rows, [(ANN, "later"), (ANN, "stays")], "rows that are left")
    equal(await verify(kit.store), [], "the audit")


@case("profiles", "sweep-race", covers=("profiles.put",))
async def case_sweep_race(kit: Kit) -> None:
    """A document that is written anew while housekeeping looks at the expired one stays."""
    for name in ("a", "b"):
        await kit.store.profiles.put(ANN, name, "old", ttl_ms=10)
    kit.clock.advance(10)
    _, new = await overtaken(
        kit,
        lambda store: sweep(store._context),  # noqa: SLF001 - what housekeeping does
        lambda store: store.profiles.put(ANN, "a", "new", if_rev=0),
    )
    equal(await kit.store.profiles.get(ANN, "a"), new, "the new document")
    equal([row.key for row in (await dump(kit.store))["profiles"]], [(ANN, "a")], "rows")


@case("profiles", "expired-clock-back", covers=("profiles.find", "profiles.put"))
async def case_expired_clock_back(kit: Kit) -> None:
    """If the engine's clock is set back, a document lives until that clock says so; nothing breaks."""
    made = await kit.store.profiles.put(ANN, "k", 1, ttl_ms=1_000)
    kit.clock.advance(-5_000)
    equal(await kit.store.profiles.get(ANN, "k"), made, "it has not expired")
    again = await kit.store.profiles.put(ANN, "k", 2, ttl_ms=1_000)
    equal((again.created_at, again.expires_at), (made.created_at, kit.clock.now + 1_000), "written in between")
    equal(await verify(kit.store), [], "the audit")


@case("profiles", "expired-foreign-clock", covers=("profiles.put", "profiles.find", "profiles.list"))
async def case_expired_foreign_clock(kit: Kit) -> None:
    """A client whose clock is eight days off neither hides a living document nor removes it, nor lets it live on."""
    healthy = await kit.second()
    for number, skew in enumerate(SKEWS):
        owner = f"user:{number}"
        await healthy.profiles.put(owner, "healthy", 1, ttl_ms=_DAY)
        with wall_clock_off_by(skew):
            stranger = await kit.second()
            made = await stranger.profiles.put(owner, "stranger", 1, ttl_ms=_DAY)
            equal(await visible_keys(stranger, owner), ["healthy", "stranger"], f"what the stranger sees at {skew}")
            await sweep(stranger._context)  # noqa: SLF001 - what housekeeping does
        equal(made.expires_at, kit.clock.now + _DAY, f"stamped by the engine at {skew}")
        equal(await visible_keys(healthy, owner), ["healthy", "stranger"], f"after {skew}")
        kit.clock.advance(_DAY)
        with wall_clock_off_by(skew):
            equal(await visible_keys(stranger, owner), [], f"what the stranger sees a day later at {skew}")


@case("profiles", "transfer", covers=("profiles.put", "profiles.list"))
async def case_transfer(kit: Kit) -> None:
    """An export of the scope carries profiles with their times; what has expired stays behind, on either side."""
    await kit.store.profiles.put(ANN, "prefs", {"tone": "short"}, ttl_ms=1_000)
    await kit.store.profiles.put(ANN, "gone", 1, ttl_ms=5)
    await kit.store.profiles.put("app", "motd", None)
    await kit.store.threads.create("t")
    kit.clock.advance(10)
    lines = [line async for line in export_lines(kit.store)]
    alone = [line async for line in export_lines(kit.store, ["t"])]
    expect(not any(b'"profiles"' in line for line in alone), "an export of one thread has no profiles")
    copy = kit.store.scoped("copy")
    await copy.profiles.put(ANN, "prefs", "old", ttl_ms=1)
    kit.clock.advance(1)
    await import_lines(copy, lambda: lines)
    equal(await visible_keys(copy), ["prefs"], "imported over an expired one")
    original, copied = await kit.store.profiles.get(ANN, "prefs"), await copy.profiles.get(ANN, "prefs")
    equal({**copied.to_json(), "rev": 0}, {**original.to_json(), "rev": 0}, "the document")
    equal([line async for line in export_lines(copy)][1:], lines[1:], "the export of what was imported")
    await copy.threads.delete("t")
    await untouched(copy, AlreadyExists, import_lines(copy, lambda: lines), "a second import")
    again = await import_lines(copy, lambda: lines, skip_existing=True)
    equal((again.threads, again.skipped), (1, 0), "a second import that skips what is there")
    kit.clock.advance(1_000)
    later = kit.store.scoped("later")
    await import_lines(later, lambda: lines)
    equal(len((await dump(later))["profiles"]), 1, "what has expired since is left out")
