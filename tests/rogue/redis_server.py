"""A Redis server that turns against its clients: it passes requests on to an honest server until it is told not to.

    async with Rogue(answer, honest=("AUTH", "PING"), behind=url) as rogue:
        await open_engine(rogue.url, SCHEMA)

`answer` is called with the words of each request that is not honest and returns the bytes to send: nothing for silence,
None to hang up. Everything that was received is in `heard`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

CANARY = "canary-9f27c1"
"""The password, which must turn up nowhere."""

Answer = Callable[[list[bytes]], bytes | None]
LOGIN = (b"AUTH", b"PING", b"SELECT")


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(data), data)


def array(*parts: bytes) -> bytes:
    return b"*%d\r\n%s" % (len(parts), b"".join(parts))


class Rogue:
    """One server; `url` leads to it with the canary as the password."""

    def __init__(
        self, answer: Answer, *, honest: Iterable[bytes] = LOGIN, behind: str | None = None, tls: Any = None
    ) -> None:
        self.answer = answer
        self.honest: set[bytes] | None = set(honest)
        """What is passed on, or answered as an empty server would; None for everything."""
        self.heard = bytearray()
        self.requests = 0
        self.ended = 0
        self._behind = behind
        self._tls: ssl.SSLContext | None = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        scheme = "rediss" if self._tls else "redis"
        self.url = f"{scheme}://:{CANARY}@127.0.0.1:{self.port}/0?connect_timeout=1&command_timeout=1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await asyncio.sleep(0.01)  # who was accepted in the last moment is met now
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        # Also if it is cancelled before its first step.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._honest_server() as passed_on:
                while words := await self._request(reader):
                    sent = await self._reply(words, passed_on)
                    if sent is None:
                        break
                    writer.write(sent)
                    await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self.ended += 1

    async def _request(self, reader: asyncio.StreamReader) -> list[bytes]:
        self.requests += 1
        words = []
        for _ in range(int((await self._line(reader))[1:] or 0)):
            size = int((await self._line(reader))[1:])
            data = await reader.readexactly(size + 2)
            self.heard += data
            words.append(data[:-2])
        return words

    async def _line(self, reader: asyncio.StreamReader) -> bytes:
        line = await reader.readline()
        self.heard += line
        return line.strip()

    @contextlib.asynccontextmanager
    async def _honest_server(self) -> AsyncIterator[Any]:
        if self._behind is None:
            yield None
            return
        url = urlsplit(self._behind)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        try:
            writer.write(array(bulk(b"SELECT"), bulk(url.path.strip("/").encode() or b"0")))
            await reader.readline()
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _reply(self, words: list[bytes], passed_on: Any) -> bytes | None:
        name = words[0].upper()
        if self.honest is not None and name not in self.honest:
            return self.answer(words)
        if name in LOGIN or passed_on is None:
            return b"+PONG\r\n" if name == b"PING" else b"+OK\r\n"
        reader, writer = passed_on
        writer.write(array(*map(bulk, words)))
        return await _whole(reader)


async def _whole(reader: asyncio.StreamReader) -> bytes:
    """One answer, byte for byte."""
    line = await reader.readline()
    kind, told = line[:1], line[1:].strip()
    if kind == b"$" and int(told) >= 0:
        return line + await reader.readexactly(int(told) + 2)
    if kind == b"*" and int(told) > 0:
        return line + b"".join([await _whole(reader) for _ in range(int(told))])
    return line


WRONG: dict[str, bytes | None] = {
    "silence": b"",
    "it hangs up": None,
    "nil": b"$-1\r\n",
    "a nil array": b"*-1\r\n",
    "an empty array": b"*0\r\n",
    "an empty text": b"$0\r\n\r\n",
    "OK": b"+OK\r\n",
    "zero": b":0\r\n",
    "one": b":1\r\n",
    "a large number": b":9223372036854775807\r\n",
    "a number of 100 KB": b":" + b"9" * 100_000 + b"\r\n",
    "a number in other digits": ":１２\r\n".encode(),
    "a text": bulk(b"abc"),
    "not Unicode": bulk(b"\xff\xfe"),
    "a list of texts": array(bulk(b"a"), bulk(b"b")),
    "an odd list": array(bulk(b"a")),
    "lists in lists": array(array(bulk(b"a"), array()), b":1\r\n", b"$-1\r\n"),
    "errors in a list": array(b"-ERR one\r\n", b"-ERR two\r\n"),
    "2^62 bytes": b"$4611686018427387904\r\n" + b"x" * 1000,
    "2^62 elements": b"*4611686018427387904\r\n:1\r\n",
    "many elements": b"*200000000\r\n" + b":1\r\n" * 1000,
    "a negative length": b"$-7\r\n",
    "a negative size": b"*-7\r\n",
    "a length that is none": b"$1_0\r\n0123456789\r\n",
    "a text that does not end where it says": b"$3\r\nabcdef\r\n",
    "100,000 levels": b"*1\r\n" * 100_000,
    "a line without end": b"+" + b"x" * (3 << 20),
    "an error without end": b"-ERR " + b"x" * (3 << 20),
    "half of an answer": b"$1000\r\nabc",
    "half of an array": b"*3\r\n:1\r\n",
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "msgpack of 100,000 levels": bulk(b"\x91" * 100_000 + b"\x01"),
    "msgpack that is cut": bulk(b"\xdd\xff\xff\xff\xff"),
    "msgpack of nothing": bulk(b"\x90"),
    "msgpack of another kind": bulk(b"\x92\x01\xc0"),
    "a refusal that is none": bulk(b"\x92\x01\x94\x63\x63\xa4none\xc0"),
    "a conflict nowhere": bulk(b"\x92\x01\x94\x63\x63\xa9condition\x2a"),
    "another schema": bulk(b"\x92\x02\xa3abc"),
    "a cursor that comes back": array(bulk(b"7"), array()),
    "a control character": b"-ERR \x1b]0;owned\x07 \x00\x9b31m\r\n",
    "the password": b"-ERR you sent " + CANARY.encode() + b"\r\n",
    "the password as a status": b"+" + CANARY.encode() + b"\r\n",
    "the password as another protocol": CANARY.encode() + b"\r\n",
    "no login": b"-NOAUTH Authentication required.\r\n",
    "no permission": b"-NOPERM no permissions to run\r\n",
    "no script": b"-NOSCRIPT No matching script.\r\n",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "read only": b"-READONLY You can't write against a read only replica.\r\n",
    "wrong type": b"-WRONGTYPE Operation against a key\r\n",
    "no memory": b"-OOM command not allowed\r\n",
    "a redirection to nowhere": b"-MOVED\r\n",
    "a redirection without a port": b"-MOVED 7 host\r\n",
    "a redirection to a control character": b"-MOVED 7 \x1b[31m:1\r\n",
    "ask nowhere": b"-ASK 7\r\n",
}
"""Answers that no request has deserved."""
