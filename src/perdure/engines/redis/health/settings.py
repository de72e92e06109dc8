"""What the servers say of their settings, and what that means for data. Managed services hide their settings: what is
not known is told as not known, and counts as not durable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.engines.redis.connections import answers
from perdure.engines.redis.connections.connect import problem_of
from perdure.engines.redis.connections.failures import escaped
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.target import Target
from perdure.errors import UnsupportedError
from perdure.kernel.engine import Durability

_OF_DURABILITY = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite")
_WANTED = (*_OF_DURABILITY, "maxmemory", "maxmemory-policy", "min-replicas-to-write")
_UNKNOWN = "unknown"
_LONGEST = 200
_ORDER: tuple[Durability, ...] = ("none", "process", "power")


async def settings(network: Network) -> list[dict[str, str]]:
    """The settings of each server that holds data."""
    found = []
    for address in await network.servers():
        host, port = await network.locate() if network.target.kind == "sentinel" else address
        own = {"server": f"{host}:{port}"}
        for name in _WANTED:
            own[name] = await _setting(network, address, name)
        own.update(await _about(network, address))
        found.append(own)
    return found


async def _setting(network: Network, address: Any, name: str) -> str:
    told = await network.at_or_none(address, b"CONFIG", b"GET", name.encode(), shape=answers.pairs)
    return _text((told or {}).get(name.encode(), b"")) or _UNKNOWN


async def _about(network: Network, address: Any) -> dict[str, str]:
    told = await network.at_or_none(address, b"INFO", shape=answers.data)
    lines = [_text(line) for line in (told or b"").split(b"\r\n")]
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    names = ("redis_version", "valkey_version", "used_memory", "connected_slaves", "aof_last_write_status", "role")
    known = {name: facts[name] for name in names if name in facts}
    for name in ("maxmemory", "maxmemory_policy"):
        if name in facts:
            known[name.replace("_", "-")] = facts[name]
    if facts.get("aof_enabled") == "0":
        known["appendonly"] = "no"
    return known


def _text(told: bytes) -> str:
    """A setting as it may be shown."""
    return escaped(told[:_LONGEST].decode(errors="replace"))


async def durability_now(network: Network) -> Durability:
    """The same as `durability_of(await settings(…))`, for one short question to each server."""
    found = []
    for address in await network.servers():
        answer = await network.at_or_none(address, b"CONFIG", b"GET", b"*append*", shape=answers.pairs)
        told = {_text(name): _text(value) for name, value in (answer or {}).items()}
        found.append({name: told.get(name) or _UNKNOWN for name in _OF_DURABILITY})
    return durability_of(found)


def durability_of(found: list[dict[str, str]]) -> Durability:
    """The least that any of the servers promises."""
    least = min((_ORDER.index(_one(own)) for own in found), default=0)
    return _ORDER[least]


def _one(own: Mapping[str, str]) -> Durability:
    if own["appendonly"] != "yes":
        return "none"
    if own["appendfsync"] == "always" and own["no-appendfsync-on-rewrite"] == "no":
        return "power"
    # The log is handed to the system before the answer is sent, so it outlives the server's process.
    return "none" if own["appendfsync"] == _UNKNOWN else "process"


def evicts(own: Mapping[str, str]) -> bool:
    """Whether this server throws data away when memory runs short."""
    policy = own["maxmemory-policy"]
    return policy not in (_UNKNOWN, "noeviction") and own["maxmemory"] != "0"


def refuse_eviction(found: list[dict[str, str]], where: str) -> None:
    """Raise if a server may throw away what it was given to keep."""
    for own in found:
        if evicts(own):
            raise UnsupportedError(
                f"{where} evicts keys when memory runs short (maxmemory-policy {own['maxmemory-policy']}): it would"
                " lose parts of threads",
                hint="set maxmemory-policy noeviction, or accept the loss with ?allow_eviction=yes",
            )


def problems(found: list[dict[str, str]], *, several: bool) -> list[str]:
    """In words, what stands between this store and data that survives a power loss."""
    told = []
    for own in found:
        told += [f"{own['server']}: {line}" for line in _problems_of(own)]
    if several or any(own.get("connected_slaves", "0") != "0" for own in found):
        told.append("replication is asynchronous: a failover may lose acknowledged writes (WAIT is not used)")
    return told


def transport_problems(target: Target, found: list[dict[str, str]]) -> list[str]:
    """In words, what is wrong with the way to the servers: those of the URL, and those that they name."""
    named = [own["server"].rpartition(":")[0] for own in found]
    hosts = dict.fromkeys([host for host, _ in target.addresses] + named)
    return [told for told in (problem_of(target, host) for host in hosts) if told]


def _problems_of(own: Mapping[str, str]) -> list[str]:
    told = []
    if own["appendonly"] == _UNKNOWN or (own["appendonly"] == "yes" and own["appendfsync"] == _UNKNOWN):
        told.append("the server does not tell its settings (CONFIG is forbidden): whether it keeps data is unknown")
    elif own["appendonly"] != "yes":
        told.append("appendonly is no: a crash loses everything since the last snapshot")
    elif own["appendfsync"] != "always":
        told.append(f"appendfsync is {own['appendfsync']}: a power failure loses the last seconds")
    elif own["no-appendfsync-on-rewrite"] != "no":
        told.append("no-appendfsync-on-rewrite is yes: a power failure during a rewrite loses what came meanwhile")
    if own.get("aof_last_write_status", "ok") != "ok":
        told.append("the last write to the append-only file failed")
    if evicts(own):
        told.append(f"maxmemory-policy is {own['maxmemory-policy']}: keys vanish when memory runs short")
    return told
