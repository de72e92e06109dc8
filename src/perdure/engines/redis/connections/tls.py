"""TLS options of a Redis URL, checked before anything is connected: no check is skipped unless the URL says so.

Files are opened here once, so an error about a missing or wrong file names its option. Without options the certificate
must be valid, signed by an authority that the system trusts, and issued for the host.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.engines.shared.options import yes_or_no
from perdure.errors import InvalidError

TLS_OPTIONS = ("ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile")
# A server always sends a certificate, so for a client `optional` is as strict as `required`.
_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def tls_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options with their defaults; `InvalidError` for one that would have no effect."""
    checks = options.get("ssl_cert_reqs", "required")
    if checks not in _MODES:
        raise InvalidError(f"ssl_cert_reqs is none, optional or required, not {checks!r:.80}")
    usual = "no" if checks == "none" else "yes"
    check_host = yes_or_no("ssl_check_hostname", options.get("ssl_check_hostname", usual))
    if check_host and checks == "none":
        raise InvalidError(
            "ssl_check_hostname=yes requires a checked certificate, but ssl_cert_reqs is none",
            hint="remove one of them",
        )
    for name in ("ssl_ca_certs", "ssl_certfile"):
        if name in options:
            _refuse_without_certificate(name, options[name])
    if "ssl_certfile" in options:
        _refuse_without_key(options)
    elif "ssl_keyfile" in options:
        raise InvalidError("ssl_keyfile needs ssl_certfile", hint="add the file of the certificate with ssl_certfile=")
    files = {name: options[name] for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") if name in options}
    return {"ssl_cert_reqs": checks, "ssl_check_hostname": check_host, **files}


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """The context for options that `tls_options` returned. A file that has vanished since raises `OSError`."""
    context = ssl.create_default_context()
    context.check_hostname = options["ssl_check_hostname"]
    context.verify_mode = _MODES[options["ssl_cert_reqs"]]
    if "ssl_ca_certs" in options:
        context.load_verify_locations(options["ssl_ca_certs"])
    if "ssl_certfile" in options:
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), password="")
    return context


def is_verified(options: Mapping[str, Any]) -> bool:
    """Whether the server must prove that it is the host of the URL."""
    return options["ssl_cert_reqs"] != "none" and bool(options["ssl_check_hostname"])


def _refuse_without_certificate(name: str, path: str) -> None:
    _refuse_unreadable(name, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError):
        raise InvalidError(f"{name}: the file {path!r} holds no certificate", hint="use a PEM file") from None


def _refuse_without_key(options: Mapping[str, str]) -> None:
    name = "ssl_keyfile" if "ssl_keyfile" in options else "ssl_certfile"
    _refuse_unreadable(name, options[name])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), password="")
    except (OSError, ValueError):
        raise InvalidError(
            f"{name}: the file {options[name]!r} holds no key of the certificate",
            hint="use a PEM file with the key, without a password, as ssl_keyfile",
        ) from None


def _refuse_unreadable(name: str, path: str) -> None:
    if not path:
        raise InvalidError(f"{name} must name a file")
    if not Path(path).is_file():
        raise InvalidError(f"{name}: there is no file {path!r}")
    if not os.access(path, os.R_OK):
        raise InvalidError(f"{name}: permission denied: {path!r}")
