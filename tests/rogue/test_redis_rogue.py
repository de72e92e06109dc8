"""Redis servers that turn against their clients: bounded time, our own errors, no password where it does not belong."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from tests.engines.redis_place import DEADLINE, empty, until
from tests.engines.toys import SCHEMA, SCOPE, eventually, notes
from tests.rogue.redis_server import CANARY, LOGIN, WRONG, Rogue, array, bulk

from perdure.engines.redis import open_engine, plan_migration
from perdure.engines.redis.connections.connect import connect
from perdure.engines.redis.engine import RedisEngine
from perdure.engines.redis.target import parse
from perdure.errors import OutcomeUnknown, PerdureError, UnavailableError, UnsupportedError
from perdure.kernel.engine import Conflict
from perdure.kernel.ops import NOW, Get, Heads, Inc, Patch, Put, Read, Scan, Segment

SETTINGS = (*LOGIN, b"CONFIG", b"INFO")
STAGES = {
    "at the login": (),
    "after the login": LOGIN,
    "after the settings": SETTINGS,
    "after the permissions": (*SETTINGS, b"EVAL", b"EVALSHA"),
}


async def ending(work: Awaitable[Any]) -> BaseException | None:
    """How some work ended: within the deadline, and with nothing but an error of ours."""
    try:
        async with asyncio.timeout(DEADLINE):
            await work
    except (PerdureError, Conflict) as error:
        told = "".join(traceback.format_exception(error)) + repr(error)
        assert CANARY not in told
        assert "\x1b" not in told
        assert "\x9b" not in told
        return error
    return None


async def on_all(check: Callable[[str, bytes | None], Awaitable[None]]) -> None:
    """Check with every wrong answer, at once."""

    ends = await asyncio.gather(*[check(name, answer) for name, answer in WRONG.items()], return_exceptions=True)
    assert failures(WRONG, ends) == []


def failures(names: Iterable[str], ends: Iterable[Any]) -> list[str]:
    """What went wrong, by name."""
    told = zip(names, ends, strict=True)
    return [f"{name}: {type(end).__name__}: {end!s:.300}" for name, end in told if isinstance(end, BaseException)]


async def on_all_calls(engine: RedisEngine) -> None:
    """Every call of an engine ends, and ends well."""
    calls = _calls(engine)
    ends = await asyncio.gather(*[ending(work()) for work in calls.values()], return_exceptions=True)
    assert failures(calls, [None if isinstance(end, (PerdureError, Conflict)) else end for end in ends]) == []


@pytest.mark.parametrize("stage", STAGES)
def test_opening_a_server_that_answers_wrongly(stage: str) -> None:
    async def main() -> None:
        behind = await empty()

        async def check(name: str, wrong: bytes | None) -> None:
            for opening in (open_engine, plan_migration):
                async with Rogue(lambda _: wrong, honest=STAGES[stage], behind=behind) as rogue:

                    async def opened(rogue: Rogue = rogue, opening: Any = opening) -> None:
                        engine = await opening(rogue.url, SCHEMA)
                        if isinstance(engine, RedisEngine):
                            await engine.close()

                    await ending(opened())
                    assert rogue.requests < 200

        await on_all(check)

    asyncio.run(main())


@pytest.mark.parametrize("answer", [b"$-1\r\n", b"*0\r\n"])
def test_a_server_that_keeps_no_schema_is_given_up(answer: bytes) -> None:
    """S12: it logs in, and then has nothing for every question."""

    async def main() -> None:
        async with Rogue(lambda _: answer) as rogue:
            error = await ending(open_engine(rogue.url, SCHEMA))
            assert isinstance(error, UnavailableError)
            assert rogue.requests < 200

        def plausible(words: list[bytes]) -> bytes:
            """Right in everything, but what it was given is gone."""
            if words[0] == b"INFO":
                return bulk(b"redis_version:7.0.0\r\n")
            return b":1\r\n" if words[0].startswith(b"EVAL") and b"version" in words else b"*0\r\n"

        async with Rogue(plausible) as rogue:
            error = await ending(open_engine(rogue.url, SCHEMA))
            assert isinstance(error, UnavailableError)
            assert "does not hold it" in str(error)
            assert rogue.requests < 200

    asyncio.run(main())


def _calls(engine: RedisEngine) -> dict[str, Callable[[], Awaitable[Any]]]:
    reads = {
        "rows": [Get("items", [("a",), ("b",)])],
        "composite": [Scan("pairs", None, ())],
        "index": [Scan("items", "due", (), limit=2)],
        "entries": [Read("notes", "t")],
        "segments": [Read("notes", "t", segments=(Segment(0, 0),))],
        "unique": [Read("notes", "t", where={"id": "a"})],
        "heads": [Heads("notes", ["t", "u"])],
        "time": [NOW],
    }
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        name: (lambda asked=asked: engine.view(SCOPE, asked)) for name, asked in reads.items()
    }
    return calls | {
        "append": lambda: engine.transact(SCOPE, [notes("t", "z")]),
        "patch": lambda: engine.transact(SCOPE, [Patch("items", ("a",), {"n": Inc(1)}, if_={"name": "x"})]),
        "put": lambda: engine.transact("other", [Put("items", ("q",), {"n": 1})]),
        "take": lambda: engine.take(SCOPE, Scan("items", "due", (), limit=2, upto={"due": 9}), {"due": 9}),
        "scopes": engine.scopes,
        "partitions": lambda: engine.partitions(SCOPE, "notes", limit=5),
        "check": engine.check,
        "health": engine.health,
    }


def test_a_server_that_turns_while_a_store_is_open() -> None:
    async def main() -> None:
        behind = await empty()

        async def check(name: str, wrong: bytes | None) -> None:
            async with Rogue(lambda _: wrong, behind=behind) as rogue:
                rogue.honest = None
                # A second is short for a busy machine, and the server is still honest: it is asked again.
                engine = await eventually(lambda: open_engine(rogue.url, SCHEMA))
                try:
                    put = Put("items", ("a",), {"name": name, "n": 1, "due": 1})
                    await eventually(lambda: engine.transact(SCOPE, [put]), OutcomeUnknown)
                    rogue.honest = set(LOGIN)
                    await on_all_calls(engine)
                finally:
                    await engine.close()

        await on_all(check)

    asyncio.run(main())


def test_a_channel_that_says_what_it_likes_is_left_and_watchers_poll() -> None:
    async def main() -> None:
        behind = await empty()

        async def check(name: str, wrong: bytes | None) -> None:
            async with Rogue(lambda _: wrong, behind=behind) as rogue:
                rogue.honest = None
                engine = await eventually(lambda: open_engine(rogue.url, SCHEMA))
                try:
                    rogue.honest = set(LOGIN)
                    watch = engine.watch(SCOPE, ["topic"])
                    # Nothing was said on the channel, so this can only be the fallback, or the first ring.
                    if name not in ("silence", "half of an answer", "half of an array"):
                        async with asyncio.timeout(DEADLINE):
                            assert await watch.wait(DEADLINE)
                    watch.close()
                finally:
                    await engine.close()

        await on_all(check)

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer", [b"x" * 65_536, b":1\r\n" * 16_384, b"*1\r\n" * 16_384], ids=["text", "list", "deep"]
)
def test_an_endless_answer_ends(answer: bytes) -> None:
    async def main() -> None:
        head = {b"x": b"$1000000000\r\n", b":": b"*16000000\r\n", b"*": b""}[answer[:1]]

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.read(65_536)
                writer.write(b"+OK\r\n")
                while await reader.read(65_536):
                    writer.write(head)
                    while True:
                        writer.write(answer)
                        await writer.drain()
            except OSError:
                writer.transport.abort()

        listening = await asyncio.start_server(flood, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        url = f"redis://:{CANARY}@127.0.0.1:{port}?command_timeout=1&connect_timeout=1"
        assert isinstance(await ending(open_engine(url, SCHEMA)), UnavailableError)
        listening.close()

    asyncio.run(main())


def test_what_was_not_asked_for_ends_an_idle_connection() -> None:
    async def main() -> None:
        async with Rogue(lambda _: b"") as rogue:
            line = await connect(parse(rogue.url), ("127.0.0.1", rogue.port))
            line.send(array(bulk(b"PING")))

            async def gone() -> bool:
                return not line.usable

            await until(gone)

    asyncio.run(main())


@pytest.mark.parametrize("word", ["MOVED", "ASK"])
def test_a_single_server_cannot_send_its_clients_elsewhere(word: str) -> None:
    async def main() -> None:
        async with Rogue(lambda _: b"+OK\r\n") as elsewhere:
            redirect = f"-{word} 7 127.0.0.1:{elsewhere.port}\r\n".encode()
            async with Rogue(lambda _: redirect, honest=SETTINGS, behind=await empty()) as rogue:
                assert isinstance(await ending(open_engine(rogue.url, SCHEMA)), UnsupportedError)
                assert isinstance(await ending(plan_migration(rogue.url, SCHEMA)), UnsupportedError)
                assert not elsewhere.heard
                rogue.honest = None
                engine = await eventually(lambda: open_engine(rogue.url, SCHEMA))
                rogue.honest = set(LOGIN)
                await on_all_calls(engine)
                await engine.close()
            assert not elsewhere.heard

    asyncio.run(main())


def _slots(port: int, host: bytes = b"127.0.0.1") -> bytes:
    return array(array(b":0\r\n", b":16383\r\n", array(bulk(host), b":%d\r\n" % port)))


def test_a_node_of_a_cluster_that_redirects_for_ever() -> None:
    async def main() -> None:
        async with Rogue(lambda _: b"") as rogue:

            def answer(words: list[bytes]) -> bytes:
                name = words[0].upper()
                return _slots(rogue.port) if name == b"CLUSTER" else b"-MOVED 7 127.0.0.1:%d\r\n" % rogue.port

            rogue.answer = answer
            url = rogue.url.replace("redis:", "redis+cluster:")
            assert isinstance(await ending(open_engine(url, SCHEMA)), PerdureError)
            assert isinstance(await ending(plan_migration(url, SCHEMA)), UnavailableError)
            assert rogue.requests < 200

    asyncio.run(main())


@pytest.mark.parametrize(
    "slots",
    [
        array(),
        array(array(b":0\r\n", b":99999\r\n", array(bulk(b"h"), b":1\r\n"))),
        array(array(b":5\r\n", b":4\r\n", array(bulk(b"h"), b":1\r\n"))),
        array(*[array(b":0\r\n", b":16383\r\n", array(bulk(b"h"), b":1\r\n"))] * 1000),
        array(*[array(b":%d\r\n" % n, b":%d\r\n" % n, array(bulk(b"h%d" % n), b":1\r\n")) for n in range(16_384)]),
        _slots(70_000),
        _slots(1, b"\x1b[31m"),
        _slots(1, b"a" * 300),
        _slots(1, b"a..b"),
        _slots(1, b"-x"),
        array(array(b":0\r\n", b":16383\r\n", bulk(b"127.0.0.1:1"))),
        array(array(bulk(b"0"), bulk(b"16383"), array(bulk(b"h"), b":1\r\n"))),
    ],
    ids=[
        "none",
        "beyond",
        "backwards",
        "overlapping",
        "many",
        "port",
        "escape",
        "long",
        "dots",
        "dash",
        "text",
        "texts",
    ],
)
@pytest.mark.filterwarnings("ignore::perdure.kernel.transport.InsecureTransportWarning")
def test_a_map_of_a_cluster_that_is_none(slots: bytes) -> None:
    async def main() -> None:
        async with Rogue(lambda _: slots) as rogue:
            url = rogue.url.replace("redis:", "redis+cluster:")
            assert isinstance(await ending(open_engine(url, SCHEMA)), UnavailableError)
            assert isinstance(await ending(plan_migration(url, SCHEMA)), UnavailableError)
            assert rogue.requests < 200

    asyncio.run(main())


def test_sentinels_that_answer_wrongly() -> None:
    async def main() -> None:
        async def check(_: str, wrong: bytes | None) -> None:
            async with Rogue(lambda _: wrong) as rogue:
                url = rogue.url.replace("redis:", "redis+sentinel:").replace("/0?", "/main?")
                assert await ending(open_engine(url, SCHEMA)) is not None
                assert await ending(plan_migration(url, SCHEMA)) is not None
                # A sentinel never gets the password of its master.
                assert CANARY.encode() not in rogue.heard

        await on_all(check)

    asyncio.run(main())
