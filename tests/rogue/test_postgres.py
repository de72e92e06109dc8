"""Rogue PostgreSQL servers: whatever they say, it ends in time, in an error of ours, and without our password."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rogue import postgres_talk as talk
from tests.rogue.sql_rogue import (
    MEGABYTE,
    PASSWORD,
    PATIENT,
    QUICK,
    Rogue,
    check_error,
    little_memory,
    opened,
    refusal_of,
)
from tests.support.servers.account import temporary_folder
from tests.support.servers.certificates import self_signed

from perdure import limits
from perdure.errors import InvalidError, PerdureError
from perdure.opening import plan_migration


@pytest.fixture(scope="module")
def certificate() -> Iterator[tuple[Path, Path]]:
    """A certificate that nobody vouches for, and its key; beside it is another of the same name."""
    folder = temporary_folder("rogue-postgres")
    self_signed(folder, folder / "server.crt", folder / "server.key", "IP:127.0.0.1")
    self_signed(folder, folder / "another.crt", folder / "another.key", "IP:127.0.0.1")
    yield folder / "server.crt", folder / "server.key"
    shutil.rmtree(folder)


async def meet(
    script: talk.Script, certificate: tuple[Path, Path] | None = None, options: str = QUICK
) -> list[PerdureError]:
    """Open a rogue's store, and ask what that would change; the errors, and never the password."""
    async with Rogue(script, certificate) as rogue:
        url = f"postgresql://app:{PASSWORD}@127.0.0.1:{rogue.port}/agents?{options}"
        errors = [await refusal_of(opened(url)), await refusal_of(plan_migration(url))]
        assert rogue.clients
        assert PASSWORD.encode() not in rogue.received
        for error in errors:
            check_error(error)
        return errors


@pytest.mark.parametrize("name", talk.CLEARTEXT_SCRIPTS)
def test_a_password_is_not_sent_in_clear(name: str, certificate: tuple[Path, Path]) -> None:
    for error in asyncio.run(meet(talk.CLEARTEXT_SCRIPTS[name], certificate, PATIENT)):
        assert isinstance(error, InvalidError)
        assert "asks for the password in clear text" in error.message
        assert "sslmode=verify-full" in (error.hint or "")


@pytest.mark.parametrize("sslmode", ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"])
@pytest.mark.parametrize("name", ["at once", "under unknown TLS"])
def test_no_sslmode_sends_it(sslmode: str, name: str, certificate: tuple[Path, Path]) -> None:
    script = talk.CLEARTEXT_SCRIPTS[name]
    root = f"&sslrootcert={certificate[0].with_name('another.crt')}" if sslmode.startswith("verify") else ""
    asyncio.run(meet(script, certificate, f"{QUICK}&sslmode={sslmode}{root}"))


def test_it_is_sent_where_the_url_says_so(certificate: tuple[Path, Path]) -> None:
    async def main() -> None:
        async with Rogue(talk.before_login(talk.CLEARTEXT, talk.NO)) as rogue:
            url = f"postgresql://app:{PASSWORD}@127.0.0.1:{rogue.port}/agents?{PATIENT}&allow_cleartext=yes"
            await refusal_of(opened(url))
            assert PASSWORD.encode() in rogue.received

    asyncio.run(main())


def test_it_is_sent_over_verified_tls(certificate: tuple[Path, Path]) -> None:
    async def main() -> None:
        async with Rogue(talk.under_tls(talk.CLEARTEXT, talk.NO), certificate) as known:
            secured = f"sslmode=verify-full&sslrootcert={certificate[0]}"
            await refusal_of(opened(f"postgresql://app:{PASSWORD}@127.0.0.1:{known.port}/agents?{PATIENT}&{secured}"))
            assert PASSWORD.encode() in known.received

    asyncio.run(main())


@pytest.mark.parametrize("name", talk.LOGIN_SCRIPTS)
def test_a_login_that_goes_wrong(name: str) -> None:
    asyncio.run(meet(talk.LOGIN_SCRIPTS[name]))


@pytest.mark.parametrize("name", ["SCRAM that is never checked", "no signature at all"])
def test_a_server_that_begins_scram_has_to_end_it(name: str) -> None:
    for error in asyncio.run(meet(talk.LOGIN_SCRIPTS[name], options=PATIENT)):
        assert "did not prove that it knows the password" in error.message


@pytest.mark.parametrize("name", talk.ENDLESS_SCRIPTS)
def test_a_login_without_end(name: str) -> None:
    with little_memory():
        asyncio.run(meet(talk.ENDLESS_SCRIPTS[name]))


@pytest.mark.parametrize("name", talk.ANSWER_SCRIPTS)
def test_an_answer_that_makes_no_sense(name: str) -> None:
    asyncio.run(meet(talk.ANSWER_SCRIPTS[name]))


@pytest.mark.parametrize("name", talk.ENDLESS_ANSWERS)
def test_an_answer_without_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES", MEGABYTE)
    with little_memory():
        asyncio.run(meet(talk.ENDLESS_ANSWERS[name], options=PATIENT))
