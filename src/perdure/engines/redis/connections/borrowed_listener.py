"""Wake-up hints on a connection of a caller's client: subscribes and receives, and gives the connection back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from perdure import limits
from perdure.engines.redis.connections.failures import Lost, Silent, reason_of
from perdure.engines.redis.connections.resp import command

_PING = command(b"PING")


class GiveBack(Protocol):
    """Returns a connection to the client's pool."""

    def __call__(self, connection: Any, *, sound: bool, sender: asyncio.Task[None] | None = None) -> None:
        """Return it; one that is not sound is disconnected first, after its sender was stopped."""


class BorrowedListener:
    """A connection that listens to channels, with the interface of our own `Connection`."""

    def __init__(self, connection: Any, where: str, give_back: GiveBack) -> None:
        self._connection = connection
        self._where = where
        self._give_back = give_back
        self._unsent: list[bytes] = []
        self._sender: asyncio.Task[None] | None = None

    def send(self, packed: bytes) -> None:
        """Send a request whose reply goes to `listen`."""
        self._unsent.append(packed)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while self._unsent:
            packed = b"".join(self._unsent)
            self._unsent.clear()
            await self._connection.send_packed_command(packed, check_health=False)

    async def listen(self, on_reply: Callable[[Any], None]) -> None:
        """Pass every reply to `on_reply` until the connection is lost, which raises `Lost`."""
        while True:
            if not await self._receives_within(limits.IDLE_CHECK_MS / 1000, on_reply):
                self.send(_PING)
                if not await self._receives_within(limits.SIGN_OF_LIFE_MS / 1000, on_reply):
                    raise Silent(f"{self._where}: no sign of life")

    async def _receives_within(self, seconds: float, on_reply: Callable[[Any], None]) -> bool:
        try:
            reply = await self._connection.read_response(disable_decoding=True, timeout=seconds, push_request=True)
        except Exception as error:
            raise Lost(f"{self._where}: the connection was lost ({reason_of(error)})") from error
        if type(reply) is list:
            on_reply(reply)
        return reply is not None

    def abort(self) -> None:
        """Stop, and give the connection back, disconnected: it is still subscribed."""
        self._unsent.clear()
        self._give_back(self._connection, sound=False, sender=self._sender)
