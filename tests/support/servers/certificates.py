"""Certificates for test servers: made when they are needed, by the system's openssl, and gone with their folder."""

from __future__ import annotations

from pathlib import Path

from tests.support.servers.process import prepare

HOST = "localhost"
"""The name that every certificate vouches for."""


def self_signed(folder: Path, certificate: Path, key: Path, *more_names: str) -> None:
    """A key, and a certificate for `localhost` (and `more_names`, such as `IP:127.0.0.1`) that signs itself."""
    names = ",".join([f"DNS:{HOST}", *more_names])
    subject = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName={names}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    prepare(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files], folder, {})
