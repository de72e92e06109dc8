"""How well the connection to a server is protected: its TLS level, and the problem for `health()` and a warning.

A connection that leaves the machine should be encrypted, and the server's certificate verified: otherwise an attacker
on the network can read along or impersonate the server. Loopback and Unix sockets never leave the machine.
"""

from __future__ import annotations

import warnings
from ipaddress import IPv6Address, ip_address
from typing import Literal

Tls = Literal["none", "encrypted", "verified"]

_SHOWN_CHARACTERS = 200


class InsecureTransportWarning(UserWarning):
    """A store was opened over a network without TLS, or without checking who answers.

    Python shows it once for each host. Turn it into an error to insist on verified TLS:
    `warnings.simplefilter("error", perdure.InsecureTransportWarning)`.
    """


def is_local(host: str | None) -> bool:
    """Whether a connection to `host` stays on this machine: a socket (a path, `@name`, or none), or loopback."""
    if not host or host.startswith(("/", "@")):
        return True
    name = host.lower().rstrip(".").strip("[]").partition("%")[0]
    if name in ("localhost", "ip6-localhost", "ip6-loopback") or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def tls_level(*, encrypted: bool, verified: bool) -> Tls:
    """The value of the setting `tls`. A certificate that was verified on the way to plain text counts for nothing."""
    if not encrypted:
        return "none"
    return "verified" if verified else "encrypted"


def transport_problem(host: str | None, *, encrypted: bool, verified: bool, advice: str) -> str | None:
    """The problem with a connection to `host`, or None. `advice` names the setting that fixes it, such as
    `use sslmode=verify-full`."""
    level = tls_level(encrypted=encrypted, verified=verified)
    if level == "verified" or host is None or is_local(host):
        return None
    name = host if host.isprintable() else ascii(host)
    name = name[:_SHOWN_CHARACTERS]
    if level == "none":
        return f"the connection to {name} is not encrypted: others on the network can read and change it; {advice}"
    return (
        f"the connection to {name} is encrypted, but the server's certificate is not verified: "
        f"an attacker on the network could impersonate it; {advice}"
    )


def warn_insecure(problem: str | None) -> None:
    """Issue an `InsecureTransportWarning` with this problem.

    Python itself shows each problem once. Nothing is remembered here, so an application that turns the warning into an
    error is never let through.
    """
    if problem is not None:
        warnings.warn(problem, InsecureTransportWarning, stacklevel=2)
