"""Logging in to MySQL without handing the password to an impostor, and bounds on what a server may send.

The server chooses the authentication method. Some methods send a digest of the password, salted for this login
(`mysql_native_password`, the short form of `caching_sha2_password`); others the password itself, in clear
(`mysql_clear_password`, `dialog`, `sha256_password` under TLS) or encrypted with a key that the same server has sent.
asyncmy obeys whatever the server asks. So it gets a password that can be digested and not sent: `HiddenPassword`.

A meter counts what arrives, below the driver: in our own socket, or in the TLS layer.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, NoReturn

from perdure import limits
from perdure.engines.mysql.target import Target
from perdure.errors import InvalidError


class HiddenPassword(bytes):
    """A password that can be hashed, and refuses to become part of a message.

    Every method that sends it begins with `password + b"\\0"`, before a byte of it is sent or encrypted.
    """

    where: str

    def __new__(cls, password: str, where: str) -> HiddenPassword:
        """Hide a password; `where` names the server in the refusal."""
        hidden = super().__new__(cls, password.encode())
        hidden.where = where
        return hidden

    def __add__(self, other: object) -> NoReturn:
        raise asks_for_password(self.where)

    def __repr__(self) -> str:
        return "<a password>"


def asks_for_password(where: str) -> InvalidError:
    """For a server that wants more than a digest of the password and did not prove its identity."""
    return InvalidError(
        f"{where} asks for the password itself but did not prove its identity; the password was not sent",
        hint="verify the server with ssl_ca=… (or ssl=verify), or use mysql_native_password or ed25519 there; "
        "allow_cleartext=yes sends the password to any server that answers",
    )


def password_for(target: Target) -> bytes:
    """The password for the driver: hidden unless the server will have proved its identity."""
    if target.unix_socket is not None or target.verifies or target.allow_cleartext:
        return target.password.encode()
    return HiddenPassword(target.password, target.display_url)


class Meter:
    """Counts what a server sends: all of it until the login, then each answer. `offence` says that it was too
    much."""

    def __init__(self) -> None:
        self._received = 0
        self._most: int | None = None
        self.offence: str | None = None

    def logged_in(self) -> None:
        """The login is over: from now on each answer is counted, and may be long."""
        self._received = 0
        self._most = limits.ANSWER_BYTES

    def sent(self) -> None:
        """A new question was sent: its answer is counted from zero."""
        if self._most is not None:
            self._received = 0

    def count(self, received: int) -> None:
        """Count bytes; raises `OSError` when they are too many, which ends the connection."""
        self._received += received
        most = limits.LOGIN_BYTES if self._most is None else self._most
        if self._received > most:
            self.offence = f"the server sent more than {most:,} bytes"
            raise OSError(self.offence)


class MeteredSocket(socket.socket):
    """A TCP socket that counts what it receives."""

    meter: Meter

    def recv(self, *args: Any) -> bytes:
        """Receive, and count the bytes."""
        received = super().recv(*args)
        self.meter.count(len(received))
        return received

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive, and count the bytes."""
        received = super().recv_into(buffer, nbytes, flags)
        self.meter.count(received)
        return received

    def send(self, *args: Any) -> int:
        """Send: what comes next is another answer."""
        self.meter.sent()
        return super().send(*args)

    def sendmsg(self, *args: Any) -> int:
        """Send: what comes next is another answer."""
        self.meter.sent()
        return super().sendmsg(*args)


class _MeteredTls(ssl.SSLObject):
    """The TLS layer, counting what comes out of it."""

    meter: Meter

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        received: Any = super().read(len, buffer)
        self.meter.count(received if isinstance(received, int) else received.__len__())
        return received

    def write(self, data: Any) -> int:
        self.meter.sent()
        return super().write(data)


def tls_context(target: Target, meter: Meter) -> ssl.SSLContext | None:
    """The TLS settings of the URL; None without TLS. Raises `ssl.SSLError` for a bad certificate or key file."""
    if not target.encrypts:
        return None
    context = ssl.create_default_context(cafile=target.ssl_ca)
    if not target.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if target.ssl_cert is not None:
        context.load_cert_chain(target.ssl_cert, keyfile=target.ssl_key)
    context.sslobject_class = type("MeteredTls", (_MeteredTls,), {"meter": meter})
    return context
