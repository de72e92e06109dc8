"""Translates failures of PostgreSQL and asyncpg to `perdure.errors`: the driver's exceptions end here.

`lost` is True when the connection broke, `restarting` when the server is likely to be back soon; what a broken
connection means for a commit is up to the writer (`unknown_outcome`). Messages name the server and the database, never
the password.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from perdure.engines.shared.schema_record import MIGRATED
from perdure.engines.shared.server_answers import NONSENSE, repeated
from perdure.errors import (
    CorruptError,
    InvalidError,
    OutcomeUnknown,
    PerdureError,
    UnavailableError,
    UnsupportedError,
)

DRIVER_ERRORS: tuple[type[BaseException], ...] = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)
"""Everything the driver raises when the work, the connection or the server fails."""

_ADMIN_SHUTDOWN, _CRASH_SHUTDOWN, _CANNOT_CONNECT_NOW = "57P01", "57P02", "57P03"
_TOO_MANY_CONNECTIONS = "53300"
_NO_TLS, _NOT_A_SETTING = "rejected SSL upgrade", "unsupported startup parameter"
_WANTS_TLS = "no encryption"
"""From the messages of the driver, PgBouncer and PostgreSQL; the codes that come with them mean other things too."""

_NO_TEXT = (InvalidError, "PostgreSQL cannot store this text: {reason}", "leave out NUL characters")
_NO_TABLES = (CorruptError, "the database does not have the expected tables: {reason}", MIGRATED)
_MEANINGS: dict[str, tuple[type[PerdureError], str, str | None]] = {
    "28": (InvalidError, "{where} refuses the login: {reason}", "check user and password in the URL"),
    "3D000": (InvalidError, "{where}: {reason}", "create it (CREATE DATABASE) or name another in the URL"),
    "42501": (UnsupportedError, "{where} does not allow it: {reason}", "grant the user the missing right"),
    "25006": (UnavailableError, "{where} is read-only now: {reason}", "it may be a standby; connect to the primary"),
    "22021": _NO_TEXT,
    "22P05": _NO_TEXT,
    "22": (InvalidError, "PostgreSQL cannot store this value: {reason}", None),
    "42": _NO_TABLES,
    "3F000": _NO_TABLES,
    "0A000": _NO_TABLES,
    "XX": (CorruptError, "{reason}", "restore a backup; see the server's log"),
    "53": (UnavailableError, "{where} is out of resources: {reason}", "free some and retry"),
    "": (UnavailableError, "PostgreSQL failed at {where}: {reason}", None),
}
"""What a refusal by the server means, by its SQLSTATE or by the first two characters of it; the last is for others."""


def code_of(error: BaseException) -> str:
    """The SQLSTATE of an error, empty when it carries none."""
    return str(getattr(error, "sqlstate", None) or "")


def lost(error: BaseException) -> bool:
    """True when the connection is gone (or must be given up), so that the statement on it got no answer."""
    if isinstance(error, asyncpg.PostgresError):
        return code_of(error)[:2] == "08" or code_of(error) in (_ADMIN_SHUTDOWN, _CRASH_SHUTDOWN)
    return isinstance(error, (OSError, asyncio.TimeoutError, asyncpg.InternalClientError)) or (
        isinstance(error, asyncpg.InterfaceError) and not isinstance(error, (asyncpg.DataError, ValueError))
    )


def never_sent(error: BaseException) -> bool:
    """True when the driver refused before it sent a byte: it has read the server's farewell on an idle connection, but
    not yet the end of the stream."""
    return isinstance(error, asyncpg.InternalClientError) and str(error).startswith("cannot switch to state")


def restarting(error: BaseException) -> bool:
    """True for a failure to connect that is temporary: no listener yet, starting up, too many at once."""
    if code_of(error) in (_CANNOT_CONNECT_NOW, _ADMIN_SHUTDOWN, _CRASH_SHUTDOWN, _TOO_MANY_CONNECTIONS):
        return True
    if isinstance(error, (ssl.SSLError, asyncpg.ClientConfigurationError)):
        return False
    if _NO_TLS in str(error) or _NOT_A_SETTING in str(error):
        return False
    # A server that goes down during the login, or a standby that has not been promoted yet.
    return isinstance(
        error,
        (
            OSError,
            asyncio.TimeoutError,
            asyncpg.ConnectionDoesNotExistError,
            asyncpg.PostgresConnectionError,
            asyncpg.TargetServerAttributeNotMatched,
        ),
    )


def translate(error: BaseException, where: str) -> PerdureError:
    """The public error for a failure that left nothing written."""
    reason = _reason(error)
    if isinstance(error, asyncpg.PostgresError):
        return _refused(code_of(error), reason, where)
    if isinstance(error, asyncpg.ClientConfigurationError):
        return InvalidError(f"the URL of {where} cannot be used: {reason}")
    if isinstance(error, asyncpg.DataError):
        return InvalidError(f"PostgreSQL cannot store this value: {reason}")
    if isinstance(error, asyncio.TimeoutError):
        return UnavailableError(f"{where} did not answer in time", hint="check the server and the network, then retry")
    if isinstance(error, socket.gaierror):
        return UnavailableError(f"the host of {where} is not known: {reason}", hint="check the host name in the URL")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return UnavailableError(
            f"no host of {where} is what target_session_attrs asks for", hint="check which of them is the primary"
        )
    if _NO_TLS in reason:
        return InvalidError(
            f"{where} does not speak TLS, which sslmode asks for",
            hint="turn it on in the server (ssl = on), or connect with sslmode=prefer",
        )
    if isinstance(error, ssl.SSLError):
        return UnavailableError(f"no TLS with {where}: {reason}", hint="check sslmode and the certificates")
    return UnavailableError(f"the connection to {where} failed: {reason}", hint="check that the server is running")


def _refused(code: str, reason: str, where: str) -> PerdureError:
    """For an error that the server reported, by its SQLSTATE."""
    if _NOT_A_SETTING in reason:
        return InvalidError(f"{where} cannot set up a session: {reason}", hint="behind PgBouncer use ?prepared=no")
    kind, message, hint = _MEANINGS.get(code) or _MEANINGS.get(code[:2]) or _MEANINGS[""]
    if code[:2] == "28" and _WANTS_TLS in reason:
        hint = "the server requires TLS; use sslmode=require or stricter"
    text = message.format(where=where, reason=reason)
    return CorruptError(text, where=where, hint=hint) if kind is CorruptError else kind(text, hint=hint)


def unreadable(error: Exception) -> asyncpg.InternalClientError:
    """For an answer that cannot be read, here or in the driver: treated like a lost connection."""
    return asyncpg.InternalClientError(f"the server's answer cannot be read: {repeated(repr(error))}")


@contextmanager
def readable() -> Iterator[None]:
    """Around what reads an answer: one of the wrong shape proves as little as a lost one."""
    try:
        yield
    except NONSENSE as error:
        raise unreadable(error) from error


def unknown_outcome(error: BaseException, rev: int) -> OutcomeUnknown:
    """For a commit that was sent and not answered."""
    reason = _reason(error)
    return OutcomeUnknown(f"the outcome of the commit is unknown: {reason}", rev=rev, hint="retry with its key")


def _reason(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError) and not str(error):
        return "no answer in time"
    lines = str(error).strip().splitlines()
    return repeated(lines[0]) if lines else type(error).__name__


def all_in_use(where: str, size: int, hint: str) -> UnavailableError:
    """For a caller that waited for a connection and got none."""
    return UnavailableError(f"all connections to {where} are in use ({size} at most)", hint=hint)


def unusable_pool(error: BaseException) -> UnavailableError:
    """For a caller's pool that is closed, or not open yet."""
    return UnavailableError(
        f"the pool passed to the store cannot be used: {_reason(error)}",
        hint="await asyncpg.create_pool(…), and close it after the store",
    )
