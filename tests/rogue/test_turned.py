"""A store that is open when its server turns rogue: every call ends in time, in an error of ours, and no login that
follows shows the password."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.engines.mysql_place import sql
from tests.engines.toys import eventually
from tests.rogue import mysql_talk, postgres_talk
from tests.rogue.sql_rogue import PASSWORD, Rogue, Script, check_error, refusal_of
from tests.support.proxy import Proxy
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

import perdure
from perdure import Message
from perdure.kernel.url import parse_url

CALLS: dict[str, Callable[[perdure.Store], Awaitable[Any]]] = {
    "get": lambda store: store.threads.get("t"),
    "list": lambda store: store.messages.list("t"),
    "commit": lambda store: store.commit("t", messages=[Message.user("again")]),
    "start": lambda store: store.runs.start("t", "agent"),
    "health": lambda store: store.health(),
    "check": lambda store: store.engine.check(),
    "scopes": lambda store: store.engine.scopes(),
}
TURNS: dict[str, tuple[str, Script]] = {
    "postgres asks for clear text": ("postgres", postgres_talk.CLEARTEXT_SCRIPTS["at once"]),
    "postgres says nothing": ("postgres", postgres_talk.ANSWER_SCRIPTS["nothing at all"]),
    "postgres has no rows": ("postgres", postgres_talk.ANSWER_SCRIPTS["no rows"]),
    "postgres has other rows": ("postgres", postgres_talk.ANSWER_SCRIPTS["two rows"]),
    "postgres knows the password": ("postgres", postgres_talk.ANSWER_SCRIPTS["an error that knows the password"]),
    "mysql asks for clear text": ("mysql", mysql_talk.CLEARTEXT_SCRIPTS["clear text"]),
    "mysql asks for a file": ("mysql", mysql_talk.ANSWER_SCRIPTS["a local file"]),
    "mysql says nothing": ("mysql", mysql_talk.ANSWER_SCRIPTS["nothing at all"]),
    "mysql has no rows": ("mysql", mysql_talk.ANSWER_SCRIPTS["no rows"]),
    "mysql has other rows": ("mysql", mysql_talk.ANSWER_SCRIPTS["a mix of results"]),
    "mysql knows the password": ("mysql", mysql_talk.ANSWER_SCRIPTS["an error that knows the password"]),
}


async def account(kind: str) -> str:
    """The URL of an empty database on a real server, for a user whose password is the canary."""
    try:
        url = await fresh_database(server(kind), "turned")
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
    user = parse_url(url).user
    if kind == "mysql":
        user = "turned"
        await sql(url, f"CREATE OR REPLACE USER turned@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO turned@'%'")
    return msgspec.structs.replace(parse_url(url), user=user, password=PASSWORD).build()


@asynccontextmanager
async def open_store(kind: str, proxy: Proxy, url: str) -> AsyncIterator[perdure.Store]:
    """A store behind the proxy, with a thread in it."""
    through = proxy.through(url)
    options = "connect_timeout=0.5&command_timeout=0.5&connections=3"
    whole = f"{through}{'&' if '?' in through else '?'}{options}"
    # Half a second is short for a busy machine, and the server is still honest: it is asked again.
    store = await eventually(lambda: perdure.open(whole, housekeeping=False))
    try:
        await eventually(
            lambda: store.commit("t", messages=[Message.user("hello")], key="first"), perdure.OutcomeUnknown
        )
        yield store
    finally:
        engine: Any = store.engine
        engine.abandon()


@pytest.mark.parametrize("name", TURNS)
def test_every_call_ends_in_an_error_of_ours(name: str) -> None:
    kind, script = TURNS[name]

    async def main() -> None:
        url = await account(kind)
        place = parse_url(url).hosts[0]
        with Proxy(place.name, place.port or 0) as proxy:
            async with open_store(kind, proxy, url) as store, Rogue(script) as rogue:
                proxy.lead_to("127.0.0.1", rogue.port)
                for call in CALLS.values():
                    check_error(await refusal_of(call(store)))
                assert rogue.clients
                assert PASSWORD.encode() not in rogue.received

    asyncio.run(main())
