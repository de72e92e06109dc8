"""A TCP proxy that breaks the network on purpose, between a client and a server of a test.

    with Proxy("127.0.0.1", 5432) as proxy:
        store = await perdure.open(proxy.through(url))
        proxy.cut_after(17, "up")

It passes bytes unless a test asks for a fault: refuse every connection, be slow, swallow what it gets,
or cut a connection after an exact number of bytes in either direction. `up` is towards the server, `down` towards
the client. It runs on its own thread, so a test that blocks does not stop it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec
from tests.support.servers.process import free_port

from perdure.kernel.url import Host, parse_url

Direction = Literal["up", "down"]
T = TypeVar("T")
_CHUNK = 65_536
_TURNS = 10
_TICKS = 20
"""Into how many pieces a second of throttled traffic is divided."""


class _Cut(Exception):
    """The armed number of bytes has passed."""


class Proxy:
    """A route to `host:port` whose faults a test chooses."""

    def __init__(self, host: str, port: int) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        self.seen: dict[Direction, int] = {"up": 0, "down": 0}
        """Bytes passed on in each direction since the proxy was made."""
        self.cuts = 0
        """How often `cut_after` has struck."""
        self.accepted = 0
        """How many clients have connected."""
        self._server = (host, port)
        self._links: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._armed: tuple[Direction, int] | None = None
        self._delay = 0.0
        self._rate: int | None = None
        self._silent = False
        self._stranded: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure-proxy", daemon=True)
        self._thread.start()
        self._listen()

    def through(self, url: str) -> str:
        """The same URL with this proxy as its host."""
        return msgspec.structs.replace(parse_url(url), hosts=(Host(self.host, self.port),)).build()

    def drop(self) -> None:
        """Cut every connection and refuse new ones, until `restart`."""
        self._refuse()
        self._on_loop(self._abort_links)

    def restart(self) -> None:
        """Cut every connection, forget every fault, and listen again on the same port."""
        self.drop()
        self._on_loop(self._forget_faults)
        self._listen()

    def cut(self) -> None:
        """Cut every connection there is; new ones are welcome."""
        self._on_loop(self._abort_links)

    def lead_to(self, host: str, port: int) -> None:
        """Cut every connection there is; new ones end at another server."""
        self._server = (host, port)
        self.cut()

    def delay(self, seconds: float) -> None:
        """Hold every piece of traffic back for so long; 0 ends it."""
        self._delay = seconds

    def throttle(self, bytes_per_second: int | None) -> None:
        """Pass no more than this on, per connection and direction; None ends it."""
        self._rate = bytes_per_second

    def half_open(self) -> None:
        """Swallow whatever comes, in both directions, and close nothing: a peer that is gone without a word."""
        self._silent = True

    def strand(self) -> None:
        """The same for the connections there are now; new ones pass. So a firewall drops those that were idle."""
        self._on_loop(lambda: self._stranded.update(self._links))

    def heal(self) -> None:
        """Forget every fault. Connections that lost bytes to silence are cut: their streams have a gap."""
        self._on_loop(self._heal)

    def cut_after(self, count: int, direction: Direction) -> None:
        """Cut the connection that passes byte `count` in this direction, counted from now over all connections.

        Exactly that many bytes arrive, and the cut follows at once; 0 cuts in place of the next one. It strikes once:
        `cuts` says whether it has.
        """
        if count < 0:
            raise ValueError(f"a number of bytes is not negative: {count}")
        self._armed = (direction, count)

    def close(self) -> None:
        """Cut every connection and end the thread; idempotent."""
        if self._thread.is_alive():
            self.drop()
            self._await(self._ended())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _listen(self) -> None:
        async def start() -> asyncio.Server:
            return await asyncio.start_server(self._serve, self.host, self.port)

        self._listener = self._await(start())

    def _refuse(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._await(self._close_listener(listener))

    async def _close_listener(self, listener: asyncio.Server) -> None:
        """Stop accepting, let connections that were accepted get their transport, then close.

        A server that closes in between makes asyncio drop the accepted socket unclosed (python/cpython: `_attach`
        asserts that the server still has sockets), which fails whichever test runs when it is collected.
        """
        for listening in listener.sockets:
            self._loop.remove_reader(listening.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        listener.close()

    def _heal(self) -> None:
        # In one step: a client that came between the two would lose its first bytes and never be cut.
        gaps = self._silent or bool(self._stranded)
        self._forget_faults()
        if gaps:
            self._abort_links()

    def _forget_faults(self) -> None:
        self._armed, self._delay, self._rate, self._silent = None, 0.0, None, False
        self._stranded.clear()

    def _abort_links(self) -> None:
        for task, writers in list(self._links.items()):
            for writer in writers:
                writer.transport.abort()
            task.cancel()

    async def _ended(self) -> None:
        """Every connection has let go of its sockets; one that was accepted just now shows some turns later."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            self._abort_links()
            await asyncio.gather(*self._links, return_exceptions=True)

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _on_loop(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        self._await(run())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self.accepted += 1
        self._links[task] = (writer,)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._server)
            self._links[task] = (writer, server_writer)
            up = self._pass(reader, server_writer, "up", task)
            await self._pass_both(up, self._pass(server_reader, writer, "down", task))
        except OSError:
            writer.transport.abort()
        except asyncio.CancelledError:
            # `drop` and its like have aborted both sides already; nobody waits for this task.
            return
        finally:
            self._stranded.discard(task)
            for each in self._links.pop(task):
                each.close()

    async def _pass_both(self, *both: Coroutine[Any, Any, None]) -> None:
        tasks = [asyncio.ensure_future(one) for one in both]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() and isinstance(task.exception(), _Cut) for task in tasks):
                self.cuts += 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction, link: asyncio.Task[None]
    ) -> None:
        while data := await reader.read(_CHUNK):
            if self._silent or link in self._stranded:
                continue
            if self._delay:
                await asyncio.sleep(self._delay)
            allowed = self._allowed(direction, len(data))
            await self._send(writer, data if allowed is None else data[:allowed], direction)
            if allowed is not None:
                self._armed = None
                raise _Cut

    def _allowed(self, direction: Direction, size: int) -> int | None:
        """How much of this may pass before the cut; None if all of it may and there is no cut."""
        if self._armed is None or self._armed[0] != direction:
            return None
        left = self._armed[1]
        if size < left:
            self._armed = (direction, left - size)
            return None
        return left

    async def _send(self, writer: asyncio.StreamWriter, data: bytes, direction: Direction) -> None:
        with contextlib.suppress(ConnectionError):
            while data:
                size = len(data) if self._rate is None else max(1, self._rate // _TICKS)
                # Counted first: whoever has received a byte finds it counted.
                self.seen[direction] += len(data[:size])
                writer.write(data[:size])
                await writer.drain()
                data = data[size:]
                if self._rate is not None:
                    await asyncio.sleep(1 / _TICKS)
