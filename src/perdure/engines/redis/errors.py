"""Translates failed requests into the errors that callers get.

Scripts write only after every check. The server tests memory, disk and role before the first write of a script and
never after it: such a refusal wrote nothing. It tests permissions and types of keys at every command, so a commit that
ends in any other error may be partly written: its outcome is unknown, as after a lost connection.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Sequence

from perdure.engines.redis.connections.failures import (
    FORBIDDEN_IN_SCRIPT,
    ErrorReply,
    Redirection,
    SpeaksPlain,
    reason_of,
)
from perdure.errors import CorruptError, InvalidError, PerdureError, UnavailableError, UnsupportedError

_TEMPORARY = {
    "OOM": ("the server is out of memory and refuses writes", "raise maxmemory or free some"),
    "READONLY": ("the server is a read-only replica", "a failover may be in progress; connect to the master"),
    "MISCONF": ("the server refuses writes because it cannot save to its disk", "check its log and its disk"),
    "NOREPLICAS": ("the server refuses writes because too few replicas are connected", "see min-replicas-to-write"),
    "LOADING": ("the server is loading its data", "try again when it is ready"),
    "MASTERDOWN": ("the replica has lost its master", "try again when it is back"),
    "CLUSTERDOWN": ("the cluster is down: some slots have no master", "try again when it is complete"),
    "TRYAGAIN": ("the keys are being moved between nodes of the cluster", "try again"),
    "BUSY": ("the server is busy with another script", "try again, or kill that script"),
}

_DATABASES = (
    "servers have databases 0 to 15 by default (setting `databases`); use prefix= to separate stores in one database"
)
_UNKNOWN_NAME = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})
# Errors of Lua and its libraries on data that Perdure never writes.
_DAMAGED = re.compile(
    r"user_script:\d+: (attempt to|bad argument|invalid (value|key)|table index|Bad data|Missing bytes|string slice)"
    r"|value is not an integer|value is not a valid float|min or max is not"
)
_BEFORE_WRITING = frozenset(
    (*_TEMPORARY, "NOAUTH", "WRONGPASS", "CROSSSLOT", "NOSCRIPT", "ASK", "MOVED")
    + ("PERDURE_CORRUPT", "PERDURE_RANGE", "PERDURE_REFUSED")
)


def came_before_writing(error: ErrorReply) -> bool:
    """Whether a script that ended in this error certainly wrote nothing."""
    if error.code == "NOPERM":
        return not any(words in str(error) for words in FORBIDDEN_IN_SCRIPT)
    return error.code in _BEFORE_WRITING or "Error compiling script" in str(error)


def refusal(error: ErrorReply, where: str) -> PerdureError:
    """The error for a reply that refuses a request; nothing was written."""
    code = error.code
    if isinstance(error, Redirection):
        return UnsupportedError(f"{where} is a node of a cluster", hint="open it as redis+cluster://")
    if code == "NOSCRIPT":
        return UnavailableError(f"{where} has forgotten a script", hint="try again")
    if code in _TEMPORARY:
        message, hint = _TEMPORARY[code]
        return UnavailableError(f"{where}: {message}", hint=hint)
    if error.is_login:
        return InvalidError(f"{where}: the server rejects this user or password", hint="redis://user:password@host")
    if code == "NOPERM":
        return UnsupportedError(f"{where}: the user may not do this: {error}", hint="see the permissions in the docs")
    if code == "WRONGTYPE":
        return CorruptError("a key holds a value of another type than Perdure stores", where=where)
    if code == "PERDURE_CORRUPT":
        return CorruptError(str(error).partition("PERDURE_CORRUPT ")[2], where=where, hint="run perdure doctor")
    if code == "PERDURE_RANGE":
        return InvalidError(str(error).partition("PERDURE_RANGE ")[2].partition(" script: ")[0])
    if _DAMAGED.search(str(error)):
        return CorruptError(f"a script failed on damaged data: {error}", where=where, hint="run perdure doctor")
    if "DB index is out of range" in str(error):
        return InvalidError(f"{where}: the server has no database with this number", hint=_DATABASES)
    return UnsupportedError(f"{where}: the server refused: {error}")


def being_moved(where: str) -> UnavailableError:
    """The keys of the scope are being moved between nodes of a cluster; nothing ran."""
    return UnavailableError(
        f"{where}: the scope is being moved between nodes of the cluster; nothing was written",
        hint="try again when the move has finished",
    )


def unreachable(error: BaseException, where: str, reason: str | None = None) -> UnavailableError:
    """No connection could be made; nothing was sent."""
    if reason is None and isinstance(error, TimeoutError):
        reason = "no answer within connect_timeout"
    if reason is None and any(map(_is_not_tls, _causes(error))):
        reason = reason_of(SpeaksPlain())
    reason = reason or _without_prefix(reason_of(error), where)
    return UnavailableError(f"{where} cannot be reached: {reason}", hint=_advice(error, where.startswith("rediss")))


def all_busy(where: str, connections: int, seconds: float) -> UnavailableError:
    """No connection became free in time; nothing was sent."""
    return UnavailableError(
        f"all {connections} connections to {where} stayed busy for {seconds:g} s",
        hint="raise connections= in the URL, or run fewer calls at once",
    )


def client_busy(where: str, connections: int, seconds: float) -> UnavailableError:
    """No connection of a caller's client became free in time; nothing was sent."""
    return UnavailableError(
        f"all {connections} connections of the client for {where} stayed in use for {seconds:g} s",
        hint="raise the client's max_connections, or hold connections for a shorter time",
    )


