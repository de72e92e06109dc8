"""Servers that are not what they seem: they answer a PostgreSQL or MySQL client as a test's script says, and keep every
byte that they are sent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import perdure
from perdure.errors import PerdureError

PASSWORD = "canary-5Zk8wq"
DEADLINE = 120.0
PATIENT = "connect_timeout=20&command_timeout=20"
"""For what must be refused at once."""
QUICK = "connect_timeout=0.3&command_timeout=0.3&connections=2"
MEGABYTE = 1024 * 1024


class Peer:
    """One client of a rogue server: a plain socket, until the rogue encrypts."""

    def __init__(self, plain: socket.socket, rogue: Rogue) -> None:
        self._plain = plain
        self._rogue = rogue
        self._loop = asyncio.get_running_loop()
        self._secured: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def hear(self, most: int = 65_536) -> bytes:
        """The next that the client says, whatever it is; ends the script when the client is gone."""
        if self._secured is None:
            heard = await self._loop.sock_recv(self._plain, most)
        else:
            heard = await self._secured[0].read(most)
        if not heard:
            raise EOFError
        self._rogue.heard.append(heard)
        return heard

    async def say(self, *said: bytes) -> None:
        """Send as it is."""
        if self._secured is None:
            await self._loop.sock_sendall(self._plain, b"".join(said))
        else:
            self._secured[1].write(b"".join(said))
            await self._secured[1].drain()

    async def say_slowly(self, said: bytes) -> None:
        """Send byte by byte, each in a packet of its own if the network plays along."""
        for byte in said:
            await self.say(bytes([byte]))
            await asyncio.sleep(0)

    async def repeat(self, said: bytes) -> None:
        """Send the same without end."""
        much = said * (1 + 65_536 // len(said))
        while True:
            await self.say(much)
            await asyncio.sleep(0)  # a socket that takes everything does not let others run

    async def encrypt(self) -> None:
        """Go on under TLS, with a certificate that nobody vouches for."""
        reader = asyncio.StreamReader()
        transport, protocol = await self._loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader), self._plain, ssl=self._rogue.tls_context()
        )
        self._secured = reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    def hang_up(self) -> None:
        """Cut the client off."""
        if self._secured is not None:
            self._secured[1].transport.abort()
        self._plain.close()

    async def keep_silent(self) -> None:
        """Say nothing, and listen until the client is gone."""
        while True:
            await self.hear()


Script = Callable[[Peer], Awaitable[None]]


class Rogue:
    """A server on a free port of this machine; `async with`."""

    def __init__(self, script: Script, certificate: tuple[Path, Path] | None = None) -> None:
        self.heard: list[bytes] = []
        self._peers: list[Peer] = []
        self.port = 0
        self._script = script
        self._certificate = certificate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def clients(self) -> int:
        """How many came."""
        return len(self._peers)

    @property
    def received(self) -> bytes:
        """Everything that any client has sent."""
        return b"".join(self.heard)

    def tls_context(self) -> ssl.SSLContext:
        """The server's side of TLS."""
        assert self._certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._certificate)
        return context

    async def __aenter__(self) -> Self:
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self._peers:
            peer.hang_up()  # a task that was cancelled before it began did not
        self._listener.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        while True:
            accepted, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            self._peers.append(Peer(accepted, self))
            self._start(self._serve(self._peers[-1]))

    async def _serve(self, peer: Peer) -> None:
        try:
            with contextlib.suppress(EOFError, OSError):
                await self._script(peer)
        finally:
            peer.hang_up()


async def refusal_of(work: Coroutine[Any, Any, Any]) -> PerdureError:
    """The error of ours that this ends in, in good time."""
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(PerdureError) as caught:
            await work
    return caught.value


async def opened(url: str) -> None:
    """Open a store and close it again."""
    async with perdure.open(url, housekeeping=False):
        pass


def check_error(error: PerdureError) -> None:
    """What holds for every error that a rogue server causes."""
    text = str(error)
    assert PASSWORD not in text
    assert PASSWORD not in repr(error.__cause__)
    assert len(text) < 1_500
    assert text.isprintable()


@contextlib.contextmanager
def little_memory(most: int = 48 * MEGABYTE) -> Iterator[None]:
    """Fail if what runs inside holds more than this at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
