"""From what the driver and the server say to what callers are told. Nothing else here raises a driver's error.

Scripts write only after every check, and the server tests memory, disk and role before the first write of a script and
not between: those refusals wrote nothing. Permissions and types of keys it tests at every command, so a commit that
ends in any other error may be there in part. That leaves the outcome as open as a connection that was lost between a
request and its answer.
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

_WAIT = {
    "OOM": ("the server is out of memory and refuses writes", "raise maxmemory or free some"),
    "READONLY": ("the server is a read-only replica", "a failover may be under way; connect to the master"),
    "MISCONF": ("the server refuses writes because it cannot save to its disk", "look at its log and its disk"),
    "NOREPLICAS": ("the server refuses writes because too few replicas are connected", "see min-replicas-to-write"),
    "LOADING": ("the server is loading its data", "try again when it is ready"),
    "MASTERDOWN": ("the replica has lost its master", "try again when it is back"),
    "CLUSTERDOWN": ("the cluster is down: some slots have no master", "try again when it is complete"),
    "TRYAGAIN": ("the keys are being moved between nodes of the cluster", "try again"),
    "BUSY": ("the server is busy with a script of somebody", "try again, or end that script"),
}

_DATABASES = (
    "servers have 0 to 15 unless their setting `databases` says otherwise; prefix= keeps stores apart in one database"
)
_UNKNOWN_NAME = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})
# What Lua and its library say when a script meets data that Perdure never writes.
_STUMBLED = re.compile(
    r"user_script:\d+: (attempt to|bad argument|invalid (value|key)|table index|Bad data|Missing bytes|string slice)"
    r"|value is not an integer|value is not a valid float|min or max is not"
)
_BEFORE_WRITING = frozenset(
    (*_WAIT, "NOAUTH", "WRONGPASS", "CROSSSLOT", "NOSCRIPT", "ASK", "MOVED")
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
        return UnavailableError(f"{where} does not know a script that it was given", hint="try again")
    if code in _WAIT:
        told, hint = _WAIT[code]
        return UnavailableError(f"{where}: {told}", hint=hint)
    if error.is_login:
        return InvalidError(f"{where}: the server refuses this user or password", hint="redis://user:password@host")
    if code == "NOPERM":
        return UnsupportedError(f"{where}: the user may not do this: {error}", hint="see the permissions in the docs")
    if code == "WRONGTYPE":
        return CorruptError("a key holds something else than Perdure keeps there", where=where)
    if code == "PERDURE_CORRUPT":
        return CorruptError(str(error).partition("PERDURE_CORRUPT ")[2], where=where, hint="run perdure doctor")
    if code == "PERDURE_RANGE":
        return InvalidError(str(error).partition("PERDURE_RANGE ")[2])
    if _STUMBLED.search(str(error)):
        return CorruptError(f"a script met data that is damaged: {error}", where=where, hint="run perdure doctor")
    if "DB index is out of range" in str(error):
        return InvalidError(f"{where}: the server has no database of this number", hint=_DATABASES)
    return UnsupportedError(f"{where}: the server refused: {error}")


def being_moved(where: str) -> UnavailableError:
    """A scope whose keys are on their way from one node of a cluster to another; nothing ran."""
    return UnavailableError(
        f"{where}: the scope is being moved between nodes of the cluster; nothing was written",
        hint="try again when the move has finished",
    )


def unreachable(error: BaseException, where: str, told: str | None = None) -> UnavailableError:
    """No connection could be made; nothing was sent."""
    if told is None and isinstance(error, TimeoutError):
        told = "no answer within connect_timeout"
    if told is None and any(map(_is_no_tls, _behind(error))):
        told = reason_of(SpeaksPlain())
    why = told or _without_place(reason_of(error), where)
    return UnavailableError(f"{where} cannot be reached: {why}", hint=_what_to_check(error, where.startswith("rediss")))


def all_busy(where: str, connections: int, seconds: float) -> UnavailableError:
    """Nobody gave a connection back in time; nothing was sent."""
    return UnavailableError(
        f"all {connections} connections to {where} stayed busy for {seconds:g} s",
        hint="raise connections= in the URL, or do less at once",
    )


def _what_to_check(error: BaseException, tls: bool) -> str:
    reasons = [error, *_behind(error)]
    if any(isinstance(reason, socket.gaierror) and reason.errno in _UNKNOWN_NAME for reason in reasons):
        return "check the host name in the URL"
    if any(isinstance(reason, ssl.SSLCertVerificationError) for reason in reasons):
        return (
            "ssl_ca_certs must name the authority that signed the server's certificate, "
            "and the URL the host as it is in it"
        )
    if any(isinstance(reason, SpeaksPlain) or _is_no_tls(reason) for reason in reasons):
        return "name the port that speaks TLS, or begin the URL with redis to go without"
    if any(isinstance(reason, ConnectionRefusedError) for reason in reasons):
        return "is the server running?"
    if tls:
        return "is the server running, and does it speak TLS on this port? Without it the URL begins with redis"
    return "is the server running? If it speaks TLS, the URL begins with rediss"


def _is_no_tls(reason: BaseException) -> bool:
    """What OpenSSL says of an answer that is not TLS."""
    return isinstance(reason, ssl.SSLError) and reason.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def _without_place(text: str, where: str) -> str:
    return text.removeprefix(where).removeprefix(":").strip()


def _behind(error: BaseException) -> list[BaseException]:
    """What an error was raised from: the driver hides the reasons of the system behind its own."""
    found: list[BaseException] = []
    reason = error.__cause__ or error.__context__
    while reason is not None and reason not in found:
        found.append(reason)
        reason = reason.__cause__ or reason.__context__
    return found


def no_cluster(failed: Sequence[Exception], where: str) -> PerdureError:
    """No node tells which slots are where."""
    if all("cluster support disabled" in str(error) for error in failed):
        return InvalidError(f"{where} is a server by itself, not a cluster", hint=_as_one_server(where))
    reasons = [
        _without_place(error.message if isinstance(error, PerdureError) else reason_of(error), where)
        for error in failed
    ]
    hints = [error.hint for error in failed if isinstance(error, PerdureError) and error.hint]
    return UnavailableError(
        f"{where}: {'; '.join(dict.fromkeys(reasons))}", hint=hints[-1] if hints else "are the nodes running?"
    )


def no_master(answers: Sequence[tuple[str, Exception | None]], where: str, master: str) -> PerdureError:
    """No sentinel names the master: each of these failed, or (None) does not know it."""
    failed = [error for _, error in answers if error is not None]
    if len(failed) == len(answers) and all("unknown command" in str(error).lower() for error in failed):
        return InvalidError(f"{where}: this is a server and not a sentinel", hint=_as_one_server(where))
    told = "; ".join(
        f"{address} knows no master {master!r}" if error is None else f"{address}: {reason_of(error)}"
        for address, error in answers
    )
    if not failed:
        return UnavailableError(f"{where}: {told}", hint="check the name of the master in the URL")
    return unreachable(failed[-1], where, told)


def _as_one_server(where: str) -> str:
    return f"use {'rediss' if where.startswith('rediss') else 'redis'}://host:port/0"