def unreachable_client(error: BaseException, where: str, reason: str, reply: ErrorReply | None) -> PerdureError:
    """A caller's client could not connect; nothing was sent."""
    if reply is not None and reply.is_login:
        return InvalidError(f"{where}: the server rejects the client's user or password", hint="see the client's login")
    if isinstance(error, TimeoutError):
        reason = "no connection within connect_timeout"
    return UnavailableError(
        f"{where} cannot be reached through the client: {reason}",
        hint="is the server running? Check the client's host, port and TLS settings",
    )


def foreign_client(error: BaseException) -> InvalidError:
    """For a client whose connections belong to another event loop."""
    return InvalidError(
        f"the client passed as pool belongs to another event loop: {reason_of(error)}",
        hint="create the client in the event loop that opens the store",
    )


def _advice(error: BaseException, tls: bool) -> str:
    reasons = [error, *_causes(error)]
    if any(isinstance(reason, socket.gaierror) and reason.errno in _UNKNOWN_NAME for reason in reasons):
        return "check the host name in the URL"
    if any(isinstance(reason, ssl.SSLCertVerificationError) for reason in reasons):
        return (
            "ssl_ca_certs must name the authority that signed the server's certificate, "
            "and the host in the URL must be the one in it"
        )
    if any(isinstance(reason, SpeaksPlain) or _is_not_tls(reason) for reason in reasons):
        return "use the port that speaks TLS, or redis:// to connect without TLS"
    if any(isinstance(reason, ConnectionRefusedError) for reason in reasons):
        return "is the server running?"
    if tls:
        return "is the server running, and does it speak TLS on this port? Without TLS use redis://"
    return "is the server running? If it speaks TLS, use rediss://"


def _is_not_tls(reason: BaseException) -> bool:
    """Whether OpenSSL reports an answer that is not TLS."""
    return isinstance(reason, ssl.SSLError) and reason.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def _without_prefix(text: str, where: str) -> str:
    return text.removeprefix(where).removeprefix(":").strip()


def _causes(error: BaseException) -> list[BaseException]:
    """The errors that an error was raised from."""
    causes: list[BaseException] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes


def no_cluster(errors: Sequence[Exception], where: str) -> PerdureError:
    """No node returned the map of slots."""
    if all("cluster support disabled" in str(error) for error in errors):
        return InvalidError(f"{where} is a single server, not a cluster", hint=_as_one_server(where))
    reasons = [
        _without_prefix(error.message if isinstance(error, PerdureError) else reason_of(error), where)
        for error in errors
    ]
    hints = [error.hint for error in errors if isinstance(error, PerdureError) and error.hint]
    return UnavailableError(
        f"{where}: {'; '.join(dict.fromkeys(reasons))}", hint=hints[-1] if hints else "are the nodes running?"
    )


def no_master(answers: Sequence[tuple[str, Exception | None]], where: str, master: str) -> PerdureError:
    """No sentinel names the master: each one failed, or (None) does not know it."""
    failed = [error for _, error in answers if error is not None]
    if len(failed) == len(answers) and all("unknown command" in str(error).lower() for error in failed):
        return InvalidError(f"{where} is a server, not a sentinel", hint=_as_one_server(where))
    message = "; ".join(
        f"{address} does not know the master {master!r}" if error is None else f"{address}: {reason_of(error)}"
        for address, error in answers
    )
    if not failed:
        return UnavailableError(f"{where}: {message}", hint="check the name of the master in the URL")
    return unreachable(failed[-1], where, message)


def _as_one_server(where: str) -> str:
    return f"use {'rediss' if where.startswith('rediss') else 'redis'}://host:port/0"
