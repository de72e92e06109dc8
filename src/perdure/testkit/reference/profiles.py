"""Profiles in the reference: documents by owner and key, with a time to live, beside all threads."""

from __future__ import annotations

from typing import Any

from perdure.testkit.reference.records import Json, ProfileDocument, Refusal, World
from perdure.testkit.reference.threads import page


def _live(world: World, owner: str, key: str) -> ProfileDocument | None:
    document = world.profiles.get((owner, key))
    return None if document is None or document.is_over(world.now) else document


def _data(owner: str, key: str, document: ProfileDocument) -> Json:
    return {"owner": owner, "key": key, **vars(document)}


def find(world: World, *, owner: str, key: str) -> Json | None:
    """`profiles.find`."""
    document = _live(world, owner, key)
    return None if document is None else _data(owner, key, document)


def get(world: World, *, owner: str, key: str) -> Json:
    """`profiles.get`."""
    document = find(world, owner=owner, key=key)
    if document is None:
        raise Refusal("NotFoundError")
    return document


def listed(world: World, *, owner: str, prefix: str | None = None, limit: int = 50, cursor: Json | None = None) -> Json:
    """`profiles.list`."""
    keys = [key for of, key in world.profiles if of == owner and key.startswith(prefix or "")]
    live = [([key], data) for key in keys if (data := find(world, owner=owner, key=key)) is not None]
    return page(["profiles", owner, prefix], live, cursor, limit, desc=False)


def _check(world: World, owner: str, key: str, if_rev: int | None) -> ProfileDocument | None:
    document = _live(world, owner, key)
    if if_rev is not None and if_rev != (0 if document is None else document.rev):
        raise Refusal("VersionConflict")
    world.next_tick()
    return document


def put(
    world: World, *, owner: str, key: str, value: list[Any], if_rev: int | None = None, ttl_ms: int | None = None
) -> Json:
    """`profiles.put`; `value` is the document and its schema."""
    before = _check(world, owner, key, if_rev)
    world.profiles[owner, key] = ProfileDocument(
        value=value[0],
        schema=value[1],
        rev=world.tick,
        created_at=world.now if before is None else before.created_at,
        updated_at=world.now,
        expires_at=None if ttl_ms is None else world.now + ttl_ms,
    )
    return get(world, owner=owner, key=key)


def delete(world: World, *, owner: str, key: str, if_rev: int | None = None) -> None:
    """`profiles.delete`."""
    _check(world, owner, key, if_rev)
    world.profiles.pop((owner, key), None)


def clear(world: World, *, owner: str) -> None:
    """`profiles.clear`."""
    world.next_tick()
    for name in [name for name in world.profiles if name[0] == owner]:
        del world.profiles[name]
