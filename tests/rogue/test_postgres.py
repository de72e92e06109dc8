"""Rogue PostgreSQL servers: whatever they say, it ends in time, in an error of ours, and without our password."""

from __future__ import annotations

import asyncio

import pytest
from tests.rogue import postgres_talk as talk
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
    return await meet_rogue("postgresql", script, certificate, options)


@pytest.mark.parametrize("name", talk.CLEARTEXT_SCRIPTS)
def test_a_password_is_not_sent_in_clear(name: str, certificate: Certificate) -> None:
    for error in asyncio.run(meet(talk.CLEARTEXT_SCRIPTS[name], certificate, PATIENT)):
        assert isinstance(error, InvalidError)
        assert "asks for the password in clear text" in error.message
        assert "sslmode=verify-full" in (error.hint or "")


@pytest.mark.parametrize("sslmode", ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"])
@pytest.mark.parametrize("name", ["at once", "under unknown TLS"])
def test_no_sslmode_sends_it(sslmode: str, name: str, certificate: Certificate) -> None:
    script = talk.CLEARTEXT_SCRIPTS[name]
    root = f"&sslrootcert={certificate[0].with_name('another.crt')}" if sslmode.startswith("verify") else ""
    asyncio.run(meet(script, certificate, f"{QUICK}&sslmode={sslmode}{root}"))


def test_it_is_sent_where_the_url_says_so(certificate: Certificate) -> None:
    async def main() -> None:
        async with Rogue(talk.before_login(talk.CLEARTEXT, talk.NO)) as rogue:
            url = f"postgresql://app:{PASSWORD}@127.0.0.1:{rogue.port}/agents?{PATIENT}&allow_cleartext=yes"
            await refusal_of(opened(url))
            assert PASSWORD.encode() in rogue.received

    asyncio.run(main())


def test_it_is_sent_over_verified_tls(certificate: Certificate) -> None:
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


@pytest.mark.parametrize("name", talk.UNASKED_SCRIPTS)
def test_what_nobody_asked_for_is_cut_off_quietly(name: str) -> None:
    """asyncio reports an exception in a protocol as a fatal error of its own, with the traceback in the log."""
    reports: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reports.append(str(context.get("message"))))
        await meet(talk.UNASKED_SCRIPTS[name])

    asyncio.run(main())
    assert [report for report in reports if "Fatal error" in report] == []


@pytest.mark.parametrize("name", talk.ENDLESS_ANSWERS)
def test_an_answer_without_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES", MEGABYTE)
    with little_memory():
        asyncio.run(meet(talk.ENDLESS_ANSWERS[name], options=PATIENT))
