"""What the tests of whole-store copies move: several tenants, with everything a store can hold in each."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cli.samples import everything

from perdure import Message, Store
from perdure.kernel.engine import Engine
from perdure.stores.transfer.export import export_lines

SCOPES = ("default", "acme", "Ünïcode 🦆 'quoted\"")


async def fill(engine: Engine) -> None:
    """Every scope, and in each a long thread, unicode of every width, and a thread that was deleted."""
    for number, scope in enumerate(SCOPES):
        store = Store(engine, scope)
        await everything(store)
        for part in range(3):
            said = [Message.user(f"{part}/{i} " + "ä漢🦆\u0000\u2028" * (i % 7)) for i in range(200)]
            await store.commit("long", messages=said, state={"part": part}, key=f"part-{part}")
        for i in range(40 + number):
            await store.commit(f"thread-{i:03} ß🦆", messages=[Message.user(f"hello {i}")], key="only")


async def dumps(engine: Engine, scopes: Sequence[str] = SCOPES) -> dict[str, list[bytes]]:
    """What `perdure export` writes, scope by scope."""
    return {scope: [line async for line in export_lines(Store(engine, scope))] for scope in scopes}
