"""Cases: opening and closing a store, its health and capabilities, and interrupted work."""

from __future__ import annotations

import inspect
import os
import tempfile
from pathlib import Path
from typing import Any

import perdure
from perdure.errors import InvalidError, UnavailableError
from perdure.model.message import Message
from perdure.stores.store import Store
from perdure.testkit.helpers import Died, commit_texts, everything, texts
from perdure.testkit.kit import Kit, case, collect, equal, expect, raises

URLS_REFUSED: tuple[Any, ...] = (
    "",
    "  ",
    "nowhere",
    "directory/",
    "notes.txt",
    "http://host/x.db",
    "sqlite://",
    "sqlite:///",
    "sqlite://relative.db",
    "sqlite:///x.db?mode=ro",
    "sqlite:///a%zz.db",
    "SQLITE:///x.db",
    "://",
    None,
    7,
    Path("notes.txt"),
)


MESSAGE = Message.user("x")
CALLS: dict[str, tuple[Any, ...]] = {
    "store.commit": ("t",),
    "store.load": ("t",),
    "threads.create": (),
    "threads.ensure": ("t",),
    "threads.get": ("t",),
    "threads.find": ("t",),
    "threads.update": ("t",),
    "threads.delete": ("t",),
    "threads.list": (),
    "threads.iter": (),
    "threads.children": ("t",),
    "threads.validate_parent": ("t", "p"),
    "threads.with_prefix": ("t",),
    "messages.list": ("t",),
    "messages.iter": ("t",),
    "messages.get": ("t", "m"),
    "messages.find": ("t", "m"),
    "messages.range": ("t", 1, 2),
    "messages.external": ("t",),
    "messages.path": ("t",),
    "messages.history": ("t",),
    "messages.page": ("t",),
    "messages.unfinished_calls": ("t",),
    "messages.follow": ("t",),
    "branches.list": ("t",),
    "branches.iter": ("t",),
    "branches.get": ("t", 0),
    "branches.current": ("t",),
    "branches.fork": ("t",),
    "branches.checkout": ("t", "m"),
    "branches.variants": ("t", "m"),
    "branches.tree": ("t",),
    "branches.switch": ("t", 0),
    "branches.rename": ("t", 0, "x"),
    "branches.label": ("t", "m", "x"),
    "branches.labels": ("t",),
    "branches.delete": ("t", 1),
    "pending.list": ("t",),
    "pending.iter": ("t",),
    "pending.append": ("t", [MESSAGE]),
    "pending.edit": ("t", "m", MESSAGE),
    "pending.retract": ("t", "m"),
    "pending.reorder": ("t", []),
    "pending.freeze": ("t",),
    "pending.threads": (),
    "pending.count": ("t",),
    "runs.create": ("t", "agent"),
    "runs.start": ("t", "agent"),
    "runs.cancel": ("r",),
    "runs.decide": ("r", "k", True),
    "runs.rerun": ("r",),
    "runs.follow": ("r",),
    "runs.follow_drafts": ("t",),
    "runs.get": ("r",),
    "runs.find": ("r",),
    "runs.latest": ("t",),
    "runs.of_message": ("t", "m"),
    "runs.with_prefix": ("r",),
    "store.sweep": (),
    "runs.list": (),
    "runs.iter": (),
    "state.get": ("t", "x"),
    "state.find": ("t", "x"),
    "state.list": ("t",),
    "state.iter": ("t",),
    "state.put": ("t", "x", 1),
    "state.delete": ("t", "x"),
    "profiles.get": ("app", "x"),
    "profiles.find": ("app", "x"),
    "profiles.list": ("app",),
    "profiles.iter": ("app",),
    "profiles.put": ("app", "x", 1),
    "profiles.delete": ("app", "x"),
    "profiles.clear": ("app",),
    "profiles.follow": ("app",),
}
"""Each public method that needs the engine, with plausible arguments."""


async def call(store: Store, name: str) -> Any:
    """Call one of them; an iteration is run to its end."""
    noun, method = name.split(".")
    options = {"at": None} if method == "fork" else {}
    started = getattr(store if noun == "store" else getattr(store, noun), method)(*CALLS[name], **options)
    return await collect(started) if hasattr(started, "__aiter__") else await started


def public_methods(store: Store) -> set[str]:
    """What a user can call, by introspection, so that no method is forgotten here."""
    methods = set()
    for noun, thing in {"store": store, **vars(store)}.items():
        if not noun.startswith("_"):
            names = [
                name for name, _ in inspect.getmembers(type(thing), inspect.isfunction) if not name.startswith("_")
            ]
            methods |= {f"{noun}.{name}" for name in names}
    return methods


@case("lifecycle", "closed", covers=("store.close", "store.health", "store.capabilities"))
async def case_closed(kit: Kit) -> None:
    """After close every method of the store and of those scoped from it is unavailable; closing again is fine."""
    await everything(kit.store)
    owner = Store(kit.store.engine)
    scoped = owner.scoped("other")
    await owner.close()
    await owner.close()
    for store in (owner, scoped):
        quiet = {f"store.{name}" for name in ("close", "scoped", "thread", "buffered", "capabilities", "health")}
        equal(sorted(public_methods(store) - set(CALLS) - quiet), [], "methods this case forgot")
        for name in CALLS:
            await raises(UnavailableError, call(store, name), name)
        try:
            healthy = (await store.health()).ok
        except UnavailableError:
            healthy = False
        equal(healthy, False, "health of a closed store")


