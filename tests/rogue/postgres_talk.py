"""PostgreSQL's protocol from the server's side, as far as lying takes it."""

from __future__ import annotations

import os
import struct

from tests.rogue.sql_rogue import PASSWORD, Peer, Script

TLS_REQUEST = struct.pack("!ii", 8, 80_877_103)


def message(kind: bytes, body: bytes = b"", *, length: int | None = None) -> bytes:
    """A message, with a false length if one is given."""
    return kind + struct.pack("!I", len(body) + 4 if length is None else length) + body


def asks(code: int, more: bytes = b"") -> bytes:
    """A request for authentication."""
    return message(b"R", struct.pack("!i", code) + more)


LOGGED_IN, CLEARTEXT = asks(0), asks(3)
MD5 = asks(5, b"salt")
SCRAM = asks(10, b"SCRAM-SHA-256\0\0")
READY = message(b"Z", b"I")
KEY = message(b"K", struct.pack("!ii", 1, 2))


def status(name: str, value: str) -> bytes:
    """What a server tells about itself."""
    return message(b"S", f"{name}\0{value}\0".encode())


def failure(text: str, code: str = "XX000", kind: bytes = b"E") -> bytes:
    """An error, or with another kind a notice."""
    return message(kind, b"SERROR\0VERROR\0" + f"C{code}\0M{text}\0\0".encode(errors="surrogateescape"))


NO = failure("thank you", "28P01")
NOTICE = failure("look here " * 100, "00000", b"N")
WELCOME = LOGGED_IN + status("server_version", "16.1") + status("client_encoding", "UTF8") + KEY + READY


async def refuse_tls(peer: Peer) -> None:
    """Meet a client, say no to TLS and hear who it says it is."""
    if (await peer.hear()).startswith(TLS_REQUEST):
        await peer.say(b"N")
        await peer.hear()


def before_login(*said: bytes) -> Script:
    """Refuse TLS, then say this, one after the other, each after the client's answer."""

    async def script(peer: Peer) -> None:
        await refuse_tls(peer)
        for each in said:
            await peer.say(each)
            await peer.hear()
        await peer.keep_silent()

    return script


def then_close(*said: bytes) -> Script:
    """The same at once, and hang up."""

    async def script(peer: Peer) -> None:
        await refuse_tls(peer)
        await peer.say(*said)

    return script


def in_place_of_tls(said: bytes) -> Script:
    """Answer the request for TLS with this."""

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(said)
        await peer.keep_silent()

    return script


def under_tls(*said: bytes) -> Script:
    """Encrypt with an unknown certificate, then say this."""

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(b"S")
        await peer.encrypt()
        for each in said:
            await peer.hear()
            await peer.say(each)
        await peer.keep_silent()

    return script


def endless(said: bytes, first: bytes = b"") -> Script:
    """Refuse TLS, then say this for ever."""

    async def script(peer: Peer) -> None:
        await refuse_tls(peer)
        await peer.say(first)
        await peer.repeat(said)

    return script


def after_login(answer: bytes, *, repeated: bool = False) -> Script:
    """Let everybody in without a password, and answer everything with the same."""

    async def script(peer: Peer) -> None:
        await refuse_tls(peer)
        await peer.say(WELCOME)
        while True:
            await peer.hear()
            if repeated:
                await peer.repeat(answer)
            await peer.say(answer)

    return script


async def slow_cleartext(peer: Peer) -> None:
    """ReadOp for the password, a byte at a time."""
    await refuse_tls(peer)
    await peer.say_slowly(CLEARTEXT)
    await peer.hear()
    await peer.say(NO)


def challenge(rounds: int, *said: bytes) -> Script:
    """Begin SCRAM as an honest server does, then ask for so many rounds of hashing, then say this."""

    async def script(peer: Peer) -> None:
        await refuse_tls(peer)
        await peer.say(SCRAM)
        nonce = (await peer.hear()).partition(b"r=")[2]
        await peer.say(asks(11, b"r=" + nonce + b"x,s=eA==,i=" + str(rounds).encode()))
        for each in said:
            await peer.hear()
            await peer.say(each)
        await peer.keep_silent()

    return script


def columns(*oids: int) -> bytes:
    """The description of a row."""
    each = b"".join(f"c{n}\0".encode() + struct.pack("!ihihih", 0, 0, oid, -1, -1, 1) for n, oid in enumerate(oids))
    return message(b"T", struct.pack("!h", len(oids)) + each)


