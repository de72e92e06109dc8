"""Checks that the user of a store may run every command that its commits use.

A script that is denied a command half way cannot undo its writes, so this is checked when a store is opened for
writing, not by the first commit that needs the command. A script checks it, which works on every version and needs no
permission that commits do not need.
"""

from __future__ import annotations

from perdure.engines.redis.connections import reply_shapes
from perdure.engines.redis.connections.failures import escaped
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.connections.scripts import PROBE
from perdure.errors import UnsupportedError


async def refuse_missing(network: Network) -> None:
    """Raise if a command of the write scripts is forbidden on any server; leaves no trace but a line in its log."""
    key = f"{network.target.prefix}:{{probe}}:probe".encode()
    for address in await network.servers():
        # No key is declared: each node of a cluster has its own permissions, and only one has the slot of the key.
        await network.at(address, b"EVAL", PROBE.text, b"0", key, shape=reply_shapes.names)
        missing = await network.at(address, b"EVALSHA", PROBE.sha, b"0", key, shape=reply_shapes.names)
        if missing:
            names = ", ".join(sorted(escaped(name[:40].decode(errors="replace")) for name in missing[:20]))
            raise UnsupportedError(
                f"{network.target.display_url}: the user may not run {names}, which commits need",
                hint="allow them (ACL SETUSER), or open the store with read_only=True",
            )