@case("lifecycle", "scoped-close", covers=("store.scoped", "store.close"))
async def case_scoped_close(kit: Kit) -> None:
    """Closing a scoped store closes nothing, itself included."""
    scoped = kit.store.scoped("other")
    await commit_texts(scoped, "t", "a")
    await scoped.close()
    await commit_texts(scoped, "t", "b")
    await commit_texts(kit.store, "t", "c")
    equal(texts(await scoped.messages.history("t")), ["a", "b"], "still usable")
    async with kit.store.scoped("third") as third:
        await commit_texts(third, "t", "d")
    equal((await kit.store.threads.get("t")).version, 1, "and so is the store it came from")


@case("lifecycle", "scoped-shares", covers=("store.scoped", "store.capabilities"))
async def case_scoped_shares(kit: Kit) -> None:
    """A scoped store shares the engine and says so; scoping to the same name sees the same data."""
    again = kit.store.scoped(kit.store.scope)
    await commit_texts(kit.store, "t", "a")
    equal(texts(await again.messages.history("t")), ["a"], "the same data")
    expect(again.engine is kit.store.engine, "the same engine")
    equal(again.capabilities(), kit.store.capabilities(), "the same abilities")


@case("lifecycle", "async-with", covers=("store.close",))
async def case_async_with(kit: Kit) -> None:
    """`async with perdure.open` and `await perdure.open` open; leaving the block closes, after an error too."""
    async with perdure.open("memory://", clock=kit.clock) as store:
        await commit_texts(store, "t", "a")
    await raises(UnavailableError, store.threads.get("t"))
    opened = await perdure.open("memory://", scope="acme", clock=kit.clock)
    equal(opened.scope, "acme", "its scope")
    try:
        async with opened:
            raise Died
    except Died:
        await raises(UnavailableError, opened.threads.list())


@case("lifecycle", "urls", covers=("store.capabilities",))
async def case_urls(kit: Kit) -> None:
    """A store is opened by URL or by the path of a database file; two memory stores are strangers."""
    with tempfile.TemporaryDirectory(prefix="perdure-kit-") as folder:
        path = Path(folder) / _file_name("with space é.db", "with space e.db")
        for url in (str(path), f"sqlite:///{path}", f"sqlite:///{str(path).replace(' ', '%20')}"):
            async with perdure.open(url, durability="process", clock=kit.clock) as store:
                await commit_texts(store, "t", "one file")
                equal(store.capabilities().engine, "sqlite", url)
        async with perdure.open(str(path), clock=kit.clock) as store:
            equal((await store.threads.get("t")).version, 3, "each URL named the same file")
    async with perdure.open("memory://") as one, perdure.open("memory://") as two:
        await commit_texts(one, "t", "mine")
        equal(await two.threads.find("t"), None, "another memory")


def _file_name(name: str, plain: str) -> str:
    """The name, or a plain one where the locale of the machine has no bytes for it."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return plain
    return name


@case("lifecycle", "urls-refused", covers=("store.capabilities",))
async def case_urls_refused(kit: Kit) -> None:
    """What cannot be opened is refused with a hint that says what can."""
    for url in URLS_REFUSED:
        error = await raises(InvalidError, _open(url), repr(url))
        expect(error.hint, f"{url!r}: the error has a hint")
    durability: Any = "maybe"
    await raises(InvalidError, _open("memory://", durability=durability))
    for scope in ("", " ", "x" * 65, "a\nb"):
        await raises(InvalidError, _open("memory://", scope=scope), repr(scope))
    expect(await kit.store.health(), "the kit's own store is untouched")


async def _open(url: Any, **options: Any) -> Store:
    return await perdure.open(url, **options)


@case("lifecycle", "honest", covers=("store.health", "store.capabilities", "store.commit"))
async def case_honest(kit: Kit) -> None:
    """Capabilities, health and receipts agree about durability; what weakens it is described."""
    capabilities = kit.store.capabilities()
    health = await kit.store.health()
    receipt = await commit_texts(kit.store, "t", "a")
    equal(health.engine, capabilities.engine, "the engine")
    expect(health.ok or health.problems, "what is not well is put in words")
    equal({capabilities.durability, health.durability, receipt.durable}, {capabilities.durability}, "durability")
    equal(capabilities.durability != "none", "durable" in kit.provider.features, "what survives a close")
    equal(capabilities.processes == "many", "processes" in kit.provider.features, "who may open it")
    expect(capabilities.durability == "power" or health.problems, "anything weaker than power is put in words")
    expect(health.settings, "real settings are shown")


@case("lifecycle", "read-your-writes", covers=("store.commit", "store.load"))
async def case_read_your_writes(kit: Kit) -> None:
    """A commit that one client acknowledged is visible to every client at once."""
    other = await kit.second()
    for i in range(1, 21):
        writer, reader = (kit.store, other) if i % 2 else (other, kit.store)
        await commit_texts(writer, "t", str(i), state={"n": i})
        snapshot = await reader.load("t")
        equal((snapshot.version, snapshot.state["n"].value), (i, i), f"commit {i}")
