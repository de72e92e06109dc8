"""Routes a request to its server: the only one, the master that sentinels name, or the owner of a slot in a cluster.

A request for a slot that has moved goes to the new owner, because a redirected request did not run. A slot that is
*being* moved is different: its keys are on two nodes, and a script needs them together. The owner replies ASK before
anything runs, because the key that every script declares never exists; callers are asked to retry. If a node cannot be
reached, the map of slots is read again, once: after a failover another node owns them.

Only a cluster redirects: a redirection by a single server is refused. The nodes of a cluster name each other, and
sentinels name the master, so an attacker who answers in place of one chooses where the password goes next; verified TLS
prevents that. The names must at least be a host and a port.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.connect import connect
from perdure.engines.redis.connections.connection import Connection
from perdure.engines.redis.connections.failures import ErrorReply, Lost, Redirection, Stopped, reason_of
from perdure.engines.redis.connections.pool import Pool
from perdure.engines.redis.connections.resp import LARGEST, SMALL, Element, command
from perdure.engines.redis.connections.scripts import Script
from perdure.engines.redis.errors import being_moved, came_before_writing, no_cluster, refusal
from perdure.engines.redis.target import Address, Target
from perdure.engines.shared.events import EngineLog
from perdure.errors import PerdureError, UnavailableError

if TYPE_CHECKING:
    from perdure.engines.redis.connections.borrowed_client import BorrowedClient
    from perdure.engines.redis.connections.borrowed_listener import BorrowedListener

_HOPS = 6
_SLOTS = 16_384
T = TypeVar("T")
Shape = Callable[[Any], T]
"""A function of `reply_shapes`: returns the reply, or raises `Misfit`."""


def key_slot(key: bytes) -> int:
    """The slot of a key in a cluster: CRC-16/XMODEM of its hash tag (the first {…} that is not empty), or of all."""
    begin = key.find(b"{") + 1
    end = key.find(b"}", begin)
    return crc_hqx(key[begin:end] if begin and end > begin else key, 0) % _SLOTS


class Network:
    """Everything that is asked of the servers goes through here; answers that refuse become our errors."""

    def __init__(self, target: Target, borrowed: BorrowedClient | None = None) -> None:
        self.target = target
        self.log = EngineLog("redis", target.display_url)
        self.borrowed = borrowed
        """The caller's client, if connections are not our own; then there is one server."""
        self._pools: dict[Address, Pool] = {} if borrowed is None else {target.addresses[0]: borrowed}
        self._slots: dict[int, Address] = {}
        self._known_scripts: set[bytes] = set()

    async def request(self, key: bytes, *arguments: bytes, shape: Shape[T], room: int = SMALL) -> T:
        """Run a command on the server of a key."""
        return await self._answer(self._routed(key, command(*arguments), room), shape, arguments[0])

    async def at(self, address: Address, *arguments: bytes, shape: Shape[T]) -> T:
        """Run a command on the server at an address."""
        return await self._answer(self._pool(address).request(command(*arguments)), shape, arguments[0])

    async def _answer(self, request: Awaitable[Any], shape: Shape[T], name: bytes) -> T:
        try:
            return self._shaped(await request, shape, name)
        except ErrorReply as error:
            raise self._refused(error) from error

    def _shaped(self, reply: Any, shape: Shape[T], name: bytes) -> T:
        try:
            return shape(reply)
        except reply_shapes.Misfit as misfit:
            raise Lost(f"{self.target.display_url}: the reply to {name.decode()} {misfit}") from None

    async def script(self, script: Script, base: bytes, *arguments: bytes, shape: Shape[T]) -> T:
        """Run a script on the server of a scope: by its hash, or with its text if the server does not know the hash.
        A server that does not know a script has not run it."""
        try:
            reply = await self._run(script, base, arguments)
        except ErrorReply as error:
            if script.commits and not came_before_writing(error):
                raise Stopped(
                    f"{self.target.display_url}: the server stopped the commit ({reason_of(error)})"
                ) from error
            raise self._refused(error) from error
        return self._shaped(reply, shape, b"EVAL")

    async def script_and(
        self, script: Script, base: bytes, *arguments: bytes, packed: bytes, then: Element
    ) -> list[Any] | None:
        """Run a script that only reads and a `packed` command, sent together: both replies, the second an array with
        values made by `then`. None if the caller should run the script alone, because this is not possible or because
        the server refused one of them."""
        if self.borrowed is not None or script.sha not in self._known_scripts:
            return None
        both = command(b"EVALSHA", script.sha, b"1", base, *arguments) + packed
        try:
            replies: list[Any] = await self._routed(base, both, LARGEST, then)
        except ErrorReply:
            return None
        return replies

    async def _run(self, script: Script, base: bytes, arguments: tuple[bytes, ...]) -> Any:
        if script.sha in self._known_scripts:
            try:
                return await self._routed(base, command(b"EVALSHA", script.sha, b"1", base, *arguments), LARGEST)
            except ErrorReply as error:
                if error.code != "NOSCRIPT":
                    raise
                self._known_scripts.discard(script.sha)
        reply = await self._routed(base, command(b"EVAL", script.text, b"1", base, *arguments), LARGEST)
        self._known_scripts.add(script.sha)
        return reply

    def _refused(self, error: ErrorReply) -> PerdureError:
        if error.code in ("READONLY", "MASTERDOWN"):
            # This server is no longer the master, so no connection to it is of use.
            for pool in self._pools.values():
                pool.drop_idle()
            self._slots.clear()
            self.log.demoted()
        return refusal(error, self.target.display_url)

    async def _routed(self, key: bytes, packed: bytes, room: int, then: Element | None = None) -> Any:
        if self.target.kind != "cluster":
            return await self._pool(self.target.addresses[0]).request(packed, room, then)
        slot = key_slot(key)
        for hop in range(_HOPS):
            address = await self._owner(slot)
            try:
                return await self._pool(address).request(packed, room, then)
            except Redirection as redirection:
                if redirection.code == "ASK":
                    raise being_moved(self.target.display_url) from redirection
                self._slots[slot] = self._redirected(redirection, address)
            except Lost:
                self._slots.clear()
                raise
            except UnavailableError:
                if hop:
                    raise
                self._slots.clear()
        raise being_moved(self.target.display_url)

    def _redirected(self, redirection: Redirection, address: Address) -> Address:
        """The address to which a node redirects a request that it did not run."""
        try:
            return reply_shapes.named_address(redirection.host or address[0], redirection.port)
        except reply_shapes.Misfit as misfit:
            raise UnavailableError(
                f"{self.target.display_url}: a redirection {misfit}; nothing was written",
                hint="is this node of the cluster?",
            ) from None

    def _pool(self, address: Address) -> Pool:
        pool = self._pools.get(address)
        if pool is None:
            if len(self._pools) >= reply_shapes.MOST_NODES:
                self._close_unused()
            pool = self._pools[address] = Pool(self.target, address, self.log)
        return pool

    def _close_unused(self) -> None:
        """Close the connections to nodes without slots: redirections could name new nodes without end."""
        for address in self._pools.keys() - set(self._slots.values()):
            self._pools.pop(address).close()

    async def _owner(self, slot: int) -> Address:
        if slot not in self._slots:
            await self._read_slots()
        if slot not in self._slots:
            raise UnavailableError(
                f"{self.target.display_url}: no node serves slot {slot}", hint="is the cluster complete?"
            )
        return self._slots[slot]

    async def _read_slots(self) -> None:
        errors: list[Exception] = []
        for address in dict.fromkeys((*self._pools, *self.target.addresses)):
            try:
                reply = await self._pool(address).request(command(b"CLUSTER", b"SLOTS"))
                self._slots.update(self._shaped(reply, partial(reply_shapes.slots, source=address), b"CLUSTER SLOTS"))
                return
            except (UnavailableError, Lost, ErrorReply) as error:
                errors.append(error)
        raise no_cluster(errors, self.target.display_url)

    async def servers(self) -> list[Address]:
        """The servers that hold data: one, or the masters of the cluster."""
        if self.target.kind != "cluster":
            return [self.target.addresses[0]]
        if not self._slots:
            await self._read_slots()
        if not self._slots:
            raise UnavailableError(
                f"{self.target.display_url}: no node serves any slot", hint="is the cluster complete?"
            )
        return list(dict.fromkeys(self._slots.values()))

    async def at_or_none(self, address: Address, *arguments: bytes, shape: Shape[T]) -> T | None:
        """The same as `at`; None if the server does not allow it."""
        try:
            return self._shaped(await self._pool(address).request(command(*arguments)), shape, arguments[0])
        except ErrorReply as error:
            # A rejected login or a server that is not ready does not answer this question.
            if error.is_login or error.code in ("LOADING", "MASTERDOWN", "CLUSTERDOWN"):
                raise self._refused(error) from error
            return None

    async def listener(self) -> Connection | BorrowedListener:
        """A connection for wake-up hints. Any node does: every node of a cluster receives every hint."""
        if self.borrowed is not None:
            return await self.borrowed.listener()
        return await connect(self.target, (await self.servers())[0])

    async def close(self) -> None:
        """Close every connection; those of a caller's client go back to it."""
        for pool in self._pools.values():
            pool.close()
        if self.borrowed is not None:
            await self.borrowed.drain()
