"""Whether the user of a store may run every command that its commits are made of.

A script that is refused a command half way cannot take back what it wrote, so this is asked when a store is opened for
writing and not left to the first commit that needs the command. It is asked of a script, which works on every version
and needs no permission that commits do not need.
"""

from __future__ import annotations

from perdure.engines.redis.connections import answers
from perdure.engines.redis.connections.failures import escaped
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.connections.scripts import PROBE
from perdure.errors import UnsupportedError


async def refuse_missing(network: Network) -> None:
    """Raise if a command of the write scripts is forbidden on any server; leaves no trace but in the server's log."""
    key = f"{network.target.prefix}:{{probe}}:probe".encode()
    for address in await network.servers():
        # No key is declared: in a cluster permissions are each node's own, and only one has the slot of the key.
        await network.at(address, b"EVAL", PROBE.text, b"0", key, shape=answers.names)
        missing = await network.at(address, b"EVALSHA", PROBE.sha, b"0", key, shape=answers.names)
        if missing:
            names = ", ".join(sorted(escaped(name[:40].decode(errors="replace")) for name in missing[:20]))
            raise UnsupportedError(
                f"{network.target.shown}: the user may not run {names}, which commits need",
                hint="allow them (ACL SETUSER), or open the store with read_only=True",
            )
