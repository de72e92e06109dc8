"""Several Redis servers that belong together: a cluster of three, a master that sentinels watch, one behind TLS.

All of them run on 127.0.0.1 with the programs of the plain server. A set is killed, stopped and restarted as a whole;
its members can be had one by one.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

from tests.support.servers.asking import redis_answer
from tests.support.servers.certificates import self_signed
from tests.support.servers.find import Programs, find
from tests.support.servers.local import LocalServer
from tests.support.servers.process import prepare
from tests.support.servers.redis import SOURCE, RedisRecipe
from tests.support.servers.sets import ServerSet, dispose_all, wait_until

MASTER = "perdure"
"""What the sentinels call the master."""
_SOURCE_WITH_TLS = replace(SOURCE, name="redis-tls", wheel=None)
"""The wheel's server was built without TLS; the distributions' are built with it."""
_SLOTS = 16_384
_NODES = 3
_CLUSTER = ("--cluster-enabled", "yes", "--cluster-node-timeout", "15000", "--cluster-announce-ip", "127.0.0.1")
"""A busy machine may keep a node silent for seconds, and a cluster that misses one of them serves nobody."""


def cluster(*, durable: bool) -> ServerSet:
    """Three masters that share the slots."""
    nodes: list[LocalServer] = []
    try:
        # One by one: those that run already are known when the next one fails.
        while len(nodes) < _NODES:
            nodes.append(LocalServer(RedisRecipe(durable=durable, more=_CLUSTER)))
        _join(nodes)
    except BaseException:
        dispose_all(nodes)
        raise
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    return ServerSet("redis-cluster", url, nodes, lambda: all(_is_whole(node.port) for node in nodes))


def _join(nodes: list[LocalServer]) -> None:
    for number, node in enumerate(nodes):
        first, last = (_SLOTS * edge // _NODES for edge in (number, number + 1))
        redis_answer(node.port, "CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        redis_answer(node.port, "CLUSTER", "ADDSLOTS", *map(str, range(first, last)))
    for node in nodes[1:]:
        redis_answer(nodes[0].port, "CLUSTER", "MEET", "127.0.0.1", str(node.port))
    wait_until(lambda: all(_is_whole(node.port) for node in nodes), "the cluster did not form")


def _is_whole(port: int) -> bool:
    answer = redis_answer(port, "CLUSTER", "INFO")
    lines = (b"cluster_state:ok", b"cluster_slots_ok:%d" % _SLOTS, b"cluster_size:%d" % _NODES)
    return all(line in answer for line in lines)


def sentinel(*, durable: bool) -> ServerSet:
    """A master, a replica of it, and a sentinel that names the master; in this order in `members`."""
    members: list[LocalServer] = []
    try:
        master = LocalServer(RedisRecipe(durable=durable))
        members.append(master)
        follow = ("--replicaof", f"127.0.0.1 {master.port}")
        replica = LocalServer(RedisRecipe(durable=durable, more=follow))
        members.append(replica)
        wait_until(
            lambda: b"master_link_status:up" in redis_answer(replica.port, "INFO", "replication"), "no replication"
        )
        watcher = LocalServer(SentinelRecipe(master.port))
        members.append(watcher)
        wait_until(lambda: _knows_replica(watcher.port), "the sentinel found no replica")
    except BaseException:
        dispose_all(members)
        raise
    return ServerSet("redis-sentinel", watcher.url, members, lambda: _knows_replica(watcher.port))


def _follows(port: int) -> bool:
    return b"master_link_status:up" in redis_answer(port, "INFO", "replication")


def _knows_replica(port: int) -> bool:
    return b"slaves=1" in redis_answer(port, "INFO", "sentinel")


class SentinelRecipe:
    """How a sentinel is started."""

    name = "sentinel"
    stop_signal = signal.SIGTERM

    def __init__(self, master_port: int) -> None:
        self.programs: Programs = find(SOURCE)
        self._master_port = master_port

    def make(self, folder: Path) -> None:
        """Its settings, which it rewrites as it learns."""
        settings = [
            f"sentinel monitor {MASTER} 127.0.0.1 {self._master_port} 1",
            f"sentinel down-after-milliseconds {MASTER} 1000",
            f"sentinel failover-timeout {MASTER} 5000",
            "",
        ]
        prepare(["tee", str(folder / "sentinel.conf")], folder, {}, "\n".join(settings).encode())

    def command(self, folder: Path, port: int) -> list[str]:
        """What starts it."""
        where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        return [self.programs.main, str(folder / "sentinel.conf"), "--sentinel", *where]

    def answers(self, port: int) -> bool:
        """Does it name the master?"""
        return b"127.0.0.1" in redis_answer(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)

    def url(self, port: int) -> str:
        """Where clients find the master by asking it."""
        return f"redis+sentinel://127.0.0.1:{port}/{MASTER}"


def tls(*, durable: bool) -> LocalServer:
    """A server that speaks TLS only, with a certificate made for it."""
    return LocalServer(TlsRecipe(durable=durable))


class TlsRecipe(RedisRecipe):
    """How a server with a certificate of its own is made and started."""

    name = "redis-tls"

    def __init__(self, *, durable: bool) -> None:
        super().__init__(durable=durable, source=_SOURCE_WITH_TLS)
        self._folder = Path()

    def make(self, folder: Path) -> None:
        """A key and a certificate that signs itself."""
        self._folder = folder
        self_signed(folder, folder / "certificate.pem", folder / "key.pem", "IP:127.0.0.1")

    def command(self, folder: Path, port: int) -> list[str]:
        """What starts it."""
        plain = super().command(folder, port)
        plain[plain.index("--port")] = "--tls-port"
        files = ["--tls-cert-file", str(folder / "certificate.pem"), "--tls-key-file", str(folder / "key.pem")]
        return [*plain, "--port", "0", *files, "--tls-auth-clients", "no"]

    def answers(self, port: int) -> bool:
        """Does it answer behind TLS?"""
        return b"PONG" in redis_answer(port, "PING", certificate=self._folder / "certificate.pem")

    def url(self, port: int) -> str:
        """Where clients find it, and the certificate that they must trust."""
        return f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={self._folder / 'certificate.pem'}"