def row(*values: bytes | None) -> bytes:
    """A row of values as they are."""
    packed = b"".join(struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in values)
    return message(b"D", struct.pack("!h", len(values)) + packed)


TEXT, INT8 = 25, 20
PARSED, BOUND, NO_PARAMETERS = message(b"1"), message(b"2"), message(b"t", struct.pack("!h", 0))
DONE = message(b"C", b"SELECT 1\0")
PREPARED = PARSED + NO_PARAMETERS + columns(TEXT)


def described(answer: bytes) -> Script:
    """Let everybody in, accept every statement as one with a single text column, and answer it with this."""

    async def script(peer: Peer) -> None:
        await refuse_tls(peer)
        await peer.say(WELCOME)
        while True:
            heard = await peer.hear()
            await peer.say(PREPARED + READY if heard[:1] == b"P" else answer)

    return script


CLEARTEXT_SCRIPTS: dict[str, Script] = {
    "at once": before_login(CLEARTEXT, NO),
    "a byte at a time": slow_cleartext,
    "after letting in": before_login(LOGGED_IN + CLEARTEXT, NO),
    "after a digest": before_login(MD5, CLEARTEXT, NO),
    "after a start of SCRAM": before_login(SCRAM, CLEARTEXT, NO),
    "after a notice": before_login(NOTICE + CLEARTEXT, NO),
    "twice": before_login(CLEARTEXT + CLEARTEXT, NO),
    "under unknown TLS": under_tls(CLEARTEXT, NO),
}
LOGIN_SCRIPTS: dict[str, Script] = {
    "hangs up": then_close(),
    "silence": before_login(),
    "silence instead of TLS": in_place_of_tls(b""),
    "an error instead of TLS": in_place_of_tls(failure("no \x1b[31mTLS")),
    "another protocol": in_place_of_tls(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "zeros": then_close(bytes(1_000)),
    "noise": then_close(os.urandom(5_000)),
    "half a message": then_close(CLEARTEXT[:7]),
    "nothing to authenticate": then_close(message(b"R")),
    "an unknown method": then_close(asks(99)),
    "a negative length": before_login(message(b"R", b"", length=2**32 - 1)),
    "an unknown mechanism": before_login(asks(10, b"SCRAM-\x1b-9\0\0")),
    "mechanisms without end": before_login(asks(10, b"SCRAM")),
    "a continuation of nothing": before_login(asks(11, b"r=x,s=eA==,i=1")),
    "a salt that is none": before_login(SCRAM, asks(11, b"r=x,s=\xff\xff,i=1")),
    "a nonce of its own": before_login(SCRAM, asks(11, b"r=x,s=eA==,i=4096")),
    "a billion rounds": challenge(2_147_483_647),
    "SCRAM that is never checked": before_login(SCRAM, LOGGED_IN + READY),
    "a signature that is wrong": challenge(4_096, asks(12, b"v=eA==")),
    "no signature at all": challenge(4_096, WELCOME),
    "GSS": before_login(asks(7)),
    "an error": then_close(failure("go away", "28P01")),
    "an error that steers a terminal": then_close(failure("\x1b[2Jbell\x07\x9b", "28000")),
    "an error that knows the password": then_close(failure(f"not {PASSWORD}, friend", "28P01")),
    "half a setting": then_close(LOGGED_IN + message(b"S", b"a\0")),
    "a setting without an end": then_close(LOGGED_IN + message(b"S", b"a")),
    "half a key": then_close(LOGGED_IN + message(b"K", b"a")),
    "an end of a login that did not begin": then_close(asks(12, b"v=eA==")),
    "a digest without a salt": then_close(asks(5)),
    "rows before the login": then_close(message(b"D", b"\0\0")),
    "an error of a megabyte": then_close(failure("x" * 900_000, "28000")),
    "an error that is no text": then_close(message(b"E", b"S\xff\xfe\0M\xff\xff\0C\xff\0\0")),
    "an error without an end": then_close(message(b"E", b"Mhello")),
    "settings that are no text": then_close(LOGGED_IN + message(b"S", b"\xff\xff\0\xff\0") + READY),
    "an unknown encoding": then_close(LOGGED_IN + status("client_encoding", "KLINGON") + READY),
    "a version that is none": then_close(LOGGED_IN + status("server_version", "\x1b[31m") + KEY + READY),
}
ENDLESS_SCRIPTS: dict[str, Script] = {
    "notices": endless(NOTICE),
    "settings": endless(status("application_name", "x" * 1_000)),
    "authentication": endless(SCRAM),
    "a message of 4 GB": endless(bytes(65_536), message(b"R", length=2**32 - 2)),
    "a message of 2 GB": endless(bytes(65_536), message(b"E", length=2**31 - 2)),
    "an unknown message": endless(message(b"?", bytes(1_000))),
}
ANSWER_SCRIPTS: dict[str, Script] = {
    "silence": after_login(b""),
    "noise": after_login(os.urandom(3_000)),
    "nothing at all": after_login(READY),
    "nothing, and an unknown state": after_login(message(b"Z", b"?")),
    "a login again": after_login(CLEARTEXT),
    "an error that steers a terminal": after_login(failure("\x1b[2J\x07", "42P01") + READY),
    "an error that knows the password": after_login(failure(f"relation {PASSWORD}", "42P01") + READY),
    "an error of a megabyte": after_login(failure("x" * 1_000_000, "0A000") + READY),
    "a request for data": after_login(message(b"G", b"\0\0\0") + READY),
    "data to copy": after_login(message(b"H", b"\0\0\0") + message(b"d", b"abc") + READY),
    "no rows": described(BOUND + DONE + READY),
    "a row of another shape": described(BOUND + row(b"a", b"b") + DONE + READY),
    "two rows": described(BOUND + row(b"a") + row(b"b") + DONE + READY),
    "a null": described(BOUND + row(None) + DONE + READY),
    "text that is none": described(BOUND + row(b"\xff\xfe") + DONE + READY),
    "a value that is longer than its row": described(BOUND + message(b"D", struct.pack("!hi", 1, 2**31 - 1)) + READY),
    "another type": after_login(PARSED + NO_PARAMETERS + columns(INT8) + READY),
    "an unknown type": after_login(PARSED + NO_PARAMETERS + columns(999_999) + READY),
    "a type that is negative": after_login(PARSED + NO_PARAMETERS + columns(-5) + READY),
    "parameters that nobody gave": after_login(
        PARSED + message(b"t", struct.pack("!hi", 1, TEXT)) + columns(TEXT) + READY
    ),
    "a value of a negative length": described(BOUND + message(b"D", struct.pack("!hi", 1, -77)) + DONE + READY),
    "a row of a negative width": described(BOUND + message(b"D", struct.pack("!h", -3)) + DONE + READY),
    "a row without anything": described(BOUND + message(b"D") + DONE + READY),
    "columns without names": after_login(PARSED + NO_PARAMETERS + message(b"T", struct.pack("!h", 5)) + READY),
    "text without an end": after_login(message(b"S", b"a")),
    "half a setting": after_login(message(b"S", b"a\0")),
    "an error without an end": after_login(message(b"E", b"Mx")),
    "a count that is none": described(BOUND + message(b"C", b"SELECT") + READY),
    "a continuation of a login": after_login(asks(11, b"r=x") + asks(12, b"v=x") + READY),
    "zeros": after_login(bytes(100)),
}
ENDLESS_ANSWERS: dict[str, Script] = {
    "rows": after_login(PREPARED + READY + BOUND + 1_000 * row(b"x" * 50), repeated=True),
    "notices": after_login(NOTICE, repeated=True),
    "a value of 2 GB": after_login(PREPARED + READY + message(b"D", length=2**31 - 2) + bytes(65_536), repeated=True),
}
UNASKED_SCRIPTS: dict[str, Script] = {
    "a row after the login": then_close(WELCOME, row(b"x")),
    "half a setting after the login": then_close(WELCOME, message(b"S", b"a")),
    "a statement that nobody prepared": then_close(WELCOME, PREPARED, READY),
    "data to copy": then_close(WELCOME, message(b"H", b"\0\0\0"), message(b"d", b"abc"), READY),
    "a second end": after_login(PREPARED + READY + DONE + READY + BOUND + row(b"x") + DONE),
    "half a notification": after_login(PREPARED + READY + message(b"A", b"\0\0")),
    "an error without an end": after_login(PREPARED + READY + message(b"E", b"Mx")),
}
