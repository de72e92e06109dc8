"""URLs of servers: every part is found, on every Python; what is malformed is refused, and never with the password."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidError
from perdure.kernel.url import Dialect, Host, ServerUrl, parse_hosts, parse_url, raw_account

pytestmark = pytest.mark.urls

STRICT = Dialect("Toy", "toy://host:1/path", schemes=("toy", "toys"), options=("a", "b", "user"))
BARE = msgspec.structs.replace(STRICT, bare_password=True)

READ: list[tuple[str, ServerUrl]] = [
    ("toy://", ServerUrl("toy")),
    ("toy:///", ServerUrl("toy")),
    ("toys://h", ServerUrl("toys", (Host("h"),))),
    ("toy://h:", ServerUrl("toy", (Host("h"),))),
    ("toy://h:5432/d", ServerUrl("toy", (Host("h", 5432),), path="d")),
    ("toy://h:%31/d", ServerUrl("toy", (Host("h", 1),), path="d")),
    ("toy://[::1]:5432,db2:5433/x", ServerUrl("toy", (Host("::1", 5432), Host("db2", 5433)), path="x")),
    ("toy://db2:5433,[::1]:5432/x", ServerUrl("toy", (Host("db2", 5433), Host("::1", 5432)), path="x")),
    ("toy://a,b:1,[::1]:2,[::2]", ServerUrl("toy", (Host("a"), Host("b", 1), Host("::1", 2), Host("::2")))),
    ("toy://[fe80::1%25eth0]:1", ServerUrl("toy", (Host("fe80::1%eth0", 1),))),
    ("toy://[fe80::1%eth0]:1", ServerUrl("toy", (Host("fe80::1%eth0", 1),))),
    ("toy://[::ffff:10.0.0.1]", ServerUrl("toy", (Host("::ffff:10.0.0.1"),))),
    ("toy://%2Frun%2Ftoy:1,h/d", ServerUrl("toy", (Host("/run/toy", 1), Host("h")), path="d")),
    ("toy://%2Frun%2Fa%2Cb%3Ac", ServerUrl("toy", (Host("/run/a,b:c"),))),
    ("toy://u@h", ServerUrl("toy", (Host("h"),), "u")),
    ("toy://u:@h", ServerUrl("toy", (Host("h"),), "u")),
    ("toy://:p@h", ServerUrl("toy", (Host("h"),), "", "p")),
    ("toy://u:p:q@h", ServerUrl("toy", (Host("h"),), "u", "p:q")),
    ("toy://u%40x:p%2F%3F%23%40%25%C3%A9@h", ServerUrl("toy", (Host("h"),), "u@x", "p/?#@%é")),
    ("toy://u:p+q@h/d+e", ServerUrl("toy", (Host("h"),), "u", "p+q", "d+e")),
    ("toy://u:p[]@h", ServerUrl("toy", (Host("h"),), "u", "p[]")),
    ("toy://u@/d", ServerUrl("toy", (), "u", path="d")),
    ("toy://h/my%20db%2Fx", ServerUrl("toy", (Host("h"),), path="my db/x")),
    ("toy://h?a=1&b=", ServerUrl("toy", (Host("h"),), options={"a": "1", "b": ""})),
    ("toy://h/?a=x=y", ServerUrl("toy", (Host("h"),), options={"a": "x=y"})),
    ("toy://h/d?a=1+2%2B3", ServerUrl("toy", (Host("h"),), path="d", options={"a": "1 2+3"})),
    ("toy://h/d?a=/x?y", ServerUrl("toy", (Host("h"),), path="d", options={"a": "/x?y"})),
    ("toy://h/d?user=x@y", ServerUrl("toy", (Host("h"),), path="d", options={"user": "x@y"})),
    ("toy://h/d?", ServerUrl("toy", (Host("h"),), path="d")),
]
# "zzz" stands wherever a piece of a password may be.
REFUSED: list[tuple[str, str]] = [
    ("", "does not begin with toy:// or toys://"),
    ("zzz", "does not begin with"),
    ("://zzz", "does not begin with"),
    ("toy:u:zzz@h", "does not begin with"),
    ("zzz://u:zzz@h", "does not begin with"),
    ("toy://u:zzz@zzz@h/d", "more than one @"),
    ("toy://u:zzz/zzz@h/d", "percent-encoded"),
    ("toy://u:zzz?zzz@h/d", "percent-encoded"),
    ("toy://u:zzz#zzz@h/d", "percent-encoded"),
    ("toy://u:12?zzz=x@h/d", "percent-encoded"),
    ("toy://u:12?a=zzz@h/d", "percent-encoded"),
    ("toy://u:p@zzz?zzz=x@h/d", "percent-encoded"),
    ("toy://u:p@zzz/zzz@h/d", "percent-encoded"),
    ("toy://u:p@h/d#zzz", "percent-encoded"),
    ("toy://u:p@h?a=1#zzz", "percent-encoded"),
    ("toy://u:p@zzz#", "percent-encoded"),
    ("toy://u:zzz/d", "port must be a number"),
    ("toy://u:x@h:zzz/d", "port must be a number"),
    ("toy://h:0", "port must be a number"),
    ("toy://h:65536", "port must be a number"),
    ("toy://h:-1", "port must be a number"),
    ("toy://h:" + "1" * 5000, "port must be a number"),
    ("toy://h:\u0661", "port must be a number"),
    ("toy://[::1]:zzz", "port must be a number"),
    ("toy://:5432", "port without a host"),
    ("toy://h,,zzz", "empty entry"),
    ("toy://h,", "empty entry"),
    ("toy://::1", "brackets"),
    ("toy://u:x@zzz:1:2", "brackets"),
    ("toy://%3A%3A1", "brackets"),
    ("toy://[::1", "brackets"),
    ("toy://::1]", "brackets"),
    ("toy://[::1]x", "brackets"),
    ("toy://x[::1]", "brackets"),
    ("toy://[zzz]", "not an IPv6 address"),
    ("toy://[]", "not an IPv6 address"),
    ("toy://[10.0.0.1]", "not an IPv6 address"),
    ("toy://[v1.zzz]", "not an IPv6 address"),
    ("toy://[fe80::1%25]", "zone"),
    ("toy://[fe80::1%]", "zone"),
    ("toy://a..zzz", "invalid host name"),
    ("toy://" + "z" * 64, "invalid host name"),
    ("toy://u:zzz%@h", "two hexadecimal digits"),
    ("toy://u:zzz%4@h", "two hexadecimal digits"),
    ("toy://u:%zzz@h", "two hexadecimal digits"),
    ("toy://u:zzz%ff@h", "not UTF-8"),
    ("toy://u:zzz\udcff@h", "not UTF-8"),
    ("toy://u:zzz%00@h", "zero byte"),
    ("toy://u:zzz@h/d\n", "control character"),
    ("toy://u:p@h?a", "cannot be read"),
    ("toy://u:p@h?a=1&", "cannot be read"),
    ("toy://u:p@h?=zzz", "cannot be read"),
    ("toy://u:p@h?a=1&a=zzz", "a is given twice"),
    ("toy://u:p@h?colour=zzz", "colour: no such option of a Toy URL \\(known: a, b, user\\)"),
]


@pytest.mark.parametrize(("text", "parts"), READ)
@pytest.mark.parametrize("dialect", [STRICT, BARE])
def test_every_part_of_a_url_is_found(text: str, parts: ServerUrl, dialect: Dialect) -> None:
    assert parse_url(text, dialect) == parts
    assert parse_url(parts.build(), dialect) == parts


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_a_malformed_url_is_refused_and_nothing_of_it_repeated(text: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said) as caught:
        parse_url(text, STRICT)
    assert "zzz" not in f"{caught.value} {caught.value.hint}"
    assert caught.value.__cause__ is None


def test_a_password_may_be_bare_where_the_dialect_says_so() -> None:
    assert parse_url("toy://u:p#q@r@h/d", BARE).password == "p#q@r"


def test_hosts_of_an_option_are_not_encoded() -> None:
    listed = (Host("a"), Host("b", 1), Host("::1"), Host("::1", 2), Host("/run/x%20y"))
    assert parse_hosts("a,b:1,::1,[::1]:2,/run/x%20y") == listed


def test_a_url_is_shown_without_its_secrets() -> None:
    url = parse_url("toy://u:zzz@a:1,[::1]:2/d?password=zzz")
    assert (repr(url), url.display_url) == ("<toy://u@a:1,[::1]:2/d>", "toy://u@a:1,[::1]:2/d")


def test_the_account_of_a_url_is_found_as_it_stands() -> None:
    assert raw_account("toy://u%40:p%2Fq@[zzz/d?x=y@z") == ("u%40", "p%2Fq")
    assert raw_account("toy://h/d") == raw_account("no url at all") == ("", "")


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
names = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,20}[a-z0-9_])?(\.[a-z][a-z0-9]{0,9}){0,3}", fullmatch=True)
zones = st.from_regex(r"(%[A-Za-z0-9._,:-]{1,15})?", fullmatch=True)
addresses = st.builds(lambda address, zone: f"{address}{zone}", st.ip_addresses(v=6), zones)
sockets = texts.map(lambda path: f"/{path}")
hosts = st.builds(Host, st.one_of(names, addresses, sockets), st.none() | st.integers(1, 65_535))
urls = st.builds(
    ServerUrl,
    scheme=st.sampled_from(["postgresql", "mysql", "redis+sentinel"]),
    hosts=st.lists(hosts, max_size=4).map(tuple),
    user=texts,
    password=texts,
    path=texts,
    options=st.dictionaries(texts.filter(bool), texts, max_size=4),
)


@given(urls)
def test_a_url_built_from_parts_is_taken_apart_into_them(parts: ServerUrl) -> None:
    assert parse_url(parts.build()) == parts


@given(texts.map("toy://".__add__) | texts)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parts = parse_url(text)
    except InvalidError:
        return
    assert parse_url(parts.build()) == parts
