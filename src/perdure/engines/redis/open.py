"""Opening a Redis store: check the server, bring the schema up to date or verify it, then hand out the engine."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from perdure.clock import Clock, system_clock
from perdure.engines.redis.connections.failures import Lost
from perdure.engines.redis.connections.permissions import refuse_missing
from perdure.engines.redis.connections.routing import Network
from perdure.engines.redis.engine import RedisEngine
from perdure.engines.redis.health import settings
from perdure.engines.redis.migrate import bring_up_to_date, plan, read_record
from perdure.engines.redis.schema.layout import Layout
from perdure.engines.redis.target import Target, parse
from perdure.engines.shared.capabilities import capabilities
from perdure.engines.shared.events import EngineLog
from perdure.engines.shared.schema_record import refuse_unless_current
from perdure.errors import InvalidError, UnavailableError
from perdure.kernel.engine import Capabilities, Durability, Migration
from perdure.kernel.schema import Schema


async def open_engine(
    url: str,
    schema: Schema,
    *,
    clock: Clock = system_clock,
    read_only: bool = False,
    durability: str = "power",
    pool: Any = None,
) -> RedisEngine:
    """Open the store at `url`, creating it or bringing it up to date as needed.

    The server decides what is durable, so `durability` is ignored: the capabilities and every receipt say what the
    server's settings promise. `pool` is the caller's redis-py client: the engine uses its connections and never closes
    it, and the URL then only carries options.
    """
    network = _network(parse(url), pool)
    target = network.target
    try:
        if network.borrowed is not None:
            await network.borrowed.check()
        servers = await settings.settings(network)
        if not target.allow_eviction:
            settings.refuse_eviction(servers, target.display_url)
        if not read_only:
            await refuse_missing(network)
        if read_only or not target.migrate:
            record = await read_record(network)
            refuse_unless_current(record.schema, schema, target.display_url, hint="run perdure migrate")
        else:
            record = await bring_up_to_date(network, schema)
        layout = Layout(schema, target.prefix, target.db, record.columns)
    except Lost as lost:
        await network.close()
        raise UnavailableError(str(lost), hint="try again") from lost
    except BaseException:
        await network.close()
        raise
    watch: Literal["push", "poll"] = "push" if network.borrowed is None or network.borrowed.listens else "poll"
    capabilities = partial(_capabilities, target.kind, watch=watch, read_only=read_only)
    return RedisEngine(network, layout, clock, capabilities, settings.durability_of(servers), read_only=read_only)


async def plan_migration(url: str, schema: Schema) -> Migration:
    """What opening this URL would change; reads only."""
    target = parse(url)
    network = Network(target)
    try:
        return await plan(network, schema)
    except Lost as lost:
        raise UnavailableError(str(lost), hint="try again") from lost
    finally:
        await network.close()


def _network(target: Target, client: Any) -> Network:
    if client is None:
        return Network(target)
    if target.kind != "single":
        raise InvalidError(
            f"a redis+{target.kind}:// store accepts no pool", hint="leave out pool, or open one server by redis://"
        )
    # redis-py is not a dependency: whoever passes a client has it.
    if all(base.__module__.partition(".")[0] != "redis" for base in type(client).__mro__):
        raise InvalidError(f"pool must be a redis.asyncio.Redis client, not {type(client).__name__}")
    from perdure.engines.redis.connections.borrowed_client import BorrowedClient

    borrowed = BorrowedClient(target, client, EngineLog("redis", target.display_url))
    return Network(borrowed.target, borrowed)


def _capabilities(
    kind: str, durability: Durability, *, watch: Literal["push", "poll"], read_only: bool
) -> Capabilities:
    notes = {
        "wake-ups between processes come by polling: the client has one connection only": watch == "poll",
        "a scope lives on one server: a cluster scales by scopes": True,
        f"the server's settings promise durability {durability!r} only; health() says why": durability != "power",
        "replication is asynchronous: a failover may lose acknowledged writes": kind != "single",
    }
    return capabilities("redis", durability, notes, round_trips=1, watch=watch, read_only=read_only)
