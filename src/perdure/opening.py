"""Opens a store: finds the engine for a URL, and imports it only then.

`sqlite:///rel.db` and `sqlite:////abs.db` (SQLAlchemy's habit), `memory://`, a plain path that ends in `.db`,
`.sqlite` or `.sqlite3`, or the URL of a server. What cannot be opened is refused with the list of what can; a server
whose driver is not installed is refused with the package to install.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from urllib.parse import unquote

from perdure import limits
from perdure.clock import Clock, system_clock
from perdure.errors import InvalidError, UnsupportedError, named_type, short_repr
from perdure.kernel.engine import Engine, Migration
from perdure.kernel.redaction import STARS, redacted
from perdure.kernel.url import BAD_ESCAPE, has_bad_escape
from perdure.rules.checks import check_count, check_flag, check_own_scope, check_scope
from perdure.stores.housekeeping import Housekeeper
from perdure.stores.patience import Patience
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Origin, Store

_KNOWN = (
    "memory://, sqlite:///relative.db, sqlite:////absolute.db, a path ending in .db, .sqlite or .sqlite3, "
    "postgresql://, postgres://, mysql://, mariadb://, redis://, rediss://, redis+sentinel://, rediss+sentinel://, "
    "redis+cluster://, rediss+cluster://"
)
_SUFFIXES = (".db", ".sqlite", ".sqlite3")
DurabilityChoice = Literal["power", "process"]


_SERVERS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "redis": "redis",
    "rediss": "redis",
    "redis+sentinel": "redis",
    "rediss+sentinel": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
}
"""Which engine serves a scheme; also the name of the extra that installs its driver."""
_DRIVERS = {"postgres": "asyncpg", "mysql": "asyncmy"}


class Opening(Awaitable[Store]):
    """What `perdure.open` returns: await it, or use it with `async with`."""

    def __init__(self, url: str, scope: str, *, housekeeping: bool, retry_ms: int, **options: Any) -> None:
        self._url = url
        self._scope = check_scope(scope)
        self._retry_ms = retry_ms
        self._housekeeping = housekeeping
        self._options = options
        self._store: Store | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"perdure.open(…) was not awaited, so it has no {name!r}: write `store = await perdure.open(…)` "
            "or `async with perdure.open(…) as store:`"
        )

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def _open(self) -> Store:
        engine = await Patience(self._retry_ms).repeat(lambda: open_engine(self._url, **self._options))
        read_only = self._options["read_only"]
        tidy = self._housekeeping and not read_only
        return make_store(
            engine, self._scope, self._url, housekeeping=tidy, read_only=read_only, retry_ms=self._retry_ms
        )

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()


def open(
    url: str | os.PathLike[str],
    *,
    scope: str = "default",
    durability: DurabilityChoice = "power",
    read_only: bool = False,
    clock: Clock = system_clock,
    pool: Any = None,
    housekeeping: bool = True,
    retry_ms: int = 0,
) -> Opening:
    """Open a store: `store = await perdure.open(url)`, or `async with perdure.open(url) as store:`.

    - `url`: the URL of the store, or the path of a SQLite file, as text or a `pathlib.Path`. A file or database that
      does not exist yet is created and gets its schema; an older schema is migrated.
    - `scope`: the tenant. A store sees the data of one scope only; `store.scoped(name)` opens another on the same
      connections. Names that begin with `~` are reserved: they can only be opened with `read_only`.
    - `durability`: what a commit survives. `"power"` waits until it is on disk; `"process"` is faster and survives the
      end of the process, but not a power loss. A server may offer less: see `store.health()`.
    - `read_only`: refuse every write, create and migrate nothing, and do no housekeeping.
    - `clock`: a function that returns milliseconds, for tests. By default, times are those of the server, or of the
      machine for SQLite and memory.
    - `pool`: your own connections: an asyncpg pool for PostgreSQL, an asyncmy pool for MySQL and MariaDB, a
      `redis.asyncio.Redis` client for Redis. The store uses it and never closes it.
    - `housekeeping`: in the background, remove expired keys and profiles, finish interrupted deletions, and remove what
      abandoned imports left behind. False leaves that to other processes, or to `perdure doctor sweep`.
    - `retry_ms`: how long a call is repeated while it fails for a reason that may pass, up to 600,000. Any call is
      repeated after `UnavailableError`. With a key, `commit`, `runs.start`, `runs.create`, `runs.rerun`,
      `branches.fork` and `pending.freeze` are also repeated after `OutcomeUnknown` and contention. A call that makes
      several transactions may wait this long for each. Opening is repeated, too.

    Raises `InvalidError` for a URL or an option that cannot be right, `UnavailableError` for a store that cannot be
    reached, and `UnsupportedError` for one that this version cannot open.
    """
    check_options(read_only=read_only, clock=clock, housekeeping=housekeeping, retry_ms=retry_ms)
    check_own_scope(scope, read_only=read_only)
    options = {"durability": durability, "read_only": read_only, "clock": clock, "pool": pool}
    return Opening(as_text(url), scope, housekeeping=housekeeping, retry_ms=retry_ms, **options)


def check_options(*, read_only: Any, clock: Any, housekeeping: Any, retry_ms: Any) -> None:
    """Raise `InvalidError` unless the flags are booleans, the clock is a function and `retry_ms` a number."""
    if check_count(retry_ms, "retry_ms") > limits.RETRY_MS:
        raise InvalidError(f"retry_ms must be at most {limits.RETRY_MS:,}, not {short_repr(retry_ms)}")
    check_flag(read_only, "read_only")
    check_flag(housekeeping, "housekeeping")
    if not callable(clock):
        raise InvalidError(f"clock must be a function that returns milliseconds, not {short_repr(clock)}")


def as_text(url: str | os.PathLike[str]) -> str:
    """The URL, or the path, as text."""
    return os.fspath(url) if isinstance(url, os.PathLike) else url


def open_any_scope(url: str, scope: str) -> Opening:
    """Open a store for writing in any scope, reserved ones included, without housekeeping: for what removes data."""
    options = {"durability": "power", "read_only": False, "clock": system_clock, "pool": None}
    return Opening(url, scope, housekeeping=False, retry_ms=0, **options)


def make_store(
    engine: Engine, scope: str, url: str, *, housekeeping: bool, read_only: bool = False, retry_ms: int = 0
) -> Store:
    """A store that owns this engine, and cleans up in the background if it is to."""
    housekeeper = Housekeeper(engine) if housekeeping else None
    origin = Origin(redacted(url), read_only=read_only)
    store = Store(engine, scope, housekeeper=housekeeper, origin=origin, retry_ms=retry_ms)
    store._context.clean_up()  # noqa: SLF001 - opening is part of the store
    return store


async def open_engine(
    url: str,
    *,
    durability: DurabilityChoice = "power",
    read_only: bool = False,
    clock: Clock = system_clock,
    pool: Any = None,
) -> Engine:
    """The engine behind a URL."""
    value: object = url
    url = str.__str__(value) if isinstance(value, str) else ""  # a subclass may compare as it likes
    if not url.strip():
        what = "an empty text" if isinstance(value, str) else named_type(type(value))
        raise InvalidError(f"a store is opened by its URL, not by {what}", hint=f"known: {_KNOWN}")
    if type(durability) is not str or durability not in ("power", "process"):
        raise InvalidError(f"durability must be 'power' or 'process', not {short_repr(durability)}")
    scheme = _scheme(url)
    if pool is not None and scheme not in _SERVERS:
        raise InvalidError("only postgresql://, mysql:// and redis:// stores accept a pool")
    if scheme in _SERVERS:
        module = _server(_SERVERS[scheme])
        options = {"pool": pool} if pool is not None else {}
        engine: Engine = await module.open_engine(
            url, SCHEMA, clock=clock, read_only=read_only, durability=durability, **options
        )
        return engine
    if scheme == "memory":
        if read_only:
            raise InvalidError("a new memory:// store is empty, so read_only has no use")
        from perdure.engines.memory import open_memory

        return await open_memory(SCHEMA, clock=clock)
    return await _open_sqlite(sqlite_path(url), durability=durability, read_only=read_only, clock=clock)


def _server(name: str) -> Any:
    try:
        return importlib.import_module(f"perdure.engines.{name}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("perdure"):
            raise
        raise UnsupportedError(
            f"the {name} engine needs {missing.name}, which is not installed",
            hint=f"pip install {_DRIVERS[name]}",
        ) from None


async def plan_migration(url: str) -> Migration:
    """What opening this URL would change in its database; changes nothing."""
    scheme = _scheme(url)
    if scheme in _SERVERS:
        plan: Migration = await _server(_SERVERS[scheme]).plan_migration(url, SCHEMA)
        return plan
    if scheme == "memory":
        return Migration("memory", None, SCHEMA.version)
    from perdure.engines.sqlite import plan_migration

    path = sqlite_path(url)
    with _path_errors(path):
        return await plan_migration(path, SCHEMA)


def is_server(url: str) -> bool:
    """Whether this URL names a server: such an engine suspends its callers, so it needs an event loop."""
    value: object = url
    return isinstance(value, str) and _scheme(url) in _SERVERS


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return scheme if separator else ""


def sqlite_path(url: str) -> str:
    """The file that a sqlite URL, or a plain path, names."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        if Path(url).suffix.lower() not in _SUFFIXES:
            raise InvalidError(f"{_named(url)} is not a URL of a store", hint=f"known: {_KNOWN}")
        return url
    if scheme != "sqlite":
        raise _unknown(scheme)
    path, mark, query = rest.partition("?")
    if mark and query:
        raise InvalidError("sqlite URLs take no options", hint="pass them to perdure.open")
    if not path.startswith("/") or path == "/":
        raise InvalidError(f"{_named(url)} names no file", hint="sqlite:///relative.db or sqlite:////absolute.db")
    if has_bad_escape(path):
        raise InvalidError(f"the sqlite URL {BAD_ESCAPE}", hint="a plain path needs no escapes")
    try:
        return unquote(path[1:], errors="strict")
    except UnicodeDecodeError:
        raise InvalidError(
            "the path of a sqlite URL holds escapes that are not UTF-8", hint="give a plain path instead of a URL"
        ) from None


def _unknown(scheme: str) -> InvalidError:
    if redacted(f"{scheme}://") == STARS:
        return InvalidError("that is not a URL of a store", hint=f"known: {_KNOWN}")
    dialect, plus, driver = scheme.partition("+")
    if plus and dialect in _SERVERS:
        hint = f"the driver cannot be chosen in the URL: drop +{driver} and write {dialect}://"
        return InvalidError(f"no engine is known for {scheme}://", hint=hint)
    return InvalidError(f"no engine is known for {scheme}://", hint=f"known: {_KNOWN}")


def _named(url: str) -> str:
    """The URL or path for a message, without its password."""
    text = redacted(url)
    return "this (not shown: it may hold a password)" if text == STARS else repr(text)


async def _open_sqlite(path: str, *, durability: DurabilityChoice, read_only: bool, clock: Clock) -> Engine:
    from perdure.engines.sqlite import open_sqlite

    with _path_errors(path):
        return await open_sqlite(path, SCHEMA, clock=clock, read_only=read_only, durability=durability)


@contextmanager
def _path_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error.__class__.__name__
        raise InvalidError(f"{redacted(path)!r:.120} cannot be the path of a file: {reason}") from None
