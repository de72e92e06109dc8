"""Failures of MySQL and of the driver, translated to `perdure.errors`: asyncmy's exceptions end here.

`lost` is true if the connection broke, `undone` if the server rolled a transaction back and it may run again. What a
lost connection means for a commit is decided where the commit was sent (`unknown_outcome`).
"""

from __future__ import annotations

import socket
import ssl

from asyncmy import errors

from perdure.engines.shared.schema_record import MIGRATED
from perdure.engines.shared.server_answers import repeated
from perdure.errors import CorruptError, InvalidError, OutcomeUnknown, PerdureError, UnavailableError, UnsupportedError

DRIVER_ERRORS: tuple[type[Exception], ...] = (errors.Error, OSError, TimeoutError)
"""Everything the driver raises when a statement, the connection or the server fails."""

DEADLOCK, LOCK_WAIT, DUPLICATE = 1213, 1205, 1062
_LOST = frozenset({1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, 2014, 2055})
_LOGIN = frozenset({1045, 1698})
NOT_LISTENING, NO_SUCH_HOST, _NO_TLS = 2003, 2005, 2026
_MISSING = frozenset({1054, 1146, 1176, 1091})
_DENIED = frozenset({1142, 1143, 1227, 1370})
_READ_ONLY = frozenset({1290, 1792, 1836})
_FULL = frozenset({1021, 1030, 1037, 1041, 1114, 1206})
_TOO_LONG = frozenset({1153, 1406, 1366, 1264})
_BINLOG = 1665
NOT_ONLINE = frozenset({1845, 1846})
"""The server cannot make a change of a table in the way that was asked for."""
_UNKNOWN_NAME = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})


def code_of(error: BaseException) -> int:
    """The server's or driver's number for an error, 0 when it carries none.

    The driver has one number for whatever prevents a connection. An unknown host and failed TLS get the numbers of
    MySQL's own clients instead: they are permanent, so retrying would only hide them.
    """
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, socket.gaierror) and cause.errno in _UNKNOWN_NAME:
        return NO_SUCH_HOST
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return _NO_TLS
    first = error.args[0] if isinstance(error, errors.Error) and error.args else 0
    return first if isinstance(first, int) else 0


def lost(error: BaseException) -> bool:
    """True when the connection is gone, so that the last packet may have no answer."""
    if isinstance(error, (errors.InterfaceError, errors.InternalError)) and code_of(error) < 1000:
        return True
    return not isinstance(error, errors.Error) or code_of(error) in _LOST


def undone(error: BaseException) -> bool:
    """True when a transaction lost against others and certainly left nothing behind: it may run again."""
    return code_of(error) in (DEADLOCK, LOCK_WAIT)


def translate(error: BaseException, where: str) -> PerdureError:
    """The public error for a failure that left nothing written."""
    code, reason = code_of(error), _reason(error)
    if code in _LOGIN:
        return InvalidError(f"{where} refuses the login: {reason}", hint="check user and password in the URL")
    if code == 1044:
        hint = "create the database (CREATE DATABASE) and grant the user all privileges on it (GRANT ALL ON …)"
        return InvalidError(f"{where}: {reason}: there is no such database, or no right to use it", hint=hint)
    if code == NO_SUCH_HOST:
        return UnavailableError(f"unknown host in {where}: {reason}", hint="check the host name in the URL")
    if code == _NO_TLS:
        return _no_tls(error, reason, where)
    if code == 1049:
        return InvalidError(f"{where}: {reason}", hint="create it (CREATE DATABASE) or name another in the URL")
    if code in _DENIED:
        return UnsupportedError(f"permission denied by {where}: {reason}", hint="grant the user the missing privilege")
    if code in _READ_ONLY:
        return UnavailableError(f"{where} is read-only now: {reason}", hint="connect to the primary")
    if code in _MISSING:
        return CorruptError(f"the database does not have the expected tables: {reason}", where=where, hint=MIGRATED)
    if code in _TOO_LONG:
        return InvalidError(f"MySQL cannot store this value: {reason}")
    if code in _FULL:
        return UnavailableError(f"{where} is out of resources: {reason}", hint="free some and retry")
    if code == _BINLOG:
        return UnsupportedError(f"{where}: {reason}", hint="set binlog_format=ROW on the server")
    return _unavailable(error, reason, where)


def _no_tls(error: BaseException, reason: str, where: str) -> InvalidError:
    cause = error if isinstance(error, ssl.SSLError) else error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        hint = "ssl_ca must name the CA that signed the server's certificate, which must be valid for the URL's host"
    elif getattr(cause, "reason", None) == "WRONG_VERSION_NUMBER":
        hint = "the server offers no TLS: enable it there, or remove the ssl options from the URL"
    else:
        hint = "check the files of ssl_ca, ssl_cert and ssl_key, and the server's TLS settings"
    return InvalidError(f"TLS with {where} failed: {reason}", hint=hint)


def _unavailable(error: BaseException, reason: str, where: str) -> UnavailableError:
    if isinstance(error, TimeoutError):
        return UnavailableError(f"{where} did not answer in time", hint="check the server and the network, then retry")
    if undone(error):
        return UnavailableError(
            f"{where}: rows stayed locked by others: {reason}", hint="end the transactions that hold them, then retry"
        )
    if lost(error) or code_of(error) == NOT_LISTENING:
        return UnavailableError(f"the connection to {where} failed: {reason}", hint="check that the server is running")
    return UnavailableError(f"MySQL failed at {where}: {reason}")


def stayed_locked(error: BaseException, where: str, seconds: float) -> UnavailableError:
    """For a transaction that waited for locks, repeatedly and for `seconds` in total, and wrote nothing."""
    return UnavailableError(
        f"{where}: rows stayed locked by others for {seconds:g} s: {_reason(error)}; nothing was written",
        hint="end the transaction that holds them (information_schema.innodb_trx lists open ones), then retry",
    )


def unreadable(error: Exception) -> Exception:
    """For an answer that breaks the protocol: the connection counts as lost."""
    return errors.InternalError(0, f"the server's answer cannot be read: {repeated(repr(error))}")


def not_mysql(error: Exception, where: str) -> UnavailableError:
    """For a greeting that is not MySQL's."""
    return UnavailableError(
        f"the server at {where} does not speak the MySQL protocol: {repeated(repr(error))}",
        hint="check host and port in the URL",
    )


def not_reached(error: BaseException, where: str, seconds: float) -> UnavailableError:
    """For a server that accepted no connection in that time."""
    last = translate(error, where)
    return UnavailableError(f"{last.message} (tried for {seconds:g} s)", hint=last.hint)


def unusable_pool(error: BaseException) -> UnavailableError:
    """For a caller's pool that is closed, or belongs to another event loop."""
    return UnavailableError(
        f"the pool passed to the store cannot be used: {_reason(error)}",
        hint="await asyncmy.create_pool(…) in the event loop that opens the store, and close it after the store",
    )


def unknown_outcome(error: BaseException, rev: int) -> OutcomeUnknown:
    """For a commit that was sent and not answered."""
    return OutcomeUnknown(f"the outcome of the commit is unknown: {_reason(error)}", rev=rev, hint="retry with its key")


def _reason(error: BaseException) -> str:
    if isinstance(error, errors.Error) and len(error.args) > 1:
        return repeated(f"{error.args[1]}")
    return repeated(str(error).strip()) or type(error).__name__
