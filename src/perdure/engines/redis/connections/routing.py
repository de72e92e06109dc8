"""Which server a request goes to: the only one, the master that sentinels name, or the owner of a slot in a cluster.

A slot that has moved is followed to its new owner, because a redirected request did not run. One that is *being* moved
is not: its keys are partly here and partly there, and a script needs them together. The owner says so (ASK) before
anything runs, because the key that every script declares never exists; callers are told to come back. A node that
cannot be reached makes the map of slots be read again, once: after a failover another node owns them.

Only a cluster redirects: a single server that does is refused. The nodes of a cluster name each other, and sentinels
the master, so whoever can answer in the place of one chooses where the password goes next; verified TLS is what keeps
strangers from answering. What they name must at least be a host and a port.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from perdure.engines.redis.connections import answers
from perdure.engines.redis.connections.connect import ask_sentinels
from perdure.engines.redis.connections.failures import (
    ErrorReply,
    Lost,
    Misanswered,
    Redirection,
    Stopped,
    reason_of,
)
from perdure.engines.redis.connections.pool import Pool
from perdure.engines.redis.connections.resp import LARGEST, SMALL, command
from perdure.engines.redis.connections.scripts import Script
from perdure.engines.redis.errors import being_moved, came_before_writing, no_cluster, refusal
from perdure.engines.redis.target import Address, Target
from perdure.errors import PerdureError, UnavailableError

_HOPS = 6
_SLOTS = 16_384
T = TypeVar("T")
Shape = Callable[[Any], T]
"""What an answer must be, one of `answers`: returns it, or raises `Misfit`."""


def key_slot(key: bytes) -> int:
    """The slot of a key in a cluster: CRC-16/XMODEM of its hash tag (the first {…} that is not empty), or of all."""
    begin = key.find(b"{") + 1
    end = key.find(b"}", begin)
    return crc_hqx(key[begin:end] if begin and end > begin else key, 0) % _SLOTS


class Network:
    """Everything that is asked of the servers goes through here; answers that refuse become our errors."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._pools: dict[Address, Pool] = {}
        self._slots: dict[int, Address] = {}
        self._sent: set[bytes] = set()

    async def request(self, key: bytes, *arguments: bytes, shape: Shape[T], room: int = SMALL) -> T:
        """One command on the server of a key."""
        try:
            answer = await self._routed(key, command(*arguments), room)
        except ErrorReply as error:
            raise await self._refused(error) from error
        return self._shaped(answer, shape, arguments[0])

    def _shaped(self, answer: Any, shape: Shape[T], asked: bytes) -> T:
        try:
            return shape(answer)
        except answers.Misfit as misfit:
            raise Misanswered(f"{self.target.shown}: the answer to {asked.decode()} {misfit}") from None

    async def script(self, script: Script, base: bytes, *arguments: bytes, shape: Shape[T]) -> T:
        """One script on the server of a scope: by its hash, or with its text where that is not known. A server that
        does not know a script has not run it."""
        try:
            answer = await self._run(script, base, arguments)
        except ErrorReply as error:
            if script.commits and not came_before_writing(error):
                raise Stopped(f"{self.target.shown}: the server stopped the commit ({reason_of(error)})") from error
            raise await self._refused(error) from error
        return self._shaped(answer, shape, b"EVAL")

    async def _run(self, script: Script, base: bytes, arguments: tuple[bytes, ...]) -> Any:
        if script.sha in self._sent:
            try:
                return await self._routed(base, command(b"EVALSHA", script.sha, b"1", base, *arguments), LARGEST)
            except ErrorReply as error:
                if error.code != "NOSCRIPT":
                    raise
                self._sent.discard(script.sha)
        answer = await self._routed(base, command(b"EVAL", script.text, b"1", base, *arguments), LARGEST)
        self._sent.add(script.sha)
        return answer

    async def _refused(self, error: ErrorReply) -> PerdureError:
        if error.code in ("READONLY", "MASTERDOWN"):
            # What was the master is none any more: every connection to it leads to the wrong place.
            for pool in self._pools.values():
                pool.drop_idle()
            self._slots.clear()
        return refusal(error, self.target.shown)

    async def _routed(self, key: bytes, packed: bytes, room: int) -> Any:
        if self.target.kind != "cluster":
            return await self._pool(self.target.addresses[0]).request(packed, room)
        slot = key_slot(key)
        for hop in range(_HOPS):
            address = await self._owner(slot)
            try:
                return await self._pool(address).request(packed, room)
            except Redirection as redirection:
                if redirection.code == "ASK":
                    raise being_moved(self.target.shown) from redirection
                self._slots[slot] = self._redirected(redirection, address)
            except Lost:
                self._slots.clear()
                raise
            except UnavailableError:
                if hop:
                    raise
                self._slots.clear()
        raise being_moved(self.target.shown)

    def _redirected(self, redirection: Redirection, address: Address) -> Address:
        """Where a node sends a request that it did not run."""
        try:
            return answers.named_address(redirection.host or address[0], redirection.port)
        except answers.Misfit as misfit:
            raise UnavailableError(
                f"{self.target.shown}: a redirection {misfit}; nothing was written", hint="is this node of the cluster?"
            ) from None

    def _pool(self, address: Address) -> Pool:
        pool = self._pools.get(address)
        if pool is None:
            if len(self._pools) >= answers.MOST_NODES:
                self._leave_strangers()

            async def locate() -> Address:
                return await ask_sentinels(self.target) if self.target.kind == "sentinel" else address

            pool = self._pools[address] = Pool(self.target, locate)
        return pool

    def _leave_strangers(self) -> None:
        """Close the connections to nodes that own nothing any more: redirections could name ever new ones."""
        for address in self._pools.keys() - set(self._slots.values()):
            self._pools.pop(address).close()

    async def _owner(self, slot: int) -> Address:
        if slot not in self._slots:
            await self._read_slots()
        try:
            return self._slots[slot]
        except KeyError:
            raise UnavailableError(f"{self.target.shown}: no node serves slot {slot}", hint="is it complete?") from None

    async def _read_slots(self) -> None:
        failed: list[Exception] = []
        for address in dict.fromkeys((*self._pools, *self.target.addresses)):
            try:
                told = await self._pool(address).request(command(b"CLUSTER", b"SLOTS"))
                self._slots.update(self._shaped(told, partial(answers.slots, asked=address), b"CLUSTER SLOTS"))
            except (UnavailableError, Lost, ErrorReply) as error:
                failed.append(error)
                continue
            return
        raise no_cluster(failed, self.target.shown)

    async def servers(self) -> list[Address]:
        """The servers that hold data: one, or the masters of the cluster."""
        if self.target.kind != "cluster":
            return [self.target.addresses[0]]
        if not self._slots:
            await self._read_slots()
        if not self._slots:
            raise UnavailableError(f"{self.target.shown}: no node serves any slot", hint="is the cluster complete?")
        return list(dict.fromkeys(self._slots.values()))

    async def at(self, address: Address, *arguments: bytes, shape: Shape[T]) -> T:
        """One command on a server by its address."""
        try:
            answer = await self._pool(address).request(command(*arguments))
        except ErrorReply as error:
            raise await self._refused(error) from error
        return self._shaped(answer, shape, arguments[0])

    async def at_or_none(self, address: Address, *arguments: bytes, shape: Shape[T]) -> T | None:
        """The same; None where the server does not allow it."""
        try:
            answer = await self._pool(address).request(command(*arguments))
        except ErrorReply as error:
            # A login that is refused, and a server that is not ready, are no answers to this question.
            if error.is_login or error.code in ("LOADING", "MASTERDOWN", "CLUSTERDOWN"):
                raise await self._refused(error) from error
            return None
        return self._shaped(answer, shape, arguments[0])

    async def locate(self) -> Address:
        """An address where channels can be listened to: in a cluster every node hears every hint."""
        if self.target.kind == "sentinel":
            return await ask_sentinels(self.target)
        return (await self.servers())[0]

    async def close(self) -> None:
        """Let every connection go."""
        for pool in self._pools.values():
            pool.close()
