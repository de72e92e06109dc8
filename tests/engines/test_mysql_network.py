"""MySQL over a bad network: connections that a firewall forgot, servers that are none, closing that is cut short."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.engines.mysql_place import emptied, run, sql, stranger
from tests.engines.test_mysql_transactions import _waiting_for
from tests.engines.toys import DEADLINE, SCHEMA, SCOPE, columns, do
from tests.support.proxy import Proxy

from perdure.engines.mysql import MysqlEngine, open_engine
from perdure.engines.mysql.connections import pool, sockets
from perdure.engines.mysql.connections.connection import Wire, open_wire
from perdure.engines.mysql.connections.login import Meter
from perdure.engines.mysql.target import parse_target
from perdure.engines.mysql.watch import Hub
from perdure.errors import UnavailableError
from perdure.kernel.ops import Inc, Patch, Put, Scan


@asynccontextmanager
async def _behind_a_proxy(idle: int) -> AsyncIterator[tuple[MysqlEngine, Proxy]]:
    """An engine that holds so many idle connections, and the proxy they go through."""
    url = await emptied("network")
    target = parse_target(url)
    proxy = Proxy(target.host, target.port)
    try:
        engine = await open_engine(proxy.through(url), SCHEMA)
        held = [await engine._pool.acquire("read") for _ in range(idle)]
        for wire in held:
            engine._pool.release(wire)
        yield engine, proxy
        await engine.close()
    finally:
        await asyncio.to_thread(proxy.close)


def test_idle_connections_that_were_forgotten_cost_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with _behind_a_proxy(idle=5) as (engine, proxy):
            await do(engine, Put("items", ("a",), {"n": 1}))
            monkeypatch.setattr(pool, "IDLE_SECONDS", 0.0)
            monkeypatch.setattr(pool, "TRIAL_SECONDS", 0.3)
            proxy.strand()
            await do(engine, Patch("items", ("a",), {"n": Inc()}))
            monkeypatch.undo()
            assert await columns(engine, "items", "a") == {"n": 2}
            counters = (await engine.health()).settings["connections"]
            assert counters["dropped"] >= 5
            assert counters["idle"] + counters["busy"] < 5

    run(scenario())


def test_a_connection_that_was_just_used_is_not_tried_first() -> None:
    async def scenario() -> None:
        async with _behind_a_proxy(idle=1) as (engine, proxy):
            await engine.view(SCOPE, [Scan("items")])
            before = proxy.seen["up"]
            await engine.view(SCOPE, [Scan("items")])
            after = proxy.seen["up"]
            await engine.view(SCOPE, [Scan("items")])
            assert proxy.seen["up"] - after == after - before < 400

    run(scenario())


def test_cancelling_the_trial_of_a_connection_leaves_its_place_free(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with _behind_a_proxy(idle=3) as (engine, proxy):
            monkeypatch.setattr(pool, "IDLE_SECONDS", 0.0)
            monkeypatch.setattr(pool, "TRIAL_SECONDS", 600.0)
            proxy.strand()
            asked = [asyncio.create_task(engine.view(SCOPE, [Scan("items")])) for _ in range(3)]
            await asyncio.sleep(0)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            monkeypatch.undo()
            held = [await engine._pool.acquire("read") for _ in range(10)]
            for wire in held:
                engine._pool.release(wire)

    run(scenario())


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system sets the pace of keepalive elsewhere")
def test_sockets_notice_a_peer_that_is_gone() -> None:
    async def scenario() -> None:
        target = parse_target(await emptied("network"))
        made = await sockets.open_socket(target.host, target.port, Meter())
        with made:
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1

    run(scenario())


@pytest.mark.parametrize(
    "greeting",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"-ERR unknown\r\n",
        b"\x05\0\0\0\x0aabc\0",
        b"\0" * 64,
    ],
)
def test_a_server_that_speaks_something_else_is_told_apart(greeting: bytes) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read()
        writer.close()

    async def scenario() -> None:
        listener = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(UnavailableError):
            await open_engine(f"mysql://root@127.0.0.1:{port}/db?connect_timeout=0.5", SCHEMA)
        listener.close()
        await listener.wait_closed()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await task

    run(scenario())


def test_closing_that_was_cancelled_can_be_finished() -> None:
    async def scenario() -> None:
        url = await emptied("network")
        engine = await open_engine(url, SCHEMA)
        await do(engine, Put("items", ("a",), {"n": 1}))
        watch = engine.watch(SCOPE, ["jobs"])
        other = await stranger(url)
        await other.run("START TRANSACTION; SELECT * FROM items WHERE id = 'a' FOR UPDATE")
        commit = asyncio.create_task(engine.transact(SCOPE, [Patch("items", ("a",), {"n": Inc()})], ["jobs"]))
        await _waiting_for(url, 1)
        closing = asyncio.create_task(engine.close())
        for _ in range(5):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await other.run("ROLLBACK")
        await engine.close()
        assert (await commit).rev
        watch.close()
        assert await _connections(url) == 2, "the stranger's and the one that counts"
        assert [task for task in asyncio.all_tasks() if "Hub" in repr(task.get_coro())] == []
        await other.goodbye()

    run(scenario())


def test_closing_may_be_cancelled_at_any_moment() -> None:
    async def scenario() -> None:
        url = await emptied("network")
        for step in range(40):
            engine = await open_engine(url, SCHEMA)
            watch = engine.watch(SCOPE, ["jobs"])
            await engine.transact(SCOPE, [Put("items", ("a",), {})], ["jobs"])
            wires = list(engine._pool._idle)
            closing = asyncio.create_task(engine.close())
            for _ in range(step):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await engine.close()
            watch.close()
            assert wires
            assert all(wire.closed for wire in wires), step

    run(scenario())


def test_no_cancellation_is_lost_while_a_connection_is_made() -> None:
    async def scenario() -> None:
        target = parse_target(await emptied("network"))
        cancelled = 0
        for turns in range(120):
            opening = asyncio.create_task(open_wire(target))
            for _ in range(turns):
                await asyncio.sleep(0)
            asked = opening.cancel()
            (outcome,) = await asyncio.gather(opening, return_exceptions=True)
            if isinstance(outcome, Wire):
                await outcome.goodbye()
            assert not asked or isinstance(outcome, asyncio.CancelledError), turns
            cancelled += asked
        assert cancelled

    run(scenario())


AT_EXIT = """
import atexit, sys
import perdure, perdure.sync

