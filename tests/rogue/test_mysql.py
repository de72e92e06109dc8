"""Rogue MySQL servers: whatever they say, it ends in time, in an error of ours, and without our password."""

from __future__ import annotations

import asyncio

import pytest
from tests.rogue import mysql_talk as talk
from tests.rogue.meeting import Certificate, certificate, meet_rogue
from tests.rogue.sql_rogue import (
    MEGABYTE,
    PASSWORD,
    PATIENT,
    QUICK,
    Rogue,
    little_memory,
    opened,
    refusal_of,
)

from perdure import limits
from perdure.errors import InvalidError, PerdureError

__all__ = ["certificate"]


async def meet(script: talk.Script, certificate: Certificate | None = None, options: str = QUICK) -> list[PerdureError]:
    return await meet_rogue("mysql", script, certificate, options)


@pytest.mark.parametrize("name", talk.CLEARTEXT_SCRIPTS)
def test_a_password_is_not_sent_in_clear(name: str) -> None:
    for error in asyncio.run(meet(talk.CLEARTEXT_SCRIPTS[name], options=PATIENT)):
        assert isinstance(error, InvalidError)
        assert "asks for the password itself" in error.message
        assert "ssl_ca=" in (error.hint or "")


@pytest.mark.parametrize("name", talk.TLS_SCRIPTS)
def test_a_password_is_not_sent_to_an_unknown_certificate(name: str, certificate: Certificate) -> None:
    for error in asyncio.run(meet(talk.TLS_SCRIPTS[name], certificate, f"{PATIENT}&ssl=yes")):
        assert isinstance(error, InvalidError)
        assert "asks for the password itself" in error.message


@pytest.mark.parametrize("options", ["ssl=verify", "ssl_cert={0}&ssl_key={1}", "ssl=yes&ssl_cert={0}&ssl_key={1}"])
def test_who_shows_a_certificate_wants_to_see_one(options: str, certificate: Certificate) -> None:
    given = f"{PATIENT}&{options.format(*certificate)}"
    for error in asyncio.run(meet(talk.TLS_SCRIPTS["clear text"], certificate, given)):
        assert isinstance(error, InvalidError)
        assert "certificate verify failed" in error.message


@pytest.mark.parametrize("name", talk.ASKS_PLAINLY)
def test_it_is_sent_where_the_url_says_so(name: str) -> None:
    async def main() -> None:
        async with Rogue(talk.login(talk.ASKS_PLAINLY[name], talk.failure("thank you"))) as rogue:
            url = f"mysql://app:{PASSWORD}@127.0.0.1:{rogue.port}/agents?{PATIENT}&allow_cleartext=yes"
            await refusal_of(opened(url))
            assert PASSWORD.encode() in rogue.received

    asyncio.run(main())


@pytest.mark.parametrize("name", talk.TLS_SCRIPTS)
def test_it_is_sent_over_verified_tls(name: str, certificate: Certificate) -> None:
    async def main() -> None:
        async with Rogue(talk.TLS_SCRIPTS[name], certificate) as known:
            url = f"mysql://app:{PASSWORD}@127.0.0.1:{known.port}/agents?{PATIENT}&ssl_ca={certificate[0]}"
            await refusal_of(opened(url))
            assert PASSWORD.encode() in known.received

    asyncio.run(main())


@pytest.mark.parametrize("name", talk.LOGIN_SCRIPTS)
def test_a_login_that_goes_wrong(name: str) -> None:
    asyncio.run(meet(talk.LOGIN_SCRIPTS[name]))


@pytest.mark.parametrize("options", ["", "&ssl=yes"])
@pytest.mark.parametrize("name", talk.ENDLESS_SCRIPTS)
def test_a_login_without_end(name: str, options: str) -> None:
    with little_memory():
        asyncio.run(meet(talk.ENDLESS_SCRIPTS[name], None, QUICK + options))


@pytest.mark.parametrize("name", talk.ANSWER_SCRIPTS)
def test_an_answer_that_makes_no_sense(name: str) -> None:
    asyncio.run(meet(talk.ANSWER_SCRIPTS[name]))


@pytest.mark.parametrize("name", talk.ENDLESS_ANSWERS)
def test_an_answer_without_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES", MEGABYTE // 4)
    with little_memory():
        asyncio.run(meet(talk.ENDLESS_ANSWERS[name], options=PATIENT))
