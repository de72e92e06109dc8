"""What a MySQL server or its URL refuses for good is told at once, with what to do; it is never tried again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engines.mysql_place import emptied, run, sql
from tests.engines.toys import SCHEMA, notes

from perdure.engines.mysql import open_engine
from perdure.engines.mysql.connections import connect
from perdure.engines.mysql.target import Target, parse_target
from perdure.errors import InvalidError, PerdureError, UnavailableError, UnsupportedError


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every attempt to connect, by host."""
    made: list[str] = []
    open_once = connect._open_once

    async def counted(target: Target, patience: float) -> Any:
        made.append(target.host)
        return await open_once(target, patience)

    monkeypatch.setattr(connect, "_open_once", counted)
    return made


async def _refused(url: str) -> PerdureError:
    with pytest.raises(PerdureError) as refusal:
        await open_engine(url, SCHEMA)
    return refusal.value


def test_a_server_without_tls(attempts: list[str]) -> None:
    async def scenario() -> None:
        url = await emptied("refusals")
        ((have,),) = (await sql(url, "SELECT @@have_ssl"))[0]
        if have == "YES":
            pytest.skip("this server has TLS")
        attempts.clear()
        refusal = await _refused(f"{url}?ssl=yes")
        assert isinstance(refusal, InvalidError)
        assert "TLS with mysql://" in refusal.message
        assert "the server offers no TLS" in (refusal.hint or "")
        assert len(attempts) == 1

    run(scenario())


@pytest.mark.urls
def test_an_unknown_host(attempts: list[str]) -> None:
    async def scenario() -> None:
        refusal = await _refused("mysql://app:s3cret@no-such-host.invalid/agents")
        assert isinstance(refusal, UnavailableError)
        assert (refusal.hint, len(attempts)) == ("check the host name in the URL", 1)
        assert "s3cret" not in str(refusal)

    run(scenario())


def test_a_database_that_the_user_may_not_use() -> None:
    async def scenario() -> None:
        url = await emptied("refusals")
        target = parse_target(url)
        await sql(url, "CREATE OR REPLACE USER perdure_guest@'%' IDENTIFIED BY 's3cret'")
        guest = f"mysql://perdure_guest:s3cret@{target.host}:{target.port}"
        for database in (target.database, "no_such_database"):
            refusal = await _refused(f"{guest}/{database}")
            assert isinstance(refusal, InvalidError)
            assert "no such database, or no right to use it" in refusal.message
            assert "GRANT" in (refusal.hint or "")
        await sql(url, "DROP USER perdure_guest@'%'")

    run(scenario())


@pytest.mark.parametrize("option", ["ssl_ca", "ssl_cert", "ssl_key"])
def test_a_file_that_is_missing(option: str, tmp_path: Path) -> None:
    missing, there = tmp_path / "missing.pem", tmp_path / "there.pem"
    there.touch()
    also = f"&ssl_cert={there}" if option == "ssl_key" else ""
    with pytest.raises(InvalidError, match=f"{option}: there is no file '{missing}'"):
        parse_target(f"mysql://h/db?{option}={missing}{also}")


def test_a_file_that_is_no_certificate(tmp_path: Path, attempts: list[str]) -> None:
    async def scenario() -> None:
        broken = tmp_path / "broken.pem"
        broken.write_text("no certificate")
        refusal = await _refused(f"mysql://127.0.0.1:1/db?ssl_ca={broken}")
        assert isinstance(refusal, InvalidError)
        assert "check the files of ssl_ca" in (refusal.hint or "")
        assert len(attempts) == 1

    run(scenario())


def test_a_key_without_its_certificate(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="ssl_key needs ssl_cert"):
        parse_target(f"mysql://h/db?ssl_key={tmp_path / 'key.pem'}")


@pytest.mark.urls
@pytest.mark.parametrize("password", ["s3/cret", "3/cret", "s3?cret", "3?cret", "s3#cret", "3#cret", "3/cr?e=t"])
def test_a_password_that_is_not_escaped(password: str) -> None:
    for database in ("db", "d/b"):
        with pytest.raises(InvalidError) as refusal:
            parse_target(f"mysql://app:{password}@h/{database}")
        assert "%2F %3F %23 %40" in (refusal.value.hint or "")
        assert "cret" not in str(refusal.value)


def test_another_event_loop_may_not_even_close_it() -> None:
    async def scenario() -> None:
        engine = await open_engine(await emptied("refusals"), SCHEMA)

        def elsewhere() -> None:
            with pytest.raises(UnsupportedError, match="another event loop"):
                asyncio.run(engine.close())

        await asyncio.to_thread(elsewhere)
        await engine.transact("s", [notes("t", "a")])
        await engine.close()

    run(scenario())


@pytest.mark.parametrize("timeout", ["0.2", "0.4"])
def test_a_server_that_is_not_there(timeout: str) -> None:
    async def scenario() -> None:
        refusal = await _refused(f"mysql://127.0.0.1:1/db?connect_timeout={timeout}")
        assert isinstance(refusal, UnavailableError)
        assert refusal.message.endswith(f"(tried for {timeout} s)")
        assert refusal.hint == "check that the server is running"

    run(scenario())
