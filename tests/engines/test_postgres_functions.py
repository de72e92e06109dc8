"""Server-side functions: builds of several releases share a database, and each keeps the functions it calls."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.engines.toys import SCHEMA, SCOPE, columns, notes
from tests.support.servers import fresh_database, server

from perdure.engines.postgres import open_engine, plan_migration
from perdure.engines.postgres.migrate import fingerprint
from perdure.engines.postgres.target import parse_target
from perdure.errors import UnsupportedError
from perdure.kernel.ops import Delete, Drop, Put

FUNCTIONS_1 = Path(__file__).parent.parent / "fixtures" / "postgres-functions-1.sql"
FINGERPRINT_1 = "f72264b21ecfd75d"
_NAMES = "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'perdure'"
_DEFINITIONS = """SELECT p.oid::bigint, pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n
ON n.oid = p.pronamespace WHERE n.nspname = 'perdure' AND p.proname IN ('refuse', 'carry_out') ORDER BY p.proname"""
_CALL_1 = """SELECT perdure.carry_out($1, 7, 9, '[{"op": 0, "run":
"DELETE FROM perdure.items WHERE scope = $1 AND id = ($4)[1] RETURNING 1", "state": "PD001", "key": [1]}]', $2)"""


async def old_store(url: str) -> Any:
    """A connection to a store as an older build left it: with its functions, and none of this build's."""
    engine = await open_engine(url, SCHEMA)
    await engine.transact(SCOPE, [Put("items", (key,), {"n": 1}) for key in "abc"])
    await engine.close()
    link = await asyncpg.connect(parse_target(url).dsn)
    for (name,) in await link.fetch(_NAMES):
        await link.execute(f"DROP FUNCTION perdure.{name}")
    await link.execute(FUNCTIONS_1.read_text())
    await link.execute("DELETE FROM perdure.perdure_meta WHERE name LIKE 'functions%'")
    await link.execute("INSERT INTO perdure.perdure_meta VALUES ('functions', $1)", FINGERPRINT_1)
    return link


def test_opening_an_old_store_adds_functions_and_leaves_those_of_older_builds() -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "functions")
        link = await old_store(url)
        before = await link.fetch(_DEFINITIONS)
        assert len(before) == 2
        plan = await plan_migration(url, SCHEMA)
        assert [statement.split("(")[0] for statement in plan.steps] == [
            'CREATE OR REPLACE FUNCTION "perdure"."refuse_v2"',
            'CREATE OR REPLACE FUNCTION "perdure"."run_steps_v2"',
        ]
        engine = await open_engine(url, SCHEMA)
        assert {name for (name,) in await link.fetch(_NAMES)} == {"refuse", "carry_out", "refuse_v2", "run_steps_v2"}
        await engine.transact(SCOPE, [Delete("items", ("a",)), Drop("notes", "t"), notes("u", "x")])
        # A process of the older build that is still running calls its own, and one that opens finds its record.
        await link.execute(_CALL_1, SCOPE, ["b"])
        assert await columns(engine, "items", "c") == {"n": 1}
        assert await link.fetchval("SELECT string_agg(id, '') FROM perdure.items") == "c"
        assert await link.fetch(_DEFINITIONS) == before
        record = dict(await link.fetch("SELECT * FROM perdure.perdure_meta WHERE name LIKE 'functions%'"))
        assert record == {"functions": FINGERPRINT_1, "functions_v2": fingerprint("perdure")}
        assert not (await plan_migration(url, SCHEMA)).steps
        await engine.close()
        await link.close()

    asyncio.run(main())


def test_functions_that_change_get_a_new_version() -> None:
    """What a function takes and does never changes under its name: running processes go on calling it. A change is a
    new `FUNCTIONS_VERSION`, and only with it does the value here change."""
    assert fingerprint("perdure") == "36144b2a4b25f81c"


def test_a_role_that_may_not_migrate_is_sent_to_the_owner() -> None:
    async def main() -> None:
        url = await fresh_database(server("postgres"), "functions_role")
        link, worker = await old_store(url), f"migrating_{os.getpid()}"
        await link.execute(
            f"CREATE ROLE {worker} LOGIN; GRANT USAGE ON SCHEMA perdure TO {worker};"
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure TO {worker}"
        )
        try:
            theirs = url.replace("//postgres@", f"//{worker}@")
            for refused in (theirs, f"{theirs}?migrate=no"):
                with pytest.raises(UnsupportedError) as refusal:
                    await open_engine(refused, SCHEMA)
                assert "as the owner of the schema" in (refusal.value.hint or "")
            await (await open_engine(url, SCHEMA)).close()
            await (await open_engine(theirs, SCHEMA)).close()
        finally:
            await link.execute(f"DROP OWNED BY {worker}; DROP ROLE {worker}")
            await link.close()

    asyncio.run(main())
