"""Inspects every message of a PostgreSQL server before the driver reads it.

The driver trusts what a message says about itself. A message of kind 0 makes it loop endlessly, and the event loop with
it; an unterminated text, or an unexpected SCRAM challenge, crashes the process. And it authenticates in any way that
the server requests: with the password in clear, or with a billion rounds of hashing.

During the login every message is held back until it is complete and valid. After that only messages with text are,
which are few; of rows only the frame is inspected.
"""

from __future__ import annotations

import re
import struct

from perdure import limits

_read_header = struct.Struct("!BI").unpack_from
_read_code = struct.Struct("!I").unpack_from
_HEADER = 5
_KINDS = frozenset(b"123ACDEGHIKNRSTVWZcdnstv")
_LOGIN_KINDS = frozenset(b"EKNRSZv")
_TEXT_KINDS = frozenset(b"ACENS")
_COMPLETE = b"C"[0]
"""The end of a statement: the one text that comes with every answer, so it is checked in place."""
_OK, _CLEARTEXT, _MD5, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 3, 5, 10, 11, 12
_GSS, _GSS_CONTINUE, _SSPI = 7, 8, 9
_AFTER = {_SASL_CONTINUE: (_SASL,), _SASL_FINAL: (_SASL_CONTINUE,), _GSS_CONTINUE: (_GSS, _SSPI, _GSS_CONTINUE)}
"""For requests that continue another: which one must have come before."""
_TOO_MANY_ROUNDS = re.compile(rb",i=\d{7}")
"""The server decides how often SCRAM hashes the password, usually 4,096 times. A billion would block the event loop for
many minutes, and no timeout ends that; a million takes less than a second."""
_MOST_REQUESTS = 16
"""SCRAM takes four, Kerberos a few more."""


class Offence(Exception):
    """The server violates the protocol; the connection has to be aborted."""


class CleartextAsked(Offence):
    """The server requests the password in clear text."""


class Inspection:
    """Inspects the messages of one connection, in pieces of any length. `cleartext` allows a request for the
    password in clear."""

    def __init__(self, *, cleartext: bool) -> None:
        self.logging_in = True
        self._cleartext = cleartext
        self._ahead = 0
        self._held = b""
        self._asked = -1
        self._requests = 0

    def admit(self, data: bytes) -> bytes:
        """The bytes that may be passed on, including those held back before; raises `Offence`."""
        if self._held:
            data, self._held = self._held + data, b""
        at, size = self._ahead, len(data)
        while at + _HEADER <= size:
            kind, length = _read_header(data, at)
            end = at + 1 + length
            if kind not in (_LOGIN_KINDS if self.logging_in else _KINDS) or length < _HEADER - 1:
                raise Offence("it does not speak PostgreSQL's protocol")
            if self.logging_in or kind in _TEXT_KINDS:
                if length > limits.SERVER_TEXT_BYTES:
                    raise Offence("it sent a message that is too long")
                if end > size:
                    break
                if kind != _COMPLETE:
                    self._check(chr(kind), data[at + _HEADER : end])
                elif data[end - 1]:
                    raise Offence("it does not speak PostgreSQL's protocol")
            at = end
        self._ahead = max(at - size, 0)
        self._held = data[at:]
        return data[:at] if self._held else data

    def _check(self, kind: str, body: bytes) -> None:
        if kind == "R":
            self._check_request(body)
        elif not _complete(kind, body):
            raise Offence("it does not speak PostgreSQL's protocol")

    def _check_request(self, body: bytes) -> None:
        """A request to authenticate must be complete, in sequence, and cheap."""
        code = _read_code(body)[0] if len(body) >= 4 else -1
        self._requests += 1
        if (
            code < 0
            or self._requests > _MOST_REQUESTS
            or (code in _AFTER and self._asked not in _AFTER[code])
            or (code == _MD5 and len(body) < 8)
            or (code == _SASL and not body.endswith(b"\0\0"))
        ):
            raise Offence("it does not speak PostgreSQL's protocol")
        if code == _SASL_CONTINUE and _TOO_MANY_ROUNDS.search(body):
            raise Offence("it asks to hash the password over a million times, which would stop this process")
        if code == _OK and self._asked in (_SASL, _SASL_CONTINUE):
            raise Offence("it began SCRAM and did not prove that it knows the password")
        if code == _CLEARTEXT and not self._cleartext:
            raise CleartextAsked
        self._asked = code


def _complete(kind: str, body: bytes) -> bool:
    """Whether a body has all the parts, and the zero bytes after them, that the driver expects."""
    if kind in "EN":
        return body == b"\0" or body.endswith(b"\0\0")
    if kind == "S":
        return body.count(b"\0") == 2 and body.endswith(b"\0")
    if kind == "A":
        return body[4:].count(b"\0") == 2 and body.endswith(b"\0")
    return len(body) >= {"K": 8, "Z": 1, "v": 8}[kind]
