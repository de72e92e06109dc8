"""Random calls on profiles: written with every kind of guard and life, read, listed, deleted and cleared."""

from __future__ import annotations

from perdure.testkit.fuzz.random_calls import Call, Scene
from perdure.testkit.reference.records import Json

OWNERS = ("user:ann", "user:an", "app")
KEYS = ("prefs", "pre", "pref\u00e9", "city", "\u65e5")
LIVES = (None, None, 2, 15, 1_000, 3_600_000)
"""Times to live in milliseconds: some end within the next few calls, some when the clock jumps."""


def put(scene: Scene) -> Call:
    """Write or delete a document, with a good guard, a stale one or none; rarely clear an owner."""
    if scene.chance(0.02):
        return Call("profiles.clear", {"owner": scene.pick(OWNERS)})
    arguments: Json = {"owner": scene.pick(OWNERS), "key": scene.pick(KEYS)}
    document = scene.world.profiles.get((arguments["owner"], arguments["key"]))
    deletes = scene.chance(0.2)
    if scene.chance(0.5) and (document is not None or not deletes):
        over = document is None or (document.is_over(scene.world.now) and scene.chance(0.5))
        rev = 0 if document is None or (over and not deletes) else document.rev
        arguments["if_rev"] = rev if scene.chance(0.8) else rev + 1
    if deletes:
        return Call("profiles.delete", arguments)
    life = scene.pick(LIVES)
    return Call("profiles.put", {**arguments, "value": scene.document(), **({} if life is None else {"ttl_ms": life})})


def read(scene: Scene) -> Call:
    """One document, or the first page of an owner's."""
    arguments: Json = {"owner": scene.pick(OWNERS)}
    if scene.chance(0.5):
        if scene.chance(0.5):
            arguments["prefix"] = scene.pick(["pre", "pref", "c", "z"])
        return Call("profiles.list", {**arguments, "limit": scene.random.randrange(3) + 1})
    arguments["key"] = scene.pick(KEYS)
    document = scene.world.profiles.get((arguments["owner"], arguments["key"]))
    known = document is not None and not document.is_over(scene.world.now)
    return Call("profiles.get" if known else "profiles.find", arguments)
