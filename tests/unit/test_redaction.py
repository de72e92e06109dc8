"""What may be shown of a URL: what is known to be harmless, and nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from perdure.engines.mysql.target import parse_target as mysql_target
from perdure.engines.postgres.target import parse_target as postgres_target
from perdure.engines.redis.target import parse as redis_target
from perdure.errors import InvalidError
from perdure.kernel.redaction import masked_secrets, masked_urls, redacted
from perdure.kernel.url import parse_url

pytestmark = pytest.mark.urls
CANARY = "kanarienvogel"
LISTEN = f"postgresql%3A%2F%2Fapp%3A{CANARY}%40h%2Fd"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p@ss?w/d@h:5/d?x=1", "postgresql://***"),
        ("redis://:p@h:6379/0", "redis://:***@h:6379/0"),
        ("redis://p@h:6379/0", "redis://***@h:6379/0"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("mysql://u@h/d?password=x&a=b", "mysql://u@h/d?password=***&a=***"),
        ("mysql://u@h/d?connections=4&ssl_key=/k", "mysql://u@h/d?connections=4&ssl_key=***"),
        ("postgresql://u:p@h/d?schema=a&sslmode=require", "postgresql://u:***@h/d?schema=a&sslmode=require"),
        ("postgresql://u:p@h/d?schema=a%26password%3Db", "postgresql://u:***@h/d?schema=***"),
        ("postgresql://u:p@h/d?schema=a@b&x=1", "postgresql://***"),
        ("postgresql://me@corp:p@h/d?schema=a", "postgresql://me%40corp:***@h/d?schema=a"),
        ("postgresql://u:x?a=b@h/d", "postgresql://***"),
        ("postgresql://u:/#?@h/d", "postgresql://***"),
        (f"postgresql://u:p@h/d?listen_url={LISTEN}", "postgresql://u:***@h/d?listen_url=***"),
        (f"postgresql://u:p@h/d?%6cisten_url={LISTEN}", "postgresql://u:***@h/d?listen_url=***"),
        ("redis://[::1]:6379/0?prefix=ab", "redis://[::1]:6379/0?prefix=ab"),
        (
            "redis+sentinel://u:p@h1:1,h2:2/s?sentinel_password=q",
            "redis+sentinel://u:***@h1:1,h2:2/s?sentinel_password=***",
        ),
        ("sqlite:////a@b.db", "sqlite:////a@b.db"),
        ("sqlite:///a.db?key=x", "sqlite:///a.db?***"),
        ("sqlite://me:p@h/d", "sqlite://***"),
        ("data/run=3/agents.db", "data/run=3/agents.db"),
        ("me:p@h/d", "***"),
        ("agents.db?key=p", "agents.db?***"),
        ("file:agents.db?key=p", "file:agents.db?***"),
        ("password=p.db", "***"),
        ("host=h user=me password=p", "***"),
        ("password=p", "***"),
        ("jdbc:postgresql://h/d?password=p", "***"),
    ],
)
def test_redacted(url: str, shown: str) -> None:
    assert redacted(url) == shown
    assert redacted(shown) == shown
    if "://" in url and shown != "***":
        assert masked_urls(f"{url}: cannot be reached") == f"{shown}: cannot be reached"
        assert masked_urls(f"cannot reach {url} now") == f"cannot reach {shown} now"


@pytest.mark.parametrize("place", ["{}", "x{}", "{}x", "%6b{}", "a={}", "{}@h", "u:{}@h", "//u:{}@h/d", "h/d?x={}&y=1"])
@pytest.mark.parametrize(
    "option", ["password", "listen_url", "sslpassword", "token", "schema%20", "SCHEMA", "%70assword"]
)
@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis", "rediss+cluster", "nosuch"])
def test_no_option_shows_a_value_that_is_not_known_to_be_harmless(scheme: str, option: str, place: str) -> None:
    value = place.format(CANARY)
    url = f"{scheme}://h/d?{option}={value}"
    assert CANARY not in redacted(url)
    assert CANARY not in masked_urls(f"'{url}' is refused")
    assert CANARY not in masked_secrets(f"cannot use {url}", url)


def test_a_secret_is_starred_in_pieces_of_its_url_and_nowhere_else() -> None:
    url = "postgresql://app:k%40n@db/app?sslpassword=vogel"
    said = "no: app:k@n@db, app:k%40n@db, sslpassword=vogel, a vogel"
    assert masked_secrets(said, url) == "no: app:***@db, app:***@db, sslpassword=***, a vogel"
    said = "postgresql://postgres:***@db/x: no thread is called postgres"
    assert masked_urls(masked_secrets(said, "postgresql://postgres:postgres@db/x")) == said


def test_the_account_of_an_example_stays_readable() -> None:
    hint = "write mysql://user:password@host:3306/database, not memory://, or redis://host:6379/0"
    assert masked_urls(hint) == hint


@pytest.mark.parametrize(
    "text", ["a" * 400_000, "pass" * 100_000, "a:" * 200_000, "://" * 130_000, "a=" * 200_000, "x://" + "@?" * 200_000]
)
def test_long_texts_are_masked_in_one_pass(text: str) -> None:
    """The number of steps grows with the text: with the square of it, this would take hours."""
    redacted(text)
    masked_urls(text)
    masked_secrets(text, "postgresql://u:secret@h/d")


@pytest.mark.parametrize(
    ("parse", "url"),
    [
        (parse_url, f"x://u:{CANARY}@h/d?password={CANARY}"),
        (postgres_target, f"postgresql://u:{CANARY}@h/d?sslpassword={CANARY}&listen_url={LISTEN}"),
        (mysql_target, f"mysql://u:{CANARY}@h/d"),
        (redis_target, f"redis://u:{CANARY}@h/0"),
        (redis_target, f"rediss://u:{CANARY}@h/0?ssl_check_hostname=no"),
    ],
)
def test_what_a_url_is_parsed_into_does_not_show_its_secrets(parse: Callable[[str], Any], url: str) -> None:
    parts = parse(url)
    assert CANARY not in repr(parts) + str(parts)
    assert CANARY not in f"{[parts]} {(parts,)!r}"


def test_an_error_is_bounded_whatever_it_quotes() -> None:
    error = InvalidError("x" * 1_000_000, hint="y" * 1_000_000)
    assert len(str(error)) < 5_000
    assert "998000 more characters" in str(error)
    assert len("".join(traceback.format_exception(error))) < 10_000
