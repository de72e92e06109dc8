"""Opens connections to the server, on whichever of the listed hosts serves, with bounded patience.

While a server restarts or fails over, opening is retried until `connect_timeout` has passed. Of several hosts each gets
a share of that time, so that a silent one (a lost machine, for example) cannot use up what the others need; the host
that served last is tried first from then on.
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
"""An asyncpg connection, or the proxy for one that a caller's pool hands out."""

CACHED_STATEMENTS = 100
"""Per connection, those used last. Each is a plan in the server's memory, of half a megabyte for a large commit; an
evicted one is closed there and prepared again when it is needed."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_ROUNDS = 2
"""How often every host can be tried within `connect_timeout`, if all of them are silent."""


class Connector:
    """Opens connections to one target, or to `dsn` instead of the target's. Answers are `metered`, except on a
    connection that listens: what it receives has no end."""

    def __init__(
        self, target: Target, settings: dict[str, str], dsn: str | None = None, *, metered: bool = True
    ) -> None:
        self._target = target
        self._metered = metered
        self._hosts = list(each_host(dsn or target.dsn))
        self._options: dict[str, Any] = {
            "command_timeout": target.command_timeout,
            "statement_cache_size": CACHED_STATEMENTS if target.prepared else 0,
            "max_cached_statement_lifetime": 0,
            "max_cacheable_statement_size": 0,
            "server_settings": settings,
        }

    async def open(self, *, first: bool = False) -> Connection:
        """A new connection; retries within `connect_timeout` while a server restarts.

        An unresolvable host is a configuration error on the `first` connection; later it may be a DNS change.
        """
        target = self._target
        deadline = time.monotonic() + target.connect_timeout
        pause = _FIRST_PAUSE
        reason: BaseException | None = None
        while True:
            try:
                return await self._try_hosts(deadline)
            except DRIVER_ERRORS as error:
                if not restarting(error) or (first and isinstance(error, socket.gaierror)):
                    raise translate(error, target.display_url) from error
                # The deadline may have cut the last try short, which says less than those before it.
                reason = reason if reason is not None and isinstance(error, asyncio.TimeoutError) else error
                pause = min(pause * random.uniform(1.5, 2.5), _LONGEST_PAUSE)
                if time.monotonic() + pause >= deadline:
                    raise _not_reached(reason, target) from error
            except PerdureError:
                raise
            except (ValueError, KeyError):
                # The driver's message may quote a piece of the URL, and with it of a password.
                raise InvalidError(
                    f"the URL of {target.display_url} cannot be used", hint="check its host and options"
                ) from None
            await asyncio.sleep(pause)

    async def _try_hosts(self, deadline: float) -> Connection:
        """Try the hosts one after the other; raises the last error, preferably not of an unresolvable host."""
        share = self._target.connect_timeout / (_ROUNDS * len(self._hosts)) if len(self._hosts) > 1 else None
        errors: list[BaseException] = []
        for host in list(self._hosts):
            left = max(deadline - time.monotonic(), 0.001)
            options = {**self._options, "timeout": left if share is None else min(left, share)}
            try:
                connection = await self._log_in(host, options)
            except DRIVER_ERRORS as error:
                if not restarting(error):
                    raise
                errors.append(error)
            else:
                self._hosts.sort(key=lambda other: other != host)
                return connection
        resolved = [error for error in errors if not isinstance(error, socket.gaierror)]
        raise (resolved or errors)[-1]

    async def _log_in(self, dsn: str, options: dict[str, Any]) -> Connection:
        """Connect through the guard. If the server speaks another protocol, whatever the driver fails with becomes one
        of the driver's errors."""
        loop: Any = LoginLoop(allow_cleartext=self._target.allow_cleartext, metered=self._metered)
        try:
            return await asyncpg.connect(dsn, loop=loop, connection_class=GuardedConnection, **options)
        except Exception as error:
            if loop.refusal is not None:
                raise loop.refusal(self._target.display_url) from error
            if loop.connected and not isinstance(error, DRIVER_ERRORS):
                raise unreadable(error) from error
            raise


def _not_reached(error: BaseException, target: Target) -> UnavailableError:
    translated = translate(error, target.display_url)
    return UnavailableError(
        f"{translated.message} (tried for {target.connect_timeout:g} s)",
        hint=translated.hint or "check that the server is running",
    )
