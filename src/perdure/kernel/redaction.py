"""Removes passwords from URLs and texts for messages: known harmless parts stay, the rest becomes `***`.

Nothing here guesses what a secret looks like. A URL that parses keeps its scheme, user, hosts, path and the
values of the options in `HARMLESS`; every other value becomes stars, whatever its name. A URL that does not
parse keeps its scheme only: in `postgresql://app:pa?ss@db/app` the password may be in any part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

import msgspec

from perdure.errors import InvalidError
from perdure.kernel.url import Dialect, ServerUrl, parse_url, raw_account

STARS = "***"
HARMLESS = frozenset(
    {
        "allow_cleartext",
        "allow_eviction",
        "command_timeout",
        "connect_timeout",
        "connections",
        "db",
        "migrate",
        "port",
        "prefix",
        "prepared",
        "schema",
        "ssl",
        "ssl_cert_reqs",
        "ssl_check_hostname",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslmode",
        "sslnegotiation",
        "target_session_attrs",
    }
)
"""Options whose values may be shown."""
_PLAIN_VALUE = re.compile(r"[\w.-]{1,64}")
_OPTION = re.compile(r"[A-Za-z_][\w.-]{0,39}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}")
_FILES = ("sqlite", "memory")
_LENIENT = Dialect("server", "scheme://host", bare_password=True)
# The scheme is bounded, or a long word would be read again from each of its letters.
_URL = re.compile(r"[\w+.-]{1,32}://[^\s'\"]*[^\s'\",;:.)]")
_EXAMPLE = ("user", "password")
"""The account in the URLs of hints; there is nothing in it to hide."""


def redacted(text: str) -> str:
    """A URL, a path or a connection string as it may be shown."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        path, query, _ = text.partition("?")
        return STARS if _may_hold_secret(path) else path + (f"?{STARS}" if query else "")
    if _SCHEME.fullmatch(scheme) is None:
        return STARS
    if scheme in _FILES:
        return f"{scheme}://{_file(rest)}"
    try:
        parts = parse_url(text, _LENIENT)
    except InvalidError:
        return f"{scheme}://{STARS}" if rest else text
    return text if rest == STARS else _redacted_parts(parts, text)


def masked_urls(text: str) -> str:
    """A text with every URL in it as it may be shown."""
    return _URL.sub(lambda match: _masked(match.group()), text)


def masked_secrets(text: str, url: str) -> str:
    """A text with stars for a URL that it repeats, and for the URL's secrets where it repeats a piece.

    A secret on its own stays: `thread` may be a password, and is a word of half our messages. What a driver or a server
    says is cleaned where it comes in.
    """
    text = text.replace(url, redacted(url))
    for secret in sorted(set(_secrets(url)), key=len, reverse=True):
        text = text.replace(f":{secret}@", f":{STARS}@").replace(f"={secret}", f"={STARS}")
    return text


def _masked(url: str) -> str:
    text = redacted(url)
    return text.replace(f":{STARS}@", ":password@", 1) if raw_account(url) == _EXAMPLE else text


def _may_hold_secret(text: str) -> bool:
    """Whether this may be a URL without its scheme, or a connection string: `app:secret@db`, `host=db password=x`."""
    return "@" in text.partition(":")[2] or ("=" in text and " " in text) or _starts_with_option(text)


def _starts_with_option(text: str) -> bool:
    name, equals, _ = text.partition("=")
    return bool(equals) and _OPTION.fullmatch(name) is not None and "/" not in text


def _file(rest: str) -> str:
    path, mark, _ = rest.partition("?")
    if not path.startswith("/") and "@" in path:
        return STARS
    return f"{path}?{STARS}" if mark else path


def _redacted_parts(parts: ServerUrl, text: str) -> str:
    query = text.partition("?")[2]
    # A bare ? in the password makes options of its rest, with the @ of the account among them.
    if "@" in query or not all(_OPTION.fullmatch(name) for name in parts.options):
        return f"{parts.scheme}://{STARS}"
    options = "&".join(f"{name}={_value(name, value)}" for name, value in parts.options.items())
    return _with_account(parts, text) + (f"?{options}" if options else "")


def _with_account(parts: ServerUrl, text: str) -> str:
    plain = parts.display_url
    has_account = raw_account(text) != ("", "")
    if not has_account:
        return plain
    # redis://secret@host: many drivers take a lone name for the password, which Redis long had without a user.
    alone = parts.scheme.startswith("redis") and not parts.password
    bare = msgspec.structs.replace(parts, user="").display_url.partition("://")[2]
    user = plain.removeprefix(f"{parts.scheme}://").removesuffix(bare).removesuffix("@")
    if alone:
        return f"{parts.scheme}://{STARS}@{bare}"
    return f"{parts.scheme}://{user}{f':{STARS}' if parts.password else ''}@{bare}"


def _value(name: str, value: str) -> str:
    return value if name in HARMLESS and _PLAIN_VALUE.fullmatch(value) else STARS


def _secrets(url: str) -> Iterator[str]:
    """Everything in a URL that is not known to be harmless: as it is written, and decoded."""
    user, password = raw_account(url)
    spelled = [password, user if url.startswith("redis") and not password else ""]
    for option in url.partition("?")[2].split("&"):
        name, _, value = option.partition("=")
        if _value(unquote(name), unquote(value)) == STARS:
            spelled += [value, raw_account(unquote(value))[1]]
    for secret in spelled:
        yield from (form for form in (secret, unquote(secret), unquote(secret.replace("+", " "))) if form)