store = perdure.sync.open(sys.argv[1])

@atexit.register
def last_words():
    try:
        store.engine._pool.forget_idle()  # so that the next call needs a new connection
        store.commit("t", messages=[perdure.Message.user("last words")])
        print("committed")
    except perdure.PerdureError as error:
        print(error.code)
"""


def test_a_call_at_the_end_of_the_interpreter_raises_an_error_of_ours() -> None:
    url = asyncio.run(emptied("network"))
    command = [sys.executable, "-c", AT_EXIT, url]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=DEADLINE, check=False)
    assert (ended.stdout.strip() in ("committed", "unavailable"), ended.stderr) == (True, ""), ended.stdout


@pytest.mark.parametrize("work", ["_flush", "_look"])
def test_a_defect_does_not_end_the_hints(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    async def scenario() -> None:
        url = await emptied("network")
        engine, other = await open_engine(url, SCHEMA), await open_engine(url, SCHEMA)
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told["message"]))

        async def fail(*_: object) -> None:
            raise RuntimeError("a defect")

        watch = other.watch(SCOPE, ["jobs"])
        with monkeypatch.context() as patch:
            patch.setattr(Hub, work, fail)
            await engine.transact(SCOPE, [Put("items", ("a",), {})], ["jobs"])
            async with asyncio.timeout(DEADLINE):
                while not reported:  # noqa: ASYNC110 - told by the loop's own handler
                    await asyncio.sleep(0.01)
        await watch.wait(0)
        while not await watch.wait(0.1):
            await engine.transact(SCOPE, [Put("items", ("a",), {})], ["jobs"])
        watch.close()
        await other.close()
        await engine.close()

    run(scenario())


async def _connections(url: str) -> int:
    """Connections to this database, once those that said goodbye are gone."""
    look = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()"
    counts = [(await sql(url, f"DO SLEEP(0.02); {look}"))[0][0][0] for _ in range(3)]
    while counts[-1] > 2 and len(counts) < 200:
        counts.append((await sql(url, f"DO SLEEP(0.02); {look}"))[0][0][0])
    return int(counts[-1])
