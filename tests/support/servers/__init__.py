"""Private database servers for tests, started on first use and gone with the process that started them.

    from tests.support.servers import server
    postgres = server("postgres")
    store = await perdure.open(postgres.url)

`server("postgres" | "mysql" | "redis" | "pgbouncer")` is found in this order: the URL in the environment
(`PERDURE_TEST_POSTGRES_URL`, `PERDURE_TEST_MYSQL_URL`, `PERDURE_TEST_REDIS_URL`), a program on the PATH, a wheel in
this environment, the system's packages. `durable=True` is another server, one that makes the disk sync at every
commit. A server that is not available raises `ServerMissing`, which lists what was tried. More of the same kind:
`"redis-cluster"`, `"redis-sentinel"`, `"redis-tls"` and `"postgres-tls"`; `standby_pair()` makes a PostgreSQL primary
with a standby, for a test that needs them for itself.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from tests.support.servers.databases import fresh_database
from tests.support.servers.local import ForeignServer, LocalServer, Server
from tests.support.servers.mysql import MysqlRecipe
from tests.support.servers.pgbouncer import PgbouncerRecipe
from tests.support.servers.postgres import PostgresRecipe
from tests.support.servers.postgres_sets import StandbyPair, standby_pair
from tests.support.servers.postgres_sets import tls as postgres_tls
from tests.support.servers.process import StartFailed
from tests.support.servers.redis import RedisRecipe
from tests.support.servers.redis_sets import cluster, sentinel
from tests.support.servers.redis_sets import tls as redis_tls
from tests.support.servers.sets import ServerSet

from perdure.testkit.kit import ServerMissing, servers_required

_MAKERS: dict[str, Callable[[bool], Server]] = {
    "postgres": lambda durable: LocalServer(PostgresRecipe(durable=durable)),
    "mysql": lambda durable: LocalServer(MysqlRecipe(durable=durable)),
    "redis": lambda durable: LocalServer(RedisRecipe(durable=durable)),
    "pgbouncer": lambda durable: LocalServer(PgbouncerRecipe(server("postgres", durable=durable).url)),
    "redis-cluster": lambda durable: cluster(durable=durable),
    "redis-sentinel": lambda durable: sentinel(durable=durable),
    "redis-tls": lambda durable: redis_tls(durable=durable),
    "postgres-tls": lambda durable: postgres_tls(durable=durable),
}
_FOREIGN = ("postgres", "mysql", "redis")
"""Those that an environment variable may name."""
_running: dict[tuple[str, bool], Server | ServerMissing] = {}
_lock = threading.RLock()


def server(name: str, *, durable: bool = False) -> Server:
    """The server of this process that has this name, started if it is not yet there."""
    if name not in _MAKERS:
        raise ValueError(f"no server is called {name!r}: {', '.join(_MAKERS)}")
    with _lock:
        running = _running.get((name, durable))
        if running is None:
            running = _running[name, durable] = _get(name, durable)
    if isinstance(running, ServerMissing):
        raise running
    return running


def _get(name: str, durable: bool) -> Server | ServerMissing:
    tried = []
    if name in _FOREIGN:
        variable = f"PERDURE_TEST_{name.upper()}_URL"
        url = os.environ.get(variable)
        if url:
            return ForeignServer(name, url, variable)
        tried.append(f"{variable} is not set")
    try:
        return _MAKERS[name](durable)
    except ServerMissing as missing:
        return ServerMissing(name, [*tried, *missing.tried])
    except StartFailed as failed:
        return ServerMissing(name, [*tried, f"it was found and did not start: {failed}"])


def redis_cluster(*, durable: bool = False) -> ServerSet:
    """A cluster of three Redis servers; `members` has them one by one."""
    return _set("redis-cluster", durable)


def redis_sentinel(*, durable: bool = False) -> ServerSet:
    """A Redis master, its replica and a sentinel, in this order in `members`."""
    return _set("redis-sentinel", durable)


def _set(name: str, durable: bool) -> ServerSet:
    servers = server(name, durable=durable)
    if not isinstance(servers, ServerSet):
        raise TypeError(f"{name} is one server")
    return servers


def stop_all() -> None:
    """End every server of this process and remove its data; also done at exit."""
    with _lock:
        for running in _running.values():
            if isinstance(running, Server):
                running.dispose()
        _running.clear()


atexit.register(stop_all)

__all__ = [
    "Server",
    "ServerMissing",
    "ServerSet",
    "StandbyPair",
    "fresh_database",
    "redis_cluster",
    "redis_sentinel",
    "server",
    "servers_required",
    "standby_pair",
    "stop_all",
]
