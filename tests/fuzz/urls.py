"""URLs: taken apart by every engine, shown in errors, and never with their password.

A case is the pieces of a URL. The canary stands in a password, wherever a URL may have one, together with any character
that ought to have been escaped. Whatever is shown of the URL must not hold it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st
from tests.fuzz.mutate import spliced
from tests.fuzz.target import Broken, Target, refusal

from perdure.engines.mysql.target import parse_target as parse_mysql
from perdure.engines.postgres.target import parse_target as parse_postgres
from perdure.engines.redis.target import parse as parse_redis
from perdure.errors import PerdureError
from perdure.kernel.url import parse_hosts, parse_url, raw_account
from perdure.opening import is_server, redacted, sqlite_path

CANARY = "C4naryQx7"
_PARSERS: dict[str, Callable[[str], Any]] = {
    "url": parse_url,
    "postgres": parse_postgres,
    "mysql": parse_mysql,
    "redis": parse_redis,
    "sqlite": sqlite_path,
    "hosts": parse_hosts,
    "account": raw_account,
    "server": is_server,
}
_SHOWN = ("postgres", "mysql", "redis")
_SCHEMES = (
    *("postgresql", "postgres", "mysql", "mariadb", "redis", "rediss", "redis+sentinel", "rediss+cluster", "sqlite"),
    *("memory", "postgresql+asyncpg", "http", "PostgreSQL", "a.b-c+d"),
)
_HOSTS = ("h", "h:5432", "[::1]:5432", "a,b:1,[::2]", "127.0.0.1", "%2Frun%2Fx", "xn--p1ai", "h:99999", "[fe80::1%25e]")
_TOKENS = tuple("/?#@:%&=;,+[] \t\n\x00\x1b'\"\\") + ("%2F", "%40", "%00", "%ff", "%C3%A9", "é", "//", "://", "..")
_OPTIONS = (
    *("schema", "connections", "connect_timeout", "command_timeout", "prepared", "migrate", "sslmode", "host", "port"),
    *("user", "db", "prefix", "allow_eviction", "ssl", "unix_socket", "target_session_attrs", "dbname", "service"),
)
_SECRET_OPTIONS = ("password", "sslpassword", "PASSWORD", "pass", "p%61ssword", "passwd", "pwd", "token", "secret")
_VALUES = ("x", "1", "yes", "no", "0.5", "a,b", "9" * 30, "9" * 5_000, "require", "any", "%2Fx", "²", "nan", "1e400")
_PLACES = ("account", "option", "listen_url", "nowhere")


def _text(seeds: Sequence[str], most: int = 6) -> st.SearchStrategy[str]:
    return st.sampled_from(seeds) | spliced(seeds, _TOKENS) | st.text(max_size=most)


def _cases(_: Sequence[Any]) -> st.SearchStrategy[Any]:
    options = st.lists(st.tuples(_text(_OPTIONS), _text(_VALUES)).map(list), max_size=3)
    return st.fixed_dictionaries(
        {
            "place": st.sampled_from(_PLACES),
            "scheme": _text(_SCHEMES),
            "user": _text(("", "app", "u%40x")),
            "before": _text(("", "p")),
            "after": _text(("", "q")),
            "hosts": _text(_HOSTS),
            "path": _text(("", "/", "/db", "/0", "/master", "/a/b", "//x.db", "/" + "9" * 5_000)),
            "secret": st.sampled_from(_SECRET_OPTIONS),
            "options": options,
        }
    )


def build(case: dict[str, Any]) -> str:
    """The URL of a case."""
    place, password = case["place"], f"{case['before']}{CANARY}{case['after']}"
    account = {"account": f"{case['user']}:{password}@", "option": f"{case['user']}@"}.get(place, "")
    options = [f"{name}={value}" for name, value in case["options"]]
    if place == "option":
        options.append(f"{case['secret']}={quote(password)}")
    if place == "listen_url":
        inner = f"postgresql://{case['user']}:{quote(password)}@h/d"
        options.append(f"listen_url={quote(inner, safe='')}")
    query = f"?{'&'.join(options)}" if options else ""
    return f"{case['scheme']}://{account}{case['hosts']}{case['path']}{query}"


def _check(case: Any) -> str:
    url = case["url"] if "url" in case else build(case)
    place = case.get("place", "nowhere")
    secret = place != "nowhere"
    outcomes, targets = [], {}
    for name, parse in _PARSERS.items():
        try:
            targets[name] = parse(url)
            outcomes.append(f"{name} read")
        except PerdureError as error:
            if secret:
                _insist_hidden_error(error, name, url)
            outcomes.append("" if "does not begin" in error.message else refusal(error))
    shown = redacted(url)
    if secret:
        _insist_hidden(shown, f"redacted ({_place(case)})", url)
    if redacted(shown) != shown:
        raise Broken("redacted changes its own answer", f"{shown!r} of {url!r}")
    _check_targets(targets, url, secret=secret)
    return " | ".join(outcome for outcome in outcomes[:4] if outcome)


def _place(case: dict[str, Any]) -> str:
    """Where the canary stands, in words: each place is a defect of its own."""
    if case["place"] == "option":
        return str(case["secret"])
    odd = case["place"] == "account" and re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*", case["scheme"]) is None
    return "account behind an odd scheme" if odd else str(case["place"])


def _insist_hidden_error(error: PerdureError, name: str, url: str) -> None:
    for told in (str(error), repr(error), repr(error.args), repr(error.hint), repr(error.__cause__)):
        _insist_hidden(told, f"an error of {name}", url)


def _check_targets(targets: dict[str, Any], url: str, *, secret: bool) -> None:
    parts = targets.get("url")
    if parts is not None:
        with suppress(PerdureError):
            if parse_url(parts.build()) != parts:
                raise Broken("a URL that was put together reads differently", f"{url!r}")
        if secret and _is_password(url, parts):
            _insist_hidden(repr(parts), "the parts of a URL", url)
    for name in _SHOWN:
        if secret and name in targets:
            _insist_hidden(repr(targets[name]), f"the repr of a target of {name}", url)


def _is_password(url: str, target: Any) -> bool:
    """Whether the canary was understood as a password: in a URL that was taken apart it may be a name as well."""
    return CANARY in target.password or (CANARY in url and CANARY not in target.user + target.path + str(target.hosts))


def _insist_hidden(text: str, where: str, url: str) -> None:
    if CANARY in text:
        raise Broken(f"{where} shows the password", f"{text!r:.200} for {url!r:.300}")


URLS = Target("urls", "every parser of URLs, and what is shown of them", _cases, _check, short=200)
