"""Cases: following profiles. Documents first, then changes, deletions and expiry; the final state is never missed."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.model.profile import ProfileChange
from perdure.stores.follower import Follower
from perdure.testkit.cases.profiles import ANN
from perdure.testkit.kit import Kit, case, equal


async def take(stream: Follower[ProfileChange], count: int) -> dict[str, Any]:
    """The next changes by key: the value, or None where a document is gone."""
    changes = [await anext(stream) for _ in range(count)]
    return {change.key: None if change.profile is None else change.profile.value for change in changes}


async def close(*streams: Follower[ProfileChange]) -> None:
    """End followers, as a caller does."""
    for stream in streams:
        await stream.aclose()


@case("profiles", "follow", covers=("profiles.follow",))
async def case_follow(kit: Kit) -> None:
    """What is there comes first, then what any client writes or deletes; other owners and keys do not appear."""
    other = await kit.second()
    await kit.store.profiles.put(ANN, "fact:a", 1)
    await kit.store.profiles.put(ANN, "note", 1)
    await kit.store.profiles.put("user:bob", "fact:a", 1)
    whole, facts = other.profiles.follow(ANN), kit.store.profiles.follow(ANN, prefix="fact:")
    equal(await take(whole, 2), {"fact:a": 1, "note": 1}, "documents")
    equal(await take(facts, 1), {"fact:a": 1}, "documents of the prefix")
    for n, store in enumerate((kit.store, other)):
        await store.profiles.put("user:bob", "fact:a", n)
        await store.profiles.put(ANN, "fact:a", f"new {n}")
        equal(await take(whole, 1), {"fact:a": f"new {n}"}, "a change")
        equal(await take(facts, 1), {"fact:a": f"new {n}"}, "a change of the prefix")
    await kit.store.profiles.delete(ANN, "fact:a")
    equal((await take(whole, 1), await take(facts, 1)), ({"fact:a": None}, {"fact:a": None}), "a deletion")
    await kit.store.profiles.put(ANN, "fact:a", "back")
    equal((await take(whole, 1), await take(facts, 1)), ({"fact:a": "back"}, {"fact:a": "back"}), "a new document")
    await close(whole, facts)


@case("profiles", "follow-waits", covers=("profiles.follow",))
async def case_follow_waits(kit: Kit) -> None:
    """A follower of an owner without documents waits for the first, and can be closed while it waits."""
    stream = kit.store.profiles.follow(ANN)
    waiting = asyncio.ensure_future(take(stream, 1))
    await asyncio.sleep(0)
    change = await (await kit.second()).profiles.put(ANN, "k", 1)
    equal(await waiting, {"k": 1}, "the first document")
    waiting = asyncio.ensure_future(take(stream, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await close(stream)
    again = kit.store.profiles.follow(ANN)
    equal((await anext(again)).profile, change, "a follower that begins later sees the same")
    await close(again)


@case("profiles", "follow-expiry", covers=("profiles.follow",))
async def case_follow_expiry(kit: Kit) -> None:
    """A document that expires is reported as gone, and housekeeping adds nothing to that."""
    await kit.store.profiles.put(ANN, "short", 1, ttl_ms=10)
    stream = kit.store.profiles.follow(ANN)
    equal(await take(stream, 1), {"short": 1}, "documents")
    kit.clock.advance(10)
    await kit.store.profiles.put(ANN, "other", 2)
    equal(await take(stream, 2), {"other": 2, "short": None}, "the new one, and the end of the old")
    await kit.sweep()
    await kit.store.profiles.put(ANN, "other", 3)
    equal(await take(stream, 1), {"other": 3}, "nothing else")
    await close(stream)


@case("profiles", "follow-final", covers=("profiles.follow", "profiles.clear"))
async def case_follow_final(kit: Kit) -> None:
    """However fast two clients write, a follower ends up with exactly what is stored."""
    other = await kit.second()
    known: dict[str, Any] = {}
    stream = other.profiles.follow(ANN)

    async def watch(until: dict[str, Any]) -> None:
        while known != until:
            for key, value in (await take(stream, 1)).items():
                if value is None:
                    known.pop(key)
                else:
                    known[key] = value

    final = {f"k{n}": 29 for n in range(5)}
    reader = asyncio.ensure_future(watch(final))
    for turn in range(30):
        await asyncio.gather(*[(kit.store, other)[n % 2].profiles.put(ANN, f"k{n}", turn) for n in range(5)])
    await reader
    await kit.store.profiles.clear(ANN)
    await watch({})
    await close(stream)
