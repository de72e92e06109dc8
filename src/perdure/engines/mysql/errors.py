"""MySQL's and the driver's failures in the words of `perdure.errors`: asyncmy's exceptions end here.

`lost` tells whether the connection broke, `undone` whether the server rolled a transaction back and asks to run it
again. What a lost connection means for a commit is for the transaction to say (`unknown_outcome`).
"""

from __future__ import annotations

import socket
import ssl

from asyncmy import errors

from perdure.engines.shared.server_answers import repeated
from perdure.errors import CorruptError, InvalidError, OutcomeUnknown, PerdureError, UnavailableError, UnsupportedError

DRIVER_ERRORS: tuple[type[Exception], ...] = (errors.Error, OSError, TimeoutError)
"""Everything the driver raises when the work, the connection or the server fails."""

DEADLOCK, LOCK_WAIT, DUPLICATE = 1213, 1205, 1062
_LOST = frozenset({1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, 2014, 2055})
_LOGIN = frozenset({1045, 1698})
NOBODY_THERE, NO_SUCH_HOST, _NO_TLS = 2003, 2005, 2026
_MISSING = frozenset({1054, 1146, 1176, 1091})
_DENIED = frozenset({1142, 1143, 1227, 1370})
_READ_ONLY = frozenset({1290, 1792, 1836})
_FULL = frozenset({1021, 1030, 1037, 1041, 1114, 1206})
_TOO_LONG = frozenset({1153, 1406, 1366, 1264})
_BINLOG = 1665
_UNKNOWN_NAME = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})


def code_of(error: BaseException) -> int:
    """The server's or driver's number for an error, 0 when it carries none.

    The driver has one number for whatever prevents a connection. An unknown name and TLS that fails get the numbers of
    MySQL's own clients: they last, so trying again would only hide them.
    """
    reason = error if isinstance(error, OSError) else error.__cause__
    if isinstance(reason, socket.gaierror) and reason.errno in _UNKNOWN_NAME:
        return NO_SUCH_HOST
    if isinstance(reason, ssl.SSLError) and not isinstance(reason, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return _NO_TLS
    first = error.args[0] if isinstance(error, errors.Error) and error.args else 0
    return first if isinstance(first, int) else 0


def lost(error: BaseException) -> bool:
    """True when the connection is gone, so that what was asked on it may have got no answer."""
    if isinstance(error, (errors.InterfaceError, errors.InternalError)) and code_of(error) < 1000:
        return True
    return not isinstance(error, errors.Error) or code_of(error) in _LOST


def undone(error: BaseException) -> bool:
    """True when a transaction lost against others and certainly left nothing: it may simply be run again."""
    return code_of(error) in (DEADLOCK, LOCK_WAIT)


def translate(error: BaseException, where: str) -> PerdureError:
    """The public error for a failure that left nothing written."""
    code, said = code_of(error), _said(error)
    if code in _LOGIN:
        return InvalidError(f"{where} refuses the login: {said}", hint="check user and password in the URL")
    if code == 1044:
        hint = "create the database (CREATE DATABASE) and grant the user all rights in it (GRANT ALL ON …)"
        return InvalidError(f"{where}: {said}: there is no such database, or no right to use it", hint=hint)
    if code == NO_SUCH_HOST:
        return UnavailableError(f"the host of {where} is not known: {said}", hint="check the host name in the URL")
    if code == _NO_TLS:
        return _no_tls(error, said, where)
    if code == 1049:
        return InvalidError(f"{where}: {said}", hint="create it (CREATE DATABASE) or name another in the URL")
    if code in _DENIED:
        return UnsupportedError(f"{where} does not allow it: {said}", hint="grant the user the missing right")
    if code in _READ_ONLY:
        return UnavailableError(f"{where} is read-only now: {said}", hint="connect to the primary")
    if code in _MISSING:
        return CorruptError(f"the database does not have the expected tables: {said}", where=where)
    if code in _TOO_LONG:
        return InvalidError(f"MySQL cannot store this value: {said}")
    if code in _FULL:
        return UnavailableError(f"{where} is out of resources: {said}", hint="free some and retry")
    if code == _BINLOG:
        return UnsupportedError(f"{where}: {said}", hint="set binlog_format=ROW on the server")
    return _unavailable(error, said, where)


def _no_tls(error: BaseException, said: str, where: str) -> InvalidError:
    reason = error if isinstance(error, ssl.SSLError) else error.__cause__
    if isinstance(reason, ssl.SSLCertVerificationError):
        hint = (
            "ssl_ca must name the authority that signed the server's certificate, and the URL the host as it is in it"
        )
    elif getattr(reason, "reason", None) == "WRONG_VERSION_NUMBER":
        hint = "the server offers no TLS: turn it on there, or take the ssl options out of the URL"
    else:
        hint = "check the files of ssl_ca, ssl_cert and ssl_key, and the TLS settings of the server"
    return InvalidError(f"TLS with {where} failed: {said}", hint=hint)


def _unavailable(error: BaseException, said: str, where: str) -> UnavailableError:
    if isinstance(error, TimeoutError):
        return UnavailableError(f"{where} did not answer in time", hint="check the server and the network, then retry")
    if undone(error):
        return UnavailableError(f"{where}: rows stayed locked by others: {said}", hint="end what holds them and retry")
    if lost(error) or code_of(error) == NOBODY_THERE:
        return UnavailableError(f"the connection to {where} failed: {said}", hint="check that the server is running")
    return UnavailableError(f"MySQL failed at {where}: {said}")


def stayed_locked(error: BaseException, where: str, seconds: float) -> UnavailableError:
    """For a transaction that waited for locks, again and again for that long, and wrote nothing."""
    return UnavailableError(
        f"{where}: rows stayed locked by others for {seconds:g} s: {_said(error)}; nothing was written",
        hint="end the transaction that holds them (SHOW PROCESSLIST names it), then retry",
    )


def unreadable(error: Exception) -> Exception:
    """For an answer that cannot be read: as good as a lost connection."""
    return errors.InternalError(0, f"the server's answer cannot be read: {repeated(repr(error))}")


def no_mysql(error: Exception, where: str) -> UnavailableError:
    """For a greeting that cannot be read."""
    return UnavailableError(
        f"what answers at {where} does not speak MySQL's protocol: {repeated(repr(error))}",
        hint="check host and port in the URL",
    )


def not_reached(error: BaseException, where: str, seconds: float) -> UnavailableError:
    """For a server to which no connection could be made in that time."""
    told = translate(error, where)
    return UnavailableError(f"{told.message} (tried for {seconds:g} s)", hint=told.hint)


def unknown_outcome(error: BaseException, rev: int) -> OutcomeUnknown:
    """For a commit that was sent and not answered."""
    return OutcomeUnknown(f"the outcome of the commit is unknown: {_said(error)}", rev=rev, hint="retry with its key")


def _said(error: BaseException) -> str:
    if isinstance(error, errors.Error) and len(error.args) > 1:
        return repeated(f"{error.args[1]}")
    return repeated(str(error).strip()) or type(error).__name__
