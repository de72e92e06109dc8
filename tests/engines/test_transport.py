"""Real servers, taken for distant ones: `health()` and a warning say how the connection is protected."""

from __future__ import annotations

import asyncio
import warnings

import pytest
from tests.engines.toys import SCHEMA
from tests.support.servers import ServerMissing, fresh_database, server, servers_required

import perdure
from perdure.engines import mysql, postgres
from perdure.kernel import transport

ENGINES = {"postgres": postgres, "mysql": mysql}


@pytest.fixture
def distant(monkeypatch: pytest.MonkeyPatch) -> None:
    """No host is taken for this machine."""
    monkeypatch.setattr(transport, "is_local", lambda host: host is None)


async def url_of(kind: str) -> str:
    try:
        return await fresh_database(server(kind), "transport")
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))


async def health_of(kind: str, url: str) -> perdure.Health:
    engine = await ENGINES[kind].open_engine(url, SCHEMA)
    try:
        return await engine.health()
    finally:
        await engine.close()


def unprotected(health: perdure.Health) -> list[str]:
    return [problem for problem in health.problems if problem.startswith("the connection to ")]


@pytest.mark.parametrize("kind", ENGINES)
def test_a_distant_server_without_tls(kind: str, distant: None) -> None:
    async def main() -> None:
        url = await url_of(kind)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            healths = [await health_of(kind, url) for _ in range(2)]
        told = [str(each.message) for each in caught if each.category is perdure.InsecureTransportWarning]
        for health in healths:
            assert not health.ok
            assert health.settings["tls"] == "none"
            assert unprotected(health) == told[:1]
        assert told == told[:1] * 2
        assert "is not encrypted" in told[0]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ENGINES)
def test_the_same_server_on_this_machine(kind: str) -> None:
    async def main() -> None:
        health = await health_of(kind, await url_of(kind))
        assert health.settings["tls"] == "none"
        assert unprotected(health) == []

    asyncio.run(main())


@pytest.mark.parametrize("kind", ENGINES)
def test_an_application_that_insists(kind: str, distant: None) -> None:
    async def main() -> None:
        url = await url_of(kind)
        with warnings.catch_warnings():
            warnings.simplefilter("error", perdure.InsecureTransportWarning)
            for _ in range(2):
                with pytest.raises(perdure.InsecureTransportWarning):
                    await health_of(kind, url)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sslmode", "level", "problem"),
    [
        ("prefer", "encrypted", "is not verified"),
        ("require", "encrypted", "is not verified"),
        ("verify-full", "verified", ""),
    ],
)
def test_a_distant_postgres_with_tls(sslmode: str, level: str, problem: str, distant: None) -> None:
    plain, _, options = server("postgres-tls").url.partition("?")
    root = f"&sslrootcert={options.partition('sslrootcert=')[2]}" if sslmode.startswith("verify") else ""

    async def main() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", perdure.InsecureTransportWarning)
            health = await health_of("postgres", f"{plain}?sslmode={sslmode}{root}&schema=transport")
        assert health.settings["tls"] == level
        told = unprotected(health)
        assert len(told) == bool(problem)
        assert all(problem in each for each in told)

    asyncio.run(main())
