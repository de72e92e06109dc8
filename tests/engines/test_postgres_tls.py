"""PostgreSQL behind TLS: what sslmode asks for is checked, and what is wrong is told at once and in words."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.toys import DEADLINE, SCHEMA, SCOPE, notes, watching
from tests.support.servers import server
from tests.support.servers.account import temporary_folder
from tests.support.servers.certificates import self_signed

from perdure.engines.postgres import open_engine
from perdure.errors import InvalidError, PerdureError, UnavailableError
from perdure.kernel.ops import Heads

PATIENT = "connect_timeout=3600"
"""A mistake must be told at once: no test here waits that long."""


@pytest.fixture(scope="module")
def stranger() -> Iterator[Path]:
    """A certificate of the same name that the server does not have."""
    folder = temporary_folder("stranger")
    self_signed(folder, folder / "stranger.crt", folder / "stranger.key")
    yield folder / "stranger.crt"
    shutil.rmtree(folder)


def secured(sslmode: str, *, trusted: Path | None = None, host: str = "localhost") -> str:
    """The URL of the TLS server in another mode, with another certificate to trust, or by another name."""
    plain, _, options = server("postgres-tls").url.partition("?")
    certificate = options.partition("sslrootcert=")[2] if trusted is None else trusted
    root = f"&sslrootcert={certificate}" if sslmode.startswith("verify") else ""
    return f"{plain.replace('localhost', host)}?sslmode={sslmode}{root}&{PATIENT}"


async def round_trip(url: str) -> Any:
    """Write, read and be woken through a URL; how the sessions of the store are encrypted."""
    engine = await open_engine(f"{url}&schema=tls", SCHEMA)
    try:
        ((before,),) = await engine.view(SCOPE, [Heads("notes", ["t"])])
        watch = await watching(engine, "topic")
        await engine.transact(SCOPE, [notes("t", f"n{before}")], ["topic"])
        assert await watch.wait(DEADLINE)
        assert await engine.view(SCOPE, [Heads("notes", ["t"])]) == [[before + 1]]
        pool: Any = engine._pool  # what it is made of is not part of the contract
        rows = await pool.ask(
            "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'perdure'"
        )
        return {row["ssl"] for row in rows}
    finally:
        await engine.close()


async def refusal(kind: type[PerdureError], url: str) -> str:
    with pytest.raises(kind) as caught:
        await open_engine(url, SCHEMA)
    return str(caught.value)


@pytest.mark.parametrize("sslmode", ["verify-full", "verify-ca", "require", "prefer"])
def test_every_session_is_encrypted(sslmode: str) -> None:
    assert asyncio.run(round_trip(secured(sslmode))) == {True}


def test_by_a_name_that_the_certificate_does_not_have() -> None:
    async def main() -> None:
        assert await round_trip(secured("verify-ca", host="127.0.0.1")) == {True}
        told = await refusal(UnavailableError, secured("verify-full", host="127.0.0.1"))
        assert "no TLS with postgresql://postgres@127.0.0.1" in told
        assert "not valid for '127.0.0.1'" in told
        assert "sslmode" in told

    asyncio.run(main())


@pytest.mark.parametrize("sslmode", ["verify-full", "verify-ca"])
def test_a_certificate_that_nobody_vouches_for(sslmode: str, stranger: Path) -> None:
    async def main() -> None:
        told = await refusal(UnavailableError, secured(sslmode, trusted=stranger))
        assert "certificate verify failed" in told
        assert "check sslmode and the certificates" in told

    asyncio.run(main())


def test_a_file_that_holds_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "empty.crt").write_text("")

    async def main() -> None:
        told = await refusal(PerdureError, secured("verify-full", trusted=tmp_path / "empty.crt"))
        assert "certificate" in told

    asyncio.run(main())


def test_without_tls_where_the_server_insists_on_it() -> None:
    async def main() -> None:
        told = await refusal(InvalidError, secured("disable"))
        assert "no encryption" in told
        assert "sslmode=require" in told

    asyncio.run(main())
