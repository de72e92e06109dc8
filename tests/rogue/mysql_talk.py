"""MySQL's protocol from the server's side, as far as lying takes it."""

from __future__ import annotations

import asyncio
import os
import struct

from tests.rogue.sql_rogue import PASSWORD, Peer, Script

_CAPABILITIES = 0x0008_A20F | 0x0001_0000 | 0x0002_0000
"""Those of an ordinary server: transactions, several statements and results, authentication by plugins."""
_TLS = 0x0800
_TLS_REQUEST_BYTES = 36
_LONG = 8
SALT = b"12345678"
KEY = b"-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAL\n-----END PUBLIC KEY-----\n"


def packet(number: int, body: bytes, *, length: int | None = None) -> bytes:
    """A packet, with a false length if one is given."""
    return struct.pack("<I", len(body) if length is None else length)[:3] + bytes([number & 0xFF]) + body


def greeting(plugin: bytes = b"mysql_native_password", version: bytes = b"8.0.36", *, tls: bool = False) -> bytes:
    """How a server begins."""
    capabilities = _CAPABILITIES | (_TLS if tls else 0)
    low, high = struct.pack("<I", capabilities)[:2], struct.pack("<I", capabilities)[2:]
    head = b"\x0a" + version + b"\0" + struct.pack("<I", 7) + SALT + b"\0" + low + b"\xff\x02\0" + high
    return packet(0, head + b"\x15" + bytes(10) + b"123456789012\0" + plugin + b"\0")


def switch(plugin: bytes, more: bytes = b"12345678901234567890\0") -> bytes:
    """A request for another way to log in."""
    return b"\xfe" + plugin + b"\0" + more


def failure(text: str, code: int = 1045) -> bytes:
    """An error."""
    return b"\xff" + struct.pack("<H", code) + b"#28000" + text.encode()


OK, OK_AND_MORE, FULL_LOGIN = b"\0\0\0\x02\0\0\0", b"\0\0\0\x0a\0\0\0", b"\x01\x04"
END, END_AND_MORE = b"\xfe\0\0\x02\0", b"\xfe\0\0\x0a\0"
NO = failure("thank you")
LOCAL_FILE = b"\xfb/etc/passwd"


def login(*said: bytes, plugin: bytes = b"mysql_native_password", version: bytes = b"8.0.36") -> Script:
    """Greet, then say this, each after the client's answer."""

    async def script(peer: Peer) -> None:
        await peer.say(greeting(plugin, version))
        for turn, each in enumerate(said):
            await peer.hear()
            await peer.say(packet(2 + 2 * turn, each))
        await peer.keep_silent()

    return script


def under_tls(*said: bytes, plugin: bytes = b"mysql_native_password") -> Script:
    """The same after encrypting with a certificate that nobody vouches for."""

    async def script(peer: Peer) -> None:
        await peer.say(greeting(plugin, tls=True))
        await peer.hear(_TLS_REQUEST_BYTES)
        await peer.encrypt()
        for turn, each in enumerate(said):
            await peer.hear()
            await peer.say(packet(3 + 2 * turn, each))
        await peer.keep_silent()

    return script


def raw(said: bytes, *, repeated: bool = False) -> Script:
    """Say this instead of a greeting, and hang up."""

    async def script(peer: Peer) -> None:
        if repeated:
            await peer.repeat(said)
        await peer.say(said)

    return script


def answers(*bodies: bytes, repeated: bytes = b"", version: bytes = b"8.0.36") -> Script:
    """Let everybody in, and answer every question with these packets; then with one more for ever."""

    async def script(peer: Peer) -> None:
        await peer.say(greeting(version=version))
        await peer.hear()
        await peer.say(packet(2, OK))
        while True:
            await peer.hear()
            for number, body in enumerate(bodies):
                await peer.say(packet(1 + number, body))
            if repeated:
                await _flood(peer, 1 + len(bodies), repeated)

    return script


def later(*bodies: bytes) -> Script:
    """Let everybody in, begin a session as an honest server does, and answer whatever comes then with this."""

    async def script(peer: Peer) -> None:
        await peer.say(greeting())
        await peer.hear()
        await peer.say(packet(2, OK))
        answer = (b"\x02", column(), column(_LONG), END, text(b"8.0.36") + text(b"16777216"), END)
        while True:
            await peer.hear()
            await peer.say(*[packet(1 + number, body) for number, body in enumerate(answer)])
            answer = bodies

    return script


async def _flood(peer: Peer, number: int, body: bytes) -> None:
    while True:
        await peer.say(16 * b"".join(packet(number + n, body) for n in range(256)))
        await asyncio.sleep(0)  # a socket that takes everything does not let others run


def column(kind: int = 253) -> bytes:
    """The description of a column of text."""
    parts = [b"def", b"", b"", b"", b"c", b""]
    return b"".join(bytes([len(part)]) + part for part in parts) + b"\x0c\x2d\0\xff\0\0\0" + bytes([kind]) + bytes(5)


def table(*rows: bytes, kind: int = 253) -> tuple[bytes, ...]:
    """A result of one column."""
    return (b"\x01", column(kind), END, *rows, END)


def text(value: bytes) -> bytes:
    """A value in a row."""
    return bytes([len(value)]) + value


