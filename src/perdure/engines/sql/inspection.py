"""Statements that look over a whole database: its scopes, the partitions of a log, and gaps in logs.

Scopes and partitions are walked along an index, one step for each, whatever the number of rows: a recursive query asks
for the smallest value beyond the last.
"""

from __future__ import annotations

from perdure.engines.sql.ddl import quote
from perdure.kernel.schema import Log


def scopes_sql(table: str) -> str:
    """Every scope with a row in `table` (quoted), in byte order."""
    return (
        f'WITH RECURSIVE s(x) AS (SELECT * FROM (SELECT min("scope") FROM {table}) AS f UNION ALL'
        f' SELECT (SELECT min("scope") FROM {table} WHERE "scope" > s.x) FROM s WHERE s.x IS NOT NULL)'
        " SELECT x FROM s WHERE x IS NOT NULL"
    )


def partitions_sql(log: Log, table: str, scope: str, after: str, limit: str) -> str:
    """Partitions of a log with entries, in byte order; `scope`, `after` and `limit` are parameters."""
    column = quote(log.partition)
    beyond = f'SELECT min({column}) FROM {table} WHERE "scope" = {scope} AND {column} >'
    return (
        f"WITH RECURSIVE p(x) AS (SELECT * FROM ({beyond} {after}) AS f UNION ALL"
        f" SELECT ({beyond} p.x) FROM p WHERE p.x IS NOT NULL)"
        f" SELECT x FROM p WHERE x IS NOT NULL LIMIT {limit}"
    )


def gap_problem(log: str, partition: str, scope: str, count: int, last: int) -> str:
    """A log whose entries do not follow each other to its end, in words."""
    return f"{log} {partition!r} of scope {scope!r} has {count} entries but ends at {last}"
