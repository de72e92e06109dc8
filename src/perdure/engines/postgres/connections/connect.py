"""The way to the server: how a connection is opened, on whichever of the named hosts serves, with bounded patience.

While a server restarts or fails over, opening is tried again until `connect_timeout` has passed. Of several hosts each
is given a share of that time, so that one which keeps silent (a lost machine does) cannot use up what the others need;
the one that served last is asked first from then on.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from typing import Any

import asyncpg

from perdure.engines.postgres.connections.login import GuardedConnection, LoginLoop
from perdure.engines.postgres.errors import DRIVER_ERRORS, restarting, translate, unreadable
from perdure.engines.postgres.target import Target, each_host
from perdure.errors import InvalidError, PerdureError, UnavailableError

Connection = Any
"""An asyncpg connection, or what a caller's pool hands out in its place."""

STATEMENTS_KEPT = 100
"""Per connection, those used last. Each is a plan in the server's memory, of half a megabyte for a large commit; what
falls out is closed there and prepared again when it is needed."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_ROUNDS = 2
"""How often every host can be asked within `connect_timeout`, if all of them keep silent."""


class Way:
    """How connections to one target are opened; `dsn` if not by the target's own. Answers are
    `metered`, but not what a connection that listens hears: that has no end."""

    def __init__(
        self, target: Target, settings: dict[str, str], dsn: str | None = None, *, metered: bool = True
    ) -> None:
        self._target = target
        self._metered = metered
        self._hosts = list(each_host(dsn or target.dsn))
        self._options: dict[str, Any] = {
            "command_timeout": target.command_timeout,
            "statement_cache_size": STATEMENTS_KEPT if target.prepared else 0,
            "max_cached_statement_lifetime": 0,
            "max_cacheable_statement_size": 0,
            "server_settings": settings,
        }

    async def open(self, *, first: bool = False) -> Connection:
        """A new connection; patient, within `connect_timeout`, while a server is on its way back.

        A host name that nobody knows is a mistake when it is asked for `first`; later it may be one that is moving.
        """
        target = self._target
        deadline = time.monotonic() + target.connect_timeout
        pause = _FIRST_PAUSE
        why: BaseException | None = None
        while True:
            try:
                return await self._ask_hosts(deadline)
            except DRIVER_ERRORS as error:
                if not restarting(error) or (first and isinstance(error, socket.gaierror)):
                    raise translate(error, target.shown) from error
                # The last try may have been cut short by the deadline, which says less than those before it.
                why = why if why is not None and isinstance(error, asyncio.TimeoutError) else error
                pause = min(pause * random.uniform(1.5, 2.5), _LONGEST_PAUSE)
                if time.monotonic() + pause >= deadline:
                    raise _not_reached(why, target) from error
            except PerdureError:
                raise
            except (ValueError, KeyError):
                # What the driver says may quote a piece of the URL, and with it of a password.
                raise InvalidError(
                    f"the URL of {target.shown} cannot be used", hint="check its host and options"
                ) from None
            await asyncio.sleep(pause)

    async def _ask_hosts(self, deadline: float) -> Connection:
        """One after the other; raises what the last one said, or the one before if the last is not even known."""
        share = self._target.connect_timeout / (_ROUNDS * len(self._hosts)) if len(self._hosts) > 1 else None
        said: list[BaseException] = []
        for host in list(self._hosts):
            left = max(deadline - time.monotonic(), 0.001)
            options = {**self._options, "timeout": left if share is None else min(left, share)}
            try:
                connection = await self._log_in(host, options)
            except DRIVER_ERRORS as error:
                if not restarting(error):
                    raise
                said.append(error)
            else:
                self._hosts.sort(key=lambda other: other != host)
                return connection
        raise max(said, key=lambda error: (not isinstance(error, socket.gaierror), said.index(error)))

    async def _log_in(self, dsn: str, options: dict[str, Any]) -> Connection:
        """Connect under guard. Whatever a server that speaks another protocol makes the driver trip over is one of the
        driver's own errors."""
        loop = LoginLoop(allow_cleartext=self._target.allow_cleartext, metered=self._metered)
        given: Any = loop
        try:
            return await asyncpg.connect(dsn, loop=given, connection_class=GuardedConnection, **options)
        except Exception as error:
            if loop.refusal is not None:
                raise loop.refusal(self._target.shown) from error
            if loop.connected and not isinstance(error, DRIVER_ERRORS):
                raise unreadable(error) from error
            raise


def _not_reached(error: BaseException, target: Target) -> UnavailableError:
    said = translate(error, target.shown)
    return UnavailableError(
        f"{said.message} (tried for {target.connect_timeout:g} s)", hint=said.hint or "check that the server is running"
    )
