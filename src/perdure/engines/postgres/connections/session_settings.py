"""The session settings that our statements need, whatever the server, the database or the role sets.

Our own sessions begin with `SESSION`. Behind a pooler every transaction may get another session, and a caller's pool
has the caller's settings: there a statement runs in an explicit transaction that begins with the same settings
(`BEGIN`), which end with it. They are sent together with the `BEGIN`, so that is one exchange either way.

Two settings are never changed: `synchronous_commit`, which decides how durable a commit is, and
`default_transaction_read_only`, with which administrators take a server out of use.
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
one locked row from holding up a whole batch; and that undo what would make our statements fail or change their meaning:
after a wait for a lock they read the rows again as committed by then, which is what READ COMMITTED does."""

KEEPALIVE = {"tcp_keepalives_idle": "60", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "6"}
"""The server probes a client that is silent for a minute. That keeps firewalls from forgetting an idle connection, and
frees the session of a client that vanished."""

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
"""Reads the settings of a session before ours are applied."""

READ_OVERRIDDEN = """SELECT d.setting FROM (SELECT unnest(s.setconfig) AS setting, s.setrole, s.setdatabase
FROM pg_catalog.pg_db_role_setting s) d
WHERE d.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
AND d.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user))
ORDER BY d.setrole <> 0, d.setdatabase <> 0"""
"""Settings that the database and the role give to sessions; the later ones win."""


@asynccontextmanager
async def set_up(connection: Any) -> AsyncIterator[None]:
    """A transaction with our settings. A failure does not roll it back: the caller then discards the connection."""
    await connection.execute(BEGIN)
    yield
    await connection.execute("COMMIT")


def needs_transaction(session: Mapping[str, Any]) -> bool:
    """True for a session in which our statements would change their meaning, unless each runs with our settings."""
    schemas = [name for name in session["schemas"] if not name.startswith("pg_temp")]
    return (
        session[_ISOLATION] != SESSION[_ISOLATION]
        or session["standard_conforming_strings"] != "on"
        or schemas[:1] != ["pg_catalog"]
    )


def overridden(settings: list[str]) -> dict[str, str]:
    """Those of the `name=value` settings that ours replace."""
    values = dict(setting.split("=", 1) for setting in settings)
    return {name: value for name, value in values.items() if name in SESSION and value != SESSION[name]}
