"""Names and URLs of the Redis engine: nothing meets, order is kept, secrets stay out, nonsense is refused."""

from __future__ import annotations

import itertools

import pytest
from redis.crc import key_slot as slot_by_redis_py

from perdure.engines.redis.connections.routing import key_slot
from perdure.engines.redis.schema.keys import base_of, decode_key, encode_key, escape, grouped, tag_of, unescape
from perdure.engines.redis.target import parse
from perdure.errors import InvalidError
from perdure.kernel.schema import integer, text

TEXTS = ["", "a", "a\x00", "a\x00\x00", "a\x00b", "a\x01", "a\x01\x01", "a\x01\x02", "a\x02", "ab", "b", "é", "𝄞", "￿"]
NUMBERS = [-(2**52), -(2**52) + 1, -1, 0, 1, 9, 10, 1_700_000_000_000, 2**52 - 1, 2**52]


def test_text_comes_back_and_keeps_its_order() -> None:
    assert [unescape(escape(value)) for value in TEXTS] == TEXTS
    by_bytes = sorted(TEXTS, key=str.encode)
    assert sorted(TEXTS, key=lambda value: (escape(value) + "\x00").encode()) == by_bytes
    assert sorted(TEXTS, key=lambda value: escape(value).encode()) == by_bytes


def test_keys_come_back_keep_their_order_and_never_meet() -> None:
    columns = text("a") + integer("b") + text("c")
    keys = list(itertools.product(TEXTS, NUMBERS, TEXTS[:9]))
    encoded = {encode_key(key): key for key in keys}
    assert len(encoded) == len(keys)
    assert [decode_key(name, columns) for name in encoded] == list(encoded.values())
    assert [encoded[name] for name in sorted(encoded, key=str.encode)] == sorted(
        keys, key=lambda k: (k[0].encode(), k[1], k[2].encode())
    )


def test_groups_never_meet() -> None:
    values = [None, *TEXTS, *NUMBERS]
    names = {grouped(a) + grouped(b) for a, b in itertools.product(values, values)}
    assert len(names) == len(values) ** 2


@pytest.mark.parametrize("scope", ["", "a", "{", "}", "{}", "}{", "a}b{c", "%", "%7b", "{a}", "é", "a\x00"])
def test_a_scope_is_one_slot_and_no_other_scope(scope: str) -> None:
    base = base_of("perdure", scope)
    assert len({key_slot(base + end) for end in (b"", b"t:x:y", b"i:{x}", b"l:}")}) == 1
    others = ["", "a", "{", "}", "{}", "}{", "a}b{c", "%", "%7b", "{a}", "é", "a\x00", "%00", "%25"]
    assert [other for other in others if tag_of(other) == tag_of(scope)] == [scope]


@pytest.mark.parametrize(
    "key",
    ["", "123456789", "foo", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", "}{a", "é"],
)
def test_slots_are_those_that_redis_py_computes(key: str) -> None:
    assert key_slot(key.encode()) == slot_by_redis_py(key.encode())


@pytest.mark.urls
def test_urls_name_servers_masters_and_clusters() -> None:
    plain = parse("redis://us%40er:p%3Aw@db.example:6380/3?prefix=app&connections=4&connect_timeout=2.5&migrate=no")
    assert (plain.kind, plain.addresses, plain.db, plain.tls) == ("single", (("db.example", 6380),), 3, False)
    assert (plain.username, plain.password, plain.prefix, plain.connections) == ("us@er", "p:w", "app", 4)
    assert (plain.connect_timeout, plain.migrate, plain.allow_eviction) == (2.5, False, False)
    assert "p:w" not in plain.display_url
    watched = parse("rediss+sentinel://a:1,[::1]:2,b/main?db=2")
    assert (watched.kind, watched.addresses) == ("sentinel", (("a", 1), ("::1", 2), ("b", 26379)))
    assert (watched.master, watched.db, watched.tls) == ("main", 2, True)
    assert parse("redis+cluster://a:1,b").addresses == (("a", 1), ("b", 6379))


@pytest.mark.urls
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://h?colour=red&migrate=no", "colour: no such option of a Redis URL (known: allow_eviction"),
        ("redis://h?prefix=a&prefix=b", "given twice"),
        ("redis://h?prefix={a}", "prefix"),
        ("redis://h?prefix=", "prefix"),
        ("redis://h?connections=0", "connections"),
        ("redis://h?connections=many", "connections is a number from 1 to 1000, not 'many'"),
        ("redis://h?connect_timeout=-1", "connect_timeout"),
        ("redis://h?connect_timeout=x", "not 'x'"),
        ("redis://h?command_timeout=0", "command_timeout"),
        ("redis://h?migrate=maybe", "migrate is yes or no, not 'maybe'"),
        ("redis://h?allow_eviction=", "allow_eviction is yes or no"),
        ("redis+sentinel://h/main?db=-1", "db must be the number of a database, not '-1'"),
        ("redis://h?ssl_ca_certs=/c.pem", "rediss"),
        ("redis://h/name", "number of a database"),
        ("redis://h/0?db=1", "sentinel"),
        ("redis://a,b", "one server"),
        ("redis://", "host:port"),
        ("redis://h:70000", "the port must be a number from 1 to 65535"),
        ("redis+sentinel://h", "must name its master"),
        ("redis+cluster://h/3", "database 0"),
    ],
)
def test_urls_that_are_wrong_say_why(url: str, told: str) -> None:
    with pytest.raises(InvalidError) as refused:
        parse(url)
    assert told in str(refused.value)


@pytest.mark.urls
@pytest.mark.parametrize(
    "url",
    [
        "redis://user:S3cr/et@host:1/0",
        "redis://user:S3cr?et@host:1/0",
        "redis://user:x@S3cr/et@host:1/0",
        "redis://:S3cr,et/@host:1/0",
        "redis://user:pw@host/S3cret",
        "redis://user:pw@host:S3cret",
        "redis+cluster://user:S3cr/et@host:1",
        "redis+sentinel://user:x@S3c/ret@host:1/m",
        "redis+sentinel://user:S3c?ret@host:1/m",
        "redis:user:S3cret@host",
        "redis://user:pw?connections=S3cret@host:1/0",
        "redis://user:pw?S3cret=1@host:1/0",
        "rediss://user:pw?ssl_cert_reqs=S3cret@host:1/0",
    ],
)
def test_what_may_be_a_piece_of_a_password_is_never_quoted(url: str) -> None:
    with pytest.raises(InvalidError) as refused:
        parse(url)
    assert not any(piece in str(refused.value) for piece in ("S3c", "ret", "et@"))


@pytest.mark.urls
def test_a_password_may_hold_what_ends_no_part_of_a_url() -> None:
    assert parse("redis://u:S3cr#e@t@host:1/0").password == "S3cr#e@t"
    assert parse("redis://u:S3cr%2Fe%3Ft@host:1/0").password == "S3cr/e?t"