ASKS_PLAINLY = {
    "clear text": switch(b"mysql_clear_password", b""),
    "a dialogue": switch(b"dialog", b"\x05Password: "),
}
CLEARTEXT_SCRIPTS: dict[str, Script] = {
    **{name: login(asked, NO) for name, asked in ASKS_PLAINLY.items()},
    "its own key, from the start": login(b"\x01" + KEY, NO, plugin=b"sha256_password"),
    "its own key, later": login(switch(b"sha256_password"), b"\x01" + KEY, NO),
    "its own key after a digest": login(FULL_LOGIN, b"\x01" + KEY, NO, plugin=b"caching_sha2_password"),
    "its own key after another digest": login(switch(b"caching_sha2_password"), FULL_LOGIN, b"\x01" + KEY, NO),
}
TLS_SCRIPTS: dict[str, Script] = {
    **{name: under_tls(asked, NO) for name, asked in ASKS_PLAINLY.items()},
    "a password from the start": under_tls(NO, plugin=b"sha256_password"),
    "a password later": under_tls(switch(b"sha256_password"), NO),
    "a password after a digest": under_tls(FULL_LOGIN, NO, plugin=b"caching_sha2_password"),
}
LOGIN_SCRIPTS: dict[str, Script] = {
    "hangs up": raw(b""),
    "silence": answers(),
    "noise": raw(os.urandom(5_000)),
    "zeros": raw(bytes(1_000)),
    "another protocol": raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "half a greeting": raw(greeting()[:30]),
    "an empty greeting": raw(packet(0, b"")),
    "a greeting out of order": raw(packet(9, greeting()[4:])),
    "a version without numbers": login(OK, version=b"\x1b[31m"),
    "a version without an end": raw(packet(0, b"\x0a8.0.36")),
    "a plugin that is no text": login(OK, plugin=b"\xff\xfe"),
    "an unknown plugin": login(switch(b"no\x1bsuch\x07plugin")),
    "the oldest way": login(b"\xfe"),
    "an old plugin": login(switch(b"mysql_old_password")),
    "a plugin that is not installed": login(switch(b"client_ed25519")),
    "more than was asked": login(b"\x01\x04"),
    "a digest that goes on": login(b"\x01\x09", plugin=b"caching_sha2_password"),
    "a dialogue without end": login(switch(b"dialog", b"\x04Name: ")),
    "nothing": login(b""),
    "an error": login(failure("go away")),
    "an error that steers a terminal": login(failure("\x1b[2J\x07\u009b")),
    "an error that knows the password": login(failure(f"not {PASSWORD}, friend")),
    "an error of a megabyte": login(failure("x" * 900_000)),
    "an error that is no text": login(b"\xff\x15\x04#28000\xff\xfe\xff"),
    "an error without a number": login(b"\xff"),
    "an error instead of a greeting": raw(packet(0, b"\xff\x10\x04Too \x1b[31mmany")),
}
ENDLESS_SCRIPTS: dict[str, Script] = {
    "a greeting": raw(packet(0, bytes(65_536), length=0xFFFFFF), repeated=True),
    "greetings": raw(greeting(), repeated=True),
}
ANSWER_SCRIPTS: dict[str, Script] = {
    "silence": answers(),
    "noise": answers(os.urandom(3_000)),
    "nothing at all": answers(OK),
    "an empty packet": answers(b""),
    "a local file": answers(LOCAL_FILE),
    "a login again": answers(switch(b"mysql_clear_password", b"")),
    "an error that steers a terminal": answers(failure("\x1b[2J\x07", 1146)),
    "an error that knows the password": answers(failure(f"table {PASSWORD}", 1146)),
    "an error of a megabyte": answers(failure("x" * 900_000, 1146)),
    "no rows": answers(*table()),
    "a row of another shape": answers(*table(text(b"a") + text(b"b"))),
    "a row that ends too early": answers(*table(b"\x50abc")),
    "a null": answers(*table(b"\xfb")),
    "text that is none": answers(*table(text(b"\xff\xfe"))),
    "a number that is none": answers(*table(text(b"abc"), kind=8)),
    "an unknown type": answers(*table(text(b"abc"), kind=77)),
    "a huge number of columns": answers(b"\xfe" + b"\xff" * 8),
    "columns that do not come": answers(b"\x05", column()),
    "a column that is none": answers(b"\x01", b"xyz", END, END),
    "no end of the columns": answers(b"\x01", column(), OK),
    "later, silence": later(),
    "later, nothing at all": later(OK),
    "later, a local file": later(LOCAL_FILE),
    "later, a row of another shape": later(*table(text(b"a") + text(b"b"))),
    "later, a null": later(*table(b"\xfb")),
    "later, text that is none": later(*table(text(b"\xff\xfe"))),
    "later, an unknown table": later(*table(text(b"threads"))),
    "later, an error that knows the password": later(failure(f"table {PASSWORD}", 1146)),
    "a mix of results": answers(*table(text(b"a"))[:-1], END_AND_MORE, OK),
}
ENDLESS_ANSWERS: dict[str, Script] = {
    "rows": answers(b"\x01", column(), END, repeated=text(b"x" * 50)),
    "results": answers(repeated=OK_AND_MORE),
    "columns": answers(b"\xfe" + b"\xff" * 4 + bytes(4), repeated=column()),
}
