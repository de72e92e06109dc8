"""Settings of the servers, and what they mean for the data. Managed services hide their settings: an unknown setting
is reported as unknown and counts as not durable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.connect import locate, problem_of
from perdure.engines.redis.connections.failures import escaped
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.target import Target
from perdure.errors import UnsupportedError
from perdure.kernel.engine import Durability

_DURABILITY_SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite")
_SETTINGS = (*_DURABILITY_SETTINGS, "maxmemory", "maxmemory-policy", "min-replicas-to-write")
_UNKNOWN = "unknown"
_LONGEST = 200
_ORDER: tuple[Durability, ...] = ("none", "process", "power")


async def settings(network: Network) -> list[dict[str, str]]:
    """The settings of each server that holds data."""
    servers = []
    for address in await network.servers():
        host, port = await locate(network.target, address)
        server = {"server": f"{host}:{port}"}
        for name in _SETTINGS:
            server[name] = await _setting(network, address, name)
        server.update(await _info(network, address))
        servers.append(server)
    return servers


async def _setting(network: Network, address: Any, name: str) -> str:
    values = await network.at_or_none(address, b"CONFIG", b"GET", name.encode(), shape=reply_shapes.pairs)
    return _text((values or {}).get(name.encode(), b"")) or _UNKNOWN


async def _info(network: Network, address: Any) -> dict[str, str]:
    info = await network.at_or_none(address, b"INFO", shape=reply_shapes.data)
    lines = [_text(line) for line in (info or b"").split(b"\r\n")]
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    names = ("redis_version", "valkey_version", "used_memory", "connected_slaves", "aof_last_write_status", "role")
    known = {name: facts[name] for name in names if name in facts}
    known |= {name.replace("_", "-"): facts[name] for name in ("maxmemory", "maxmemory_policy") if name in facts}
    if facts.get("aof_enabled") == "0":
        known["appendonly"] = "no"
    return known


def _text(value: bytes) -> str:
    """A setting, safe to show."""
    return escaped(value[:_LONGEST].decode(errors="replace"))


async def durability_now(network: Network) -> Durability:
    """The same as `durability_of(await settings(…))`, with one short request to each server."""
    servers = []
    for address in await network.servers():
        reply = await network.at_or_none(address, b"CONFIG", b"GET", b"*append*", shape=reply_shapes.pairs)
        values = {_text(name): _text(value) for name, value in (reply or {}).items()}
        servers.append({name: values.get(name) or _UNKNOWN for name in _DURABILITY_SETTINGS})
    return durability_of(servers)


def durability_of(servers: list[dict[str, str]]) -> Durability:
    """The least that any of the servers promises."""
    least = min((_ORDER.index(_server_durability(server)) for server in servers), default=0)
    return _ORDER[least]


def _server_durability(server: Mapping[str, str]) -> Durability:
    if server["appendonly"] != "yes":
        return "none"
    if server["appendfsync"] == "always" and server["no-appendfsync-on-rewrite"] == "no":
        return "power"
    # The log is handed to the system before the reply is sent, so it survives the server's process.
    return "none" if server["appendfsync"] == _UNKNOWN else "process"


def evicts(server: Mapping[str, str]) -> bool:
    """Whether this server discards data when memory runs short."""
    policy = server["maxmemory-policy"]
    return policy not in (_UNKNOWN, "noeviction") and server["maxmemory"] != "0"


def refuse_eviction(servers: list[dict[str, str]], where: str) -> None:
    """Raise if a server may discard data."""
    for server in servers:
        if evicts(server):
            raise UnsupportedError(
                f"{where} evicts keys when memory runs short (maxmemory-policy {server['maxmemory-policy']}): it would"
                " lose parts of threads",
                hint="set maxmemory-policy noeviction, or accept the loss with ?allow_eviction=yes",
            )


def problems(servers: list[dict[str, str]], *, replicated: bool) -> list[str]:
    """Human-readable reasons why data might not survive a power failure."""
    reasons = []
    for server in servers:
        reasons += [f"{server['server']}: {reason}" for reason in _server_problems(server)]
    if replicated or any(server.get("connected_slaves", "0") != "0" for server in servers):
        reasons.append("replication is asynchronous: a failover may lose acknowledged writes (WAIT is not used)")
    return reasons


def transport_problems(target: Target, servers: list[dict[str, str]]) -> list[str]:
    """Human-readable problems with the connections: to the hosts of the URL, and to those that the servers name."""
    named = [server["server"].rpartition(":")[0] for server in servers]
    hosts = dict.fromkeys([host for host, _ in target.addresses] + named)
    return [problem for problem in (problem_of(target, host) for host in hosts) if problem]


def _server_problems(server: Mapping[str, str]) -> list[str]:
    reasons = []
    appendonly, appendfsync = server["appendonly"], server["appendfsync"]
    if appendonly == _UNKNOWN or (appendonly == "yes" and appendfsync == _UNKNOWN):
        reasons.append("the server hides its settings (CONFIG is forbidden): whether it stores data is unknown")
    elif appendonly != "yes":
        reasons.append("appendonly is no: a crash loses everything since the last snapshot")
    elif appendfsync != "always":
        reasons.append(f"appendfsync is {appendfsync}: a power failure loses the last seconds")
    elif server["no-appendfsync-on-rewrite"] != "no":
        reasons.append("no-appendfsync-on-rewrite is yes: a power failure loses the writes during a rewrite")
    if server.get("aof_last_write_status", "ok") != "ok":
        reasons.append("the last write to the append-only file failed")
    if evicts(server):
        reasons.append(f"maxmemory-policy is {server['maxmemory-policy']}: keys vanish when memory runs short")
    return reasons
