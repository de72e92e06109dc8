"""URLs of servers, taken apart and put together: `scheme://user:password@host:port,[::1]:port/path?name=value`.

The standard library's parser knows one host only, and since 3.12.9 and 3.13.2 refuses a list with an IPv6 address in
it. This one reads every URL alike on every Python:

- The account ends at the last `@` before the first `/` or `?`; hosts are separated by commas, each with a port or none.
- An IPv6 address is in brackets, with its zone as `%25eth0` or `%eth0`. A host that begins with `%2F` is the path
  of a socket.
- Percent-encoding is decoded after the parts are separated, so `%40`, `%2C` and `%2F` belong to the part they are in.
- Options are `name=value`, each once; `+` in them is a space, as in every query. There are no fragments.

A URL that breaks one of these rules raises `InvalidError`. No message repeats a piece of the URL: a password with a
bare `/` or `?` in it ends up in the wrong part, and must not be shown from there. The one exception is the name of an
unknown option, if there is no `@` among the options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from urllib.parse import quote, unquote_to_bytes

import msgspec

from perdure.errors import InvalidError

BAD_ESCAPE = "contains a % that is not followed by two hexadecimal digits; write a literal % as %25"
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BRACKETED = re.compile(r"\[([^\[\]]*)\](?::(.*))?", re.DOTALL)


class Dialect(msgspec.Struct, frozen=True):
    """What the URLs of one kind of server look like."""

    product: str
    """Its name in messages."""
    example: str
    """A URL that is right, for hints."""
    schemes: tuple[str, ...] = ()
    """The schemes it has; any, if none is listed."""
    options: tuple[str, ...] | None = None
    """The options it knows; any, if None."""
    bare_password: bool = False
    """Whether `@` and `#` may appear unescaped in a password."""


ANY = Dialect("server", "scheme://user:password@host:port/path")


class Host(msgspec.Struct, frozen=True):
    """One server of a URL: a name, an address (without brackets) or the path of a socket, and a port if it has one."""

    name: str
    port: int | None = None

    @property
    def is_socket(self) -> bool:
        """Whether this is a path."""
        return self.name.startswith("/")

    @property
    def is_ipv6(self) -> bool:
        """Whether this is an address that needs brackets."""
        return ":" in self.name and not self.is_socket

    def __str__(self) -> str:
        """As people read it: `db:5432`, `[::1]:5432`, `/run/postgresql`."""
        name = f"[{self.name}]" if self.is_ipv6 else self.name
        return name if self.port is None else f"{name}:{self.port}"


class ServerUrl(msgspec.Struct, frozen=True):
    """The parts of a URL, decoded. An account, path or port that is left out is empty or None."""

    scheme: str
    hosts: tuple[Host, ...] = ()
    user: str = ""
    password: str = ""
    path: str = ""
    """What follows the slash behind the hosts, without it."""
    options: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<{self.display_url}>"

    @property
    def display_url(self) -> str:
        """The URL in messages: without its password and its options."""
        return self._without_options(quote(self.user, safe=""))

    def build(self) -> str:
        """The URL itself, which `parse_url` takes apart into the same parts."""
        account = quote(self.user, safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        options = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self.options.items())
        return self._without_options(account) + (f"?{options}" if options else "")

    def _without_options(self, account: str) -> str:
        hosts = ",".join(map(_encoded, self.hosts))
        path = f"/{quote(self.path, safe='')}" if self.path else ""
        return f"{self.scheme}://{account}{'@' if account else ''}{hosts}{path}"


def parse_url(text: str, dialect: Dialect = ANY, name: str = "the URL") -> ServerUrl:
    """Take a URL apart.

    `dialect` lists the schemes and options. `name` is what messages call the URL. Raises `InvalidError`.
    """
    return _Reader(dialect, name).read(text)


def parse_hosts(text: str, dialect: Dialect = ANY, name: str = "the URL") -> tuple[Host, ...]:
    """The hosts of an option such as `host=a,b`: as in a URL, but not percent-encoded, and `::1` needs no brackets."""
    return _Reader(dialect, name).hosts(text.split(","), encoded=False)


def parse_port(text: str, dialect: Dialect = ANY, name: str = "the URL") -> int:
    """A port."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65_535):
        raise InvalidError(f"{name}: the port must be a number from 1 to 65535", hint=dialect.example)
    return int(text)


def has_bad_escape(text: str) -> bool:
    """Whether there is a `%` in it that begins no escape."""
    return _BAD_ESCAPE.search(text) is not None


def raw_account(text: str) -> tuple[str, str]:
    """User and password of a URL as written, whatever else is wrong with it; empty if it has none."""
    user, _, password = _authority(text.partition("://")[2]).rpartition("@")[0].partition(":")
    return user, password


