"""What engines log: lost and new connections, retries, migrations, watchers that poll; the same words on every engine.

The logger is `perdure.<engine>`. A message names the server as errors do, without the password, and an error by its
class and number alone: drivers and servers choose the text of theirs, and may repeat data or secrets in it. A state
that lasts is logged when it begins and when it ends, not at every attempt in between.
"""

from __future__ import annotations

import logging
import time

from perdure import limits
from perdure.engines.shared.server_answers import repeated


class EngineLog:
    """The log of one engine. `where` names its file or server."""

    def __init__(self, engine: str, where: str) -> None:
        self._logger = logging.getLogger(f"perdure.{engine}")
        self._where = where if where.isascii() and where.isprintable() else repeated(where)
        self._broken = False
        self._deaf = False
        self._demoted_until = 0.0

    def lost(self, error: BaseException | None = None) -> None:
        """A connection broke, or was closed by the server."""
        self._broken = True
        self._logger.warning("%s: a connection was lost (%s)", self._where, _named(error))

    def connected(self) -> None:
        """A connection was opened; logged if one was lost before."""
        if self._broken:
            self._broken = False
            self._logger.info("%s: connected again", self._where)

    def demoted(self) -> None:
        """The server takes no writes any more; logged once a minute, because every write finds out."""
        now = time.monotonic()
        if now >= self._demoted_until:
            self._demoted_until = now + limits.LOG_AGAIN_MS / 1000
            self._logger.warning("%s: the server takes no writes now; its connections are dropped", self._where)

    def retried(self, reason: str, attempt: int) -> None:
        """A transaction left nothing behind and runs again."""
        self._logger.debug("%s: a transaction runs again (%s, attempt %d)", self._where, reason, attempt)

    def waits(self) -> None:
        """Another process holds the lock of the file."""
        self._logger.debug("%s: waiting for the lock of another process", self._where)

    def migrated(self, before: int | None, after: int) -> None:
        """The schema was created, or brought up to date."""
        if before is None:
            self._logger.info("%s: created the schema, version %d", self._where, after)
        else:
            self._logger.info("%s: brought the schema from version %d to version %d", self._where, before, after)

    def polls(self) -> None:
        """Watchers poll, because hints cannot be received this way."""
        self._logger.info("%s: hints of other processes cannot be received, so watchers poll", self._where)

    def stopped_listening(self, error: BaseException) -> None:
        """The connection that receives hints broke or cannot be made; logged once until `listening`."""
        if not self._deaf:
            self._deaf = True
            self._logger.warning("%s: not listening for hints (%s), so watchers poll", self._where, _named(error))

    def listening(self) -> None:
        """Hints are received; logged if they were not before."""
        if self._deaf:
            self._deaf = False
            self._logger.info("%s: listening for hints again", self._where)


def _named(error: BaseException | None) -> str:
    if error is None:
        return "closed by the server"
    number = error.args[0] if error.args and type(error.args[0]) is int else None
    return type(error).__name__ if number is None else f"{type(error).__name__} {number}"
