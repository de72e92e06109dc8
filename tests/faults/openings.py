"""Cut the connection while a store is opened for the first time, with its tables half made.

    python -m tests.faults.openings --engine mysql --cuts 300

Each cut gets an empty database: the store is opened through a proxy that closes after n bytes of what the client sends,
or of what it is answered. The caller may see `UnavailableError` or an open store, nothing else. Then the same database
is opened without a cut, whatever the first one left there: it must open, take a commit, and pass the audit. A try that
was given up before the cut could strike is made again.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
from collections.abc import Awaitable, Callable

from tests.faults.link import DOWN, UP, Link
from tests.faults.shell import FaultFound, Figures, address_of, bounded, main, opened, parser_of, tell
from tests.support.proxy import Direction
from tests.support.servers import server

import perdure
from perdure import Message
from perdure.audit import verify_engine
from perdure.errors import UnavailableError

TRIES = 10


async def _postgres(url: str, number: int) -> str:
    """A schema of its own is as good as a database."""
    return f"{url}?schema=opening_{number}"


async def _mysql(url: str, number: int) -> str:
    import asyncmy

    host, port = address_of(url)
    connection = await asyncmy.connect(host=host, port=port, user="root")
    async with connection.cursor() as cursor:
        await cursor.execute(f"CREATE DATABASE opening_{number}")
    connection.close()
    return f"{url.rpartition('/')[0]}/opening_{number}"


async def _redis(url: str, number: int) -> str:
    from redis.asyncio import Redis

    client = Redis.from_url(url)
    await client.flushall()
    await client.execute_command("FUNCTION", "FLUSH")
    await client.execute_command("SCRIPT", "FLUSH")
    await client.aclose()
    return url


FRESH: dict[str, Callable[[str, int], Awaitable[str]]] = {"postgres": _postgres, "mysql": _mysql, "redis": _redis}
"""An empty database on the server, for one try."""


class Openings:
    """One server, the link to it, and the figures."""

    def __init__(self, engine: str, url: str, link: Link) -> None:
        self.engine = engine
        self.url = url
        self.link = link
        self.made = 0
        self.figures: collections.Counter[str] = collections.Counter()

    async def fresh(self) -> tuple[str, str]:
        """The URL of an empty database, and the same one through the link."""
        self.made += 1
        direct = await FRESH[self.engine](self.url, self.made)
        return direct, self.link.proxy.through(direct)

    async def measure(self) -> dict[str, int]:
        """How many bytes a first opening takes, each way."""
        _, behind = await self.fresh()
        before = self.link.passed()
        await self._try(behind)
        after = self.link.passed()
        return {way: after[way] - before[way] for way in (UP, DOWN)}

    async def cut_somewhere(self, way: Direction, length: int, dice: random.Random) -> None:
        """A cut at a random byte; on a busy machine it may take some tries, for an opening waits for a second only."""
        for _ in range(TRIES):
            if await self.cut_after(way, dice.randrange(length)):
                return
        raise FaultFound(f"{TRIES} openings ended without a cut in their {length} bytes {way}")

    async def _try(self, url: str) -> bool:
        try:
            store = await bounded(perdure.open(url), "opening over a link that is cut")
        except UnavailableError:
            return False
        await bounded(store.close(), "closing over a link that is cut")
        return True

    async def cut_after(self, way: Direction, allowed: int) -> bool:
        """One cut, then the opening that finishes what it left; False if the cut did not strike."""
        direct, behind = await self.fresh()
        struck = self.link.cut_after(way, allowed)
        done = await self._try(f"{behind}{'&' if '?' in behind else '?'}connect_timeout=1")
        happened = await self.link.struck(struck)
        self.figures["cuts"] += happened
        self.figures["opened in spite of it"] += done
        async with opened(direct) as store:
            receipt = await store.commit("t", messages=[Message.user("here", id="m")], state={"a": 1}, key="k")
            findings = await verify_engine(store.engine)
            if findings or receipt.version != 1:
                raise FaultFound(f"after a cut {way} at {allowed}: {receipt} {findings[:5]}")
        return happened


async def run(asked: argparse.Namespace) -> Figures:
    """The program."""
    url = server(asked.engine).url
    dice = random.Random(asked.seed)
    async with Link.to(url) as link:
        openings = Openings(asked.engine, url, link)
        lengths = await openings.measure()
        ways = [UP if number % 2 else DOWN for number in range(asked.cuts)]
        for number, way in enumerate(ways, 1):
            await openings.cut_somewhere(way, lengths[way], dice)
            tell("progress", number)
    return {**{f"bytes {way}": length for way, length in lengths.items()}, **openings.figures}


if __name__ == "__main__":
    sys.exit(main("tests.faults.openings", run, parser_of(__doc__, "cuts", 20)))
