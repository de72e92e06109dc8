"""A relay that counts: between a subject and its server, it sees every request, exactly, whatever the driver does.

A *request* is a command the server executes (Execute or a simple query on PostgreSQL, a command packet on MySQL, a
command array on Redis); a *round trip* is a moment the client has said all it wants to say and waits (a Sync, a lone
command, or one write to the socket holding several Redis commands). What PostgreSQL says on the side is kept too:
`auto_explain` is told to say its plans to the client, so the plan of a real commit is read here.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from time import perf_counter
from urllib.parse import urlsplit, urlunsplit


@dataclass
class Counts:
    """Requests, round trips and bytes so far, over all connections."""

    requests: int = 0
    hints: int = 0
    """Of the requests, those that only ring other processes; PostgreSQL only."""
    trips: int = 0
    sent: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    answered: list[tuple[str, float]] = field(default_factory=list)
    """What was asked (the beginning of it) and the seconds until its answer began; MySQL only."""
    asked: tuple[str, float] | None = None

    def seen(self, kind: str) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1


class PostgresMessages:
    """The frontend's messages: a type byte, then a length that counts itself; the first message has no type."""

    def __init__(self, counts: Counts) -> None:
        self.counts, self.buffer, self.started = counts, bytearray(), False
        self.texts: dict[bytes, bytes] = {}
        self.bound = b""

    def feed(self, data: bytes) -> None:
        self.buffer += data
        while True:
            head = 1 if self.started else 0
            if len(self.buffer) < head + 4:
                return
            length = head + int.from_bytes(self.buffer[head : head + 4], "big")
            if len(self.buffer) < length:
                return
            if self.started:
                self._count(chr(self.buffer[0]), bytes(self.buffer[5:length]))
            elif length != 8:  # a request for TLS, which the server refuses, precedes the start
                self.started = True
            del self.buffer[:length]

    def _count(self, kind: str, rest: bytes) -> None:
        counts = self.counts
        counts.seen(kind)
        if kind == "P":
            name, text = rest.split(b"\0", 2)[:2]
            self.texts[name] = text
        elif kind == "B":
            self.bound = self.texts.get(rest.split(b"\0", 2)[1], b"")
        elif kind in "EQ":
            counts.requests += 1
            counts.hints += b"pg_notify" in (self.bound if kind == "E" else rest)
        counts.trips += kind in "SQ"


class PostgresNotices:
    """The backend's notices; everything else is passed by."""

    def __init__(self, counts: Counts) -> None:
        self.counts, self.buffer = counts, bytearray()

    def feed(self, data: bytes) -> None:
        self.buffer += data
        if self.buffer[:1] in (b"N", b"S") and len(self.buffer) == 1:  # the answer to a request for TLS
            self.buffer.clear()
        while len(self.buffer) >= 5:
            length = 1 + int.from_bytes(self.buffer[1:5], "big")
            if len(self.buffer) < length:
                return
            if self.buffer[:1] == b"N":
                fields = bytes(self.buffer[5:length]).split(b"\0")
                self.counts.notices += [f[1:].decode() for f in fields if f[:1] == b"M"]
            del self.buffer[:length]


class MysqlMessages:
    """Packets: three bytes of length and a number that is 0 for a command."""

    def __init__(self, counts: Counts) -> None:
        self.counts, self.buffer = counts, bytearray()

    def feed(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            length = 4 + int.from_bytes(self.buffer[:3], "little")
            if len(self.buffer) < length:
                return
            if self.buffer[3] == 0:
                self.counts.seen(f"{self.buffer[4]:#x}")
                self.counts.requests += 1
                self.counts.trips += 1
                self.counts.asked = (bytes(self.buffer[5 : min(length, 400)]).decode(errors="replace"), perf_counter())
            del self.buffer[:length]


class MysqlAnswers:
    """When the server began to answer."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    def feed(self, _data: bytes) -> None:
        if self.counts.asked is not None:
            text, at = self.counts.asked
            self.counts.answered.append((text, perf_counter() - at))
            self.counts.asked = None


class RedisMessages:
    """Arrays of bulk strings; commands that arrive together were sent together."""

    def __init__(self, counts: Counts) -> None:
        self.counts, self.buffer = counts, bytearray()

    def feed(self, data: bytes) -> None:
        self.buffer += data
        before = self.counts.requests
        while (end := self._command()) is not None:
            del self.buffer[:end]
        self.counts.trips += self.counts.requests > before

    def _command(self) -> int | None:
        """Where the first command in the buffer ends, if it is there as a whole."""
        line = self.buffer.find(b"\r\n")
        if line < 0:
            return None
        count, at, name = int(self.buffer[1:line]), line + 2, ""
        for number in range(count):
            line = self.buffer.find(b"\r\n", at)
            if line < 0:
                return None
            size = int(self.buffer[at + 1 : line])
            at = line + 2 + size + 2
            if len(self.buffer) < at:
                return None
            if number == 0:
                name = self.buffer[line + 2 : line + 2 + size].decode().lower()
        self.counts.seen(name)
        self.counts.requests += 1
        return at


class _Deaf:
    def __init__(self, counts: Counts) -> None:
        pass

    def feed(self, data: bytes) -> None:
        """Hears nothing."""


_LISTENERS = {
    "postgresql": (PostgresMessages, PostgresNotices),
    "mysql": (MysqlMessages, MysqlAnswers),
    "redis": (RedisMessages, _Deaf),
}


class Relay:
    """A relay in front of the server of a URL; open the subject on `url` and read `counts`."""

    def __init__(self, url: str) -> None:
        self.counts = Counts()
        self._parts = urlsplit(url)
        self._listeners = _LISTENERS[self._parts.scheme]
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.netloc.rpartition("@")[0]
        place = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
        self.url = urlunsplit(self._parts._replace(netloc=place))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._parts.hostname, self._parts.port
        other_reader, other_writer = await asyncio.open_connection(host, port)
        asked, answered = (listener(self.counts) for listener in self._listeners)
        for source, target, listener in ((reader, other_writer, asked), (other_reader, writer, answered)):
            task = asyncio.create_task(self._pump(source, target, listener, sent=listener is asked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, listener: _Deaf, *, sent: bool
    ) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await source.read(1 << 16):
                self.counts.sent += len(data) if sent else 0
                listener.feed(data)
                target.write(data)
                await target.drain()
        target.close()
