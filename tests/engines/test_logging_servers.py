"""What the server engines log when their connections break, through a proxy that breaks them; never the password."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.faults.shell import address_of
from tests.support.proxy import Proxy
from tests.support.servers import fresh_database, server
from tests.unit.test_housekeeping import wait_until

import perdure
from perdure import Message, PerdureError, Store
from perdure.kernel.url import parse_url

ENGINES = ("postgres", "mysql", "redis")
DEADLINE = 60.0


@asynccontextmanager
async def behind_proxy(engine: str) -> AsyncIterator[tuple[Store, Proxy, str]]:
    """A store with one connection, the proxy in front of its server, and the password in its URL."""
    url = await fresh_database(server(engine), "logs")
    proxy = Proxy(*address_of(url))
    try:
        async with perdure.open(f"{proxy.through(url)}?connections=1", housekeeping=False) as store:
            yield store, proxy, parse_url(url).password or ""
    finally:
        await asyncio.to_thread(proxy.close)


async def until_committed(store: Store, text: str) -> None:
    """Commit, again while the store is unavailable."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await store.commit("t", messages=[Message.user(text)], key=text)
            except PerdureError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0.01)
            else:
                return


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lost_connection_and_the_next_one_are_logged(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "perdure")

    async def main() -> str:
        async with behind_proxy(engine) as (store, proxy, password):
            await until_committed(store, "content-one")
            proxy.cut_after(1, "up")
            await until_committed(store, "content-two")
            return password

    password = asyncio.run(main())
    entries = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == f"perdure.{engine}"]
    lost = [text for level, text in entries if level == "WARNING"]
    assert lost
    assert all(": a connection was lost (" in text for text in lost)
    assert [text for level, text in entries if level == "INFO" and text.endswith(": connected again")]
    assert [text for level, text in entries if level == "INFO" and ": created the schema, version " in text]
    texts = [logging.Formatter().format(record) for record in caplog.records if record.name.startswith("perdure")]
    assert not [text for text in texts if "content-" in text or (password and password in text)]


@pytest.mark.parametrize("engine", ["postgres", "redis"])
def test_a_watcher_that_must_poll_is_logged_and_so_is_its_return(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "perdure")

    def count(words: str) -> int:
        return sum(words in r.getMessage() for r in caplog.records if r.name == f"perdure.{engine}")

    async def reached(words: str) -> None:
        await asyncio.to_thread(wait_until, lambda: count(words))

    async def main() -> None:
        async with behind_proxy(engine) as (store, proxy, _):
            watch = store.engine.watch("default", ["thread:t"])
            async with asyncio.timeout(DEADLINE):
                while not await watch.wait(1.0):  # rung once the connection listens
                    pass
            proxy.drop()
            await reached("not listening for hints")
            proxy.restart()
            await reached("listening for hints again")
            watch.close()

    asyncio.run(main())
    assert count("not listening for hints") == 1
