"""What a session must be like for our statements, whoever made it and whatever its server, database or role says.

Our own sessions begin with `SESSION`. Behind a pooler a session is another one for every transaction, and a caller's
pool is set up as the caller likes: there a statement stands in a transaction of its own, which begins with the same
settings (`BEGIN`) and takes them with it when it ends. They travel with the `BEGIN`: it is one exchange either way.

Two things are left as they are found: `synchronous_commit`, which is what a commit is worth, and
`default_transaction_read_only`, by which administrators take a server out of use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

_ISOLATION, _DEFERRABLE = "default_transaction_isolation", "default_transaction_deferrable"

SESSION = {
    "plan_cache_mode": "force_generic_plan",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_nestloop": "on",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    "jit": "off",
    "lock_timeout": "1s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    _ISOLATION: "read committed",
    _DEFERRABLE: "off",
}
"""The settings that keep every statement on its index and in the order of its rows, whatever the statistics; that keep
one locked row from holding up a whole batch; and that undo what would make our statements fail or mean something else:
after a wait for a lock they look again at what was committed meanwhile, which is what READ COMMITTED does."""

KEEPALIVE = {"tcp_keepalives_idle": "60", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "6"}
"""The server asks after a client that is silent for a minute. That keeps firewalls on the way from forgetting an idle
connection, and frees the session of a client that is gone without a word."""

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; " + "; ".join(
    f"SET LOCAL {name} = '{value}'" for name, value in SESSION.items() if name not in (_ISOLATION, _DEFERRABLE)
)

_CHECKED = (_ISOLATION, "statement_timeout", "lock_timeout", "standard_conforming_strings")
READ_SESSION = (
    "SELECT "
    + ", ".join(f"pg_catalog.current_setting('{name}') AS {name}" for name in _CHECKED)
    + ", pg_catalog.current_schemas(true) AS schemas,"
    " pg_catalog.current_setting('transaction_timeout', true) AS transaction_timeout"
)
"""What a session is like before anything of ours is set in it."""

READ_OVERRIDDEN = """SELECT d.setting FROM (SELECT unnest(s.setconfig) AS setting, s.setrole, s.setdatabase
FROM pg_catalog.pg_db_role_setting s) d
WHERE d.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
AND d.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user))
ORDER BY d.setrole <> 0, d.setdatabase <> 0"""
"""What database and role say about sessions; the later ones win."""


@asynccontextmanager
async def set_up(connection: Any) -> AsyncIterator[None]:
    """A transaction under our settings. It is not rolled back: whoever fails in it gives the connection up."""
    await connection.execute(BEGIN)
    yield
    await connection.execute("COMMIT")


def needs_transaction(found: Mapping[str, Any]) -> bool:
    """True for a session in which our statements do not mean what they should unless it is set up for each of them."""
    schemas = [name for name in found["schemas"] if not name.startswith("pg_temp")]
    return (
        found[_ISOLATION] != SESSION[_ISOLATION]
        or found["standard_conforming_strings"] != "on"
        or schemas[:1] != ["pg_catalog"]
    )


def overridden(settings: list[str]) -> dict[str, str]:
    """Of `name=value` pairs those that our statements do not follow."""
    found = dict(setting.split("=", 1) for setting in settings)
    return {name: value for name, value in found.items() if name in SESSION and value != SESSION[name]}
