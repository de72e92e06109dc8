"""Logging in to a real PostgreSQL server by each of its methods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.engines.toys import SCHEMA, eventually
from tests.support.servers import fresh_database, server

from perdure.engines.postgres import open_engine
from perdure.errors import InvalidError, UnavailableError
from perdure.kernel.url import Host, parse_url

METHODS = {"scram-sha-256": "scram-sha-256", "md5": "md5", "password": "scram-sha-256"}
"""How the server asks, and how it keeps the password."""


def begin_with(rules: Path, line: str) -> None:
    """Put a rule before all others."""
    text = rules.read_text(encoding="utf-8")
    rules.write_text(text if line in text else line + text, encoding="utf-8")


async def account(url: str, method: str) -> str:
    """A role that has to log in by this method; the URL for it."""
    role, kept = f"by_{method.replace('-', '_')}", METHODS[method]
    connection: Any = await asyncpg.connect(url)
    try:
        begin_with(Path(await connection.fetchval("SHOW hba_file")), f"host all {role} all {method}\n")
        before = await connection.fetchval("SELECT pg_conf_load_time()")
        await connection.execute("SELECT pg_reload_conf()")

        async def reloaded() -> None:
            if await connection.fetchval("SELECT pg_conf_load_time()") == before:
                raise UnavailableError("the old rules are in force")

        await eventually(reloaded)
        await connection.execute(f"SET password_encryption = '{kept}'")
        await connection.execute(f"DROP ROLE IF EXISTS {role}")
        await connection.execute(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 's3cret-word'")
    finally:
        await connection.close()
    parts = parse_url(url)
    place = Host("127.0.0.1", parts.hosts[0].port)
    return f"postgresql://{role}:{{}}@{place}/{parts.path}?schema=logins"


@pytest.mark.parametrize("method", METHODS)
def test_each_method(method: str) -> None:
    async def main() -> None:
        url = await account(await fresh_database(server("postgres"), "logins"), method)
        right = url.format("s3cret-word")
        if method == "password":
            with pytest.raises(InvalidError, match="asks for the password in clear text"):
                await open_engine(right, SCHEMA)
            right += "&allow_cleartext=yes"
        engine = await open_engine(right, SCHEMA)
        assert await engine.scopes() == []
        await engine.close()
        with pytest.raises(InvalidError) as wrong:
            await open_engine(
                url.format("s3cret-wort") + ("&allow_cleartext=yes" if method == "password" else ""), SCHEMA
            )
        assert "refuses the login" in wrong.value.message

    asyncio.run(main())