class _Reader:
    """Parses the URLs of one dialect and reports what is wrong with them."""

    def __init__(self, dialect: Dialect, name: str) -> None:
        self._dialect = dialect
        self._name = name

    def read(self, text: str) -> ServerUrl:
        if _CONTROL.search(text):
            raise self._wrong("contains a control character, such as a line break")
        scheme, _, rest = text.partition("://")
        schemes = self._dialect.schemes
        if rest == text or not scheme or (schemes and scheme not in schemes):
            begin = " or ".join(f"{known}://" for known in schemes) or "a scheme and ://"
            raise self._wrong(f"does not begin with {begin}")
        authority = _authority(rest)
        path, _, query = rest[len(authority) :].partition("?")
        account, at, hosts = authority.rpartition("@")
        # A bare / or ? in a password ends the account too early, and its @ is then in the path or the options.
        if "@" in path or "#" in path + query + hosts or ("@" in query and not at and not path):
            raise self._encode_password()
        if ";" in hosts + path:
            # As other libraries write options; the whole of it would be a name, and be shown as one.
            raise self._wrong("has a ; behind the host: options follow a ?, as in ?name=value")
        if not self._dialect.bare_password:
            self._check_bare(account)
        user, _, password = account.partition(":")
        return ServerUrl(
            scheme,
            self.hosts(hosts.split(","), encoded=True) if hosts else (),
            self._decoded(user),
            self._decoded(password),
            self._decoded(path[1:]),
            self._options(query),
        )

    def hosts(self, items: Iterable[str], *, encoded: bool) -> tuple[Host, ...]:
        items = list(items)
        if not all(items):
            raise self._wrong("has an empty entry in its list of hosts")
        return tuple(self._host(item, encoded=encoded) for item in items)

    def _host(self, text: str, *, encoded: bool) -> Host:
        bracketed = _BRACKETED.fullmatch(text)
        if bracketed:
            return Host(self._ipv6(bracketed[1]), self._port(bracketed[2] or ""))
        if not encoded and (text.startswith("/") or text.count(":") > 1):
            return Host(text if text.startswith("/") else self._ipv6(text))
        name, _, port = text.partition(":")
        if encoded:
            name, port = self._decoded(name), self._decoded(port)
        if not name.startswith("/"):
            self._check_name(text, name, port)
        return Host(name, self._port(port))

    def _check_name(self, text: str, name: str, port: str) -> None:
        if ":" in name + port or "[" in text or "]" in text:
            raise self._wrong("has a host that cannot be read: an IPv6 address goes in brackets, as in [::1]:1234")
        if not name:
            raise self._wrong("has a port without a host")
        try:
            # What the resolver would refuse with its own error, as it does an empty label or one of 64 letters.
            name.encode("idna")
        except UnicodeError:
            raise self._wrong("has an invalid host name") from None

    def _port(self, text: str) -> int | None:
        return parse_port(text, self._dialect, self._name) if text else None

    def _ipv6(self, text: str) -> str:
        address, percent, zone = text.partition("%")
        zone = self._decoded(zone.removeprefix("25"))
        try:
            IPv6Address(address)
        except ValueError:
            raise self._wrong("has brackets around something that is not an IPv6 address") from None
        if percent and not re.fullmatch(r"[^\s%/\[\]]+", zone):
            raise self._wrong("has an IPv6 address with an empty or unreadable zone: write [fe80::1%25eth0]")
        return f"{address}{percent}{zone}"

    def _options(self, query: str) -> dict[str, str]:
        options: dict[str, str] = {}
        known = self._dialect.options
        pairs = [piece.replace("+", " ").partition("=") for piece in query.split("&")] if query else []
        if not all(name and equals for name, equals, _ in pairs):
            raise InvalidError(
                f"the options of {self._name} cannot be read: each is name=value", hint=self._dialect.example
            )
        named = [(self._decoded(name), self._decoded(value)) for name, _, value in pairs]
        unknown = sorted({name for name, _ in named if known is not None and name not in known})
        if unknown and "@" in query:
            raise self._encode_password()
        if unknown:
            listed = ", ".join(sorted(known or ()))
            raise InvalidError(
                f"{', '.join(unknown)}: no such option of a {self._dialect.product} URL", hint=f"known: {listed}"
            )
        for name, value in named:
            if name in options:
                raise InvalidError(f"the option {name} is given twice in {self._name}")
            options[name] = value
        return options

    def _check_bare(self, account: str) -> None:
        if "#" in account:
            raise self._encode_password()
        if "@" in account:
            raise self._wrong("has more than one @: percent-encode @ in the password (%40)")

    def _decoded(self, text: str) -> str:
        if has_bad_escape(text):
            raise self._wrong(BAD_ESCAPE)
        try:
            decoded = unquote_to_bytes(text).decode()
        except UnicodeError:
            raise self._wrong("has percent-encoded bytes that are not UTF-8") from None
        if "\x00" in decoded:
            raise self._wrong("contains a zero byte (%00)")
        return decoded

    def _encode_password(self) -> InvalidError:
        return self._wrong(
            "cannot be read: / ? # and @ in a password or an option must be percent-encoded (%2F %3F %23 %40)"
        )

    def _wrong(self, what: str) -> InvalidError:
        return InvalidError(f"{self._name} {what}", hint=self._dialect.example)


def _authority(rest: str) -> str:
    return re.split(r"[/?]", rest, maxsplit=1)[0]


def _encoded(host: Host) -> str:
    safe = ":" if host.is_ipv6 else ""
    return str(msgspec.structs.replace(host, name=quote(host.name, safe=safe)))
