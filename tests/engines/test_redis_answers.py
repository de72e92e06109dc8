"""What a server sends, before anything believes it: the parser's limits, the shapes of answers, the words of errors."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.failures import (
    LONGEST,
    ConnectionRefused,
    ErrorReply,
    InvalidReply,
    cleaned,
    parse_error,
)
from perdure.engines.redis.connections.resp import PENDING, Parser
from perdure.engines.redis.errors import came_before_writing

MANY = 10**6


@pytest.mark.parametrize(
    "sent",
    [
        b"*1\r\n" * 9,
        b"$4611686018427387904\r\n",
        b"*4611686018427387904\r\n",
        b"*17000000\r\n",
        b"$-2\r\n",
        b"*-2\r\n",
        b"$\r\n",
        b"$1_0\r\n",
        b"$ 5\r\n",
        b"$+5\r\n",
        ":１\r\n".encode(),
        b":" + b"9" * 100_000 + b"\r\n",
        b":12345678901234567890123\r\n",
        b"+" + b"x" * (1 << 20),
        b"-" + b"x" * (1 << 20),
        b"$3\r\nabcde",
        b"-MOVED\r\n",
        b"-MOVED x y\r\n",
        b"-ASK 1 2 3\r\n",
        b"HTTP",
        b"\x16\x03\x01",
        b"*2\r\nx",
    ],
)
def test_what_is_not_of_the_protocol_is_refused_at_once(sent: bytes) -> None:
    with pytest.raises(InvalidReply):
        Parser().feed(sent)
    with pytest.raises(InvalidReply):
        _feed_in_pieces(sent)


def _feed_in_pieces(sent: bytes) -> None:
    parser, size = Parser(), max(1, len(sent) // 1000)
    for at in range(0, len(sent), size):
        parser.feed(sent[at : at + size])


def test_an_answer_has_a_budget() -> None:
    assert Parser(room=200).feed(b"$100\r\n" + b"x" * 100 + b"\r\n") == b"x" * 100
    with pytest.raises(InvalidReply, match="200 bytes"):
        Parser(room=200).feed(b"$201\r\n")
    # Small values are charged for what it takes to keep them.
    with pytest.raises(InvalidReply):
        Parser(room=MANY).feed(b"*20000\r\n")
    with pytest.raises(InvalidReply):
        Parser(room=MANY).feed(b"*1000\r\n" + (b"*1000\r\n" + b"*0\r\n" * 1000) * 20)
    # Each answer has its own.
    several = Parser(room=200)
    assert [several.feed(b"$100\r\n" + b"x" * 100 + b"\r\n") for _ in range(5)] == [b"x" * 100] * 5


def test_a_long_answer_is_not_kept_twice() -> None:
    parser = Parser()
    assert parser.feed(b"*3000\r\n") is PENDING
    for _ in range(2999):
        assert parser.feed(b"$1024\r\n" + b"x" * 1024 + b"\r\n") is PENDING
    assert parser.feed(b":1\r\n")[-1] == 1
    assert not parser.unread


@pytest.mark.parametrize("password", ["hunter2", "script", "OOM", "x-OOM-y", "ACL failure", "****"])
def test_a_password_is_never_repeated(password: str) -> None:
    said = f"-ERR you sent '{password}' and ({password})\r\n".encode()
    refusal = Parser(secrets=(password,)).feed(said)
    assert isinstance(refusal, ErrorReply)
    assert f"'{password}'" not in str(refusal) or password in ("OOM", "ACL failure", "script")
    # What an error means does not depend on the password.
    for told in (b"-ERR user_script:1: OOM command not allowed", b"-ERR ACL failure in script: user a can't run"):
        plain, hidden = Parser().feed(told + b"\r\n"), Parser(secrets=(password,)).feed(told + b"\r\n")
        assert plain.code == hidden.code
        assert came_before_writing(plain) == came_before_writing(hidden)


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("OOM command not allowed", "OOM", "command not allowed"),
        ("ERR user_script:1: OOM command not allowed", "OOM", "user_script:1: OOM command not allowed"),
        ("ERR ACL failure in script: user a can't run", "NOPERM", "ACL failure in script: user a can't run"),
        ("WRONGTYPE Operation against a key", "WRONGTYPE", "WRONGTYPE Operation against a key"),
        ("NOAUTH Authentication required.", "NOAUTH", "Authentication required."),
        ("ERR invalid password", "WRONGPASS", "invalid password"),
        ("ERR unknown command 'X'", "", "unknown command 'X'"),
        ("nonsense", "", "nonsense"),
    ],
)
def test_the_code_of_an_error_reply(line: str, code: str, text: str) -> None:
    reply = parse_error(line)
    assert isinstance(reply, ErrorReply)
    assert (reply.code, str(reply)) == (code, text)


def test_a_server_with_too_many_clients_refuses_the_connection() -> None:
    assert isinstance(parse_error("ERR max number of clients reached"), ConnectionRefused)


def test_the_words_of_a_server_are_bounded_and_printable() -> None:
    told = cleaned("ERR \x1b]0;owned\x07\x9b31m\u202e" + "x" * 10_000)
    assert told.isprintable()
    assert told.startswith("ERR \\x1b]0;owned\\x07\\x9b31m\\u202e")
    assert len(told) < 2 * LONGEST
    assert "secret" not in cleaned("x" * (LONGEST - 3) + "secret", ("secret",))


@pytest.mark.parametrize(
    ("shape", "wrong"),
    [
        (reply_shapes.number, [b"1", None, [], b""]),
        (reply_shapes.data, [None, b"", 1, [], [b"x"]]),
        (reply_shapes.data_or_none, [1, []]),
        (reply_shapes.names, [None, b"x", [1], [None], [[b"x"]], [ErrorReply("no", "")]]),
        (reply_shapes.pairs, [[b"x"], None, [b"x", 1]]),
        (reply_shapes.pieces, [1, None, b"", [1]]),
        (reply_shapes.page, [[], [b"0"], [b"x", []], [0, []], [b"0", None], [b"0", [1]]]),
        (reply_shapes.address, [None, [], [b"h"], [b"h", b"x"], [b"h", b"0"], [b"h", 65_536], [1, 1], [b"a b", b"1"]]),
        (reply_shapes.push, [None, [], [b"x"], [1, b"x"], [b"message", [b"x"]], b"message"]),
    ],
)
def test_an_answer_of_another_shape_is_refused(shape: Any, wrong: list[Any]) -> None:
    for answer in wrong:
        with pytest.raises(reply_shapes.Misfit):
            shape(answer)


@pytest.mark.parametrize("host", ["example.org", "10.0.0.7", "node-1", "fe80::1%eth0", "::1", "redis_1"])
def test_hosts_that_servers_name(host: str) -> None:
    assert reply_shapes.address([host.encode(), b"6379"]) == (host, 6379)
