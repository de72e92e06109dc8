"""Who gets the password: nobody before his certificate is verified, and without TLS everybody whom a server names."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engines.redis_place import DEADLINE, empty, engine_at, refusal
from tests.engines.toys import SCHEMA
from tests.rogue.redis_server import CANARY, Rogue, array, bulk
from tests.support.servers import server

from perdure.engines.redis import open_engine, plan_migration
from perdure.errors import PerdureError, UnavailableError
from perdure.kernel.transport import InsecureTransportWarning

SECRET = CANARY.encode()


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, ssl.SSLContext]]:
    """Makes the identity of a server: its certificate for 127.0.0.1, and the context to serve with."""
    made: dict[str, tuple[Path, ssl.SSLContext]] = {}

    def of(name: str) -> tuple[Path, ssl.SSLContext]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            certificate, key = folder / "certificate.pem", folder / "key.pem"
            told = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
            curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
            files = ["-keyout", str(key), "-out", str(certificate)]
            subprocess.run(["openssl", "req", "-x509", *curve, *told, *files], check=True, capture_output=True)
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate, key)
            made[name] = certificate, context
        return made[name]

    return of


Identity = Callable[[str], tuple[Path, ssl.SSLContext]]


async def refused_once_heard(url: str, rogue: Rogue, words: bytes) -> PerdureError:
    """How opening ends once the rogue has heard these words: a second is short for a busy machine."""
    async with asyncio.timeout(DEADLINE):
        while True:
            error = await refusal(open_engine(url, SCHEMA))
            if words in rogue.heard:
                return error


def test_nothing_is_sent_before_the_certificate_is_verified(identity: Identity) -> None:
    async def main() -> None:
        trusted, _ = identity("trusted")
        async with Rogue(lambda _: b"+OK\r\n", tls=identity("stranger")[1]) as rogue:
            for url in (rogue.url, f"{rogue.url}&ssl_ca_certs={trusted}"):
                for opening in (open_engine, plan_migration):
                    assert isinstance(await refusal(opening(url, SCHEMA)), UnavailableError)
            assert not rogue.heard

    asyncio.run(main())


def test_a_node_that_a_cluster_names_must_prove_who_it_is(identity: Identity) -> None:
    async def main() -> None:
        trusted, honest = identity("trusted")
        async with Rogue(lambda _: b"+OK\r\n", tls=identity("stranger")[1]) as elsewhere:
            there = array(bulk(b"127.0.0.1"), b":%d\r\n" % elsewhere.port)
            slots = array(array(b":0\r\n", b":16383\r\n", there))
            async with Rogue(lambda _: slots, tls=honest) as node:
                url = f"{node.url}&ssl_ca_certs={trusted}".replace("rediss:", "rediss+cluster:")
                assert isinstance(await refused_once_heard(url, node, SECRET), UnavailableError)
            assert not elsewhere.heard

    asyncio.run(main())


def test_a_master_that_a_sentinel_names_must_prove_who_it_is(identity: Identity) -> None:
    async def main() -> None:
        trusted, honest = identity("trusted")
        async with Rogue(lambda _: b"+OK\r\n", tls=identity("stranger")[1]) as elsewhere:
            there = array(bulk(b"127.0.0.1"), bulk(b"%d" % elsewhere.port))
            async with Rogue(lambda _: there, tls=honest) as sentinel:
                url = f"{sentinel.url}&ssl_ca_certs={trusted}".replace("rediss:", "rediss+sentinel:")
                url = url.replace("/0?", "/main?")
                error = await refused_once_heard(url, sentinel, b"get-master-addr-by-name")
                assert isinstance(error, UnavailableError)
                assert SECRET not in sentinel.heard
            assert not elsewhere.heard

    asyncio.run(main())


def test_a_sentinel_that_is_not_verified_is_asked_nothing(identity: Identity) -> None:
    async def main() -> None:
        async with Rogue(lambda _: b"+OK\r\n", tls=identity("stranger")[1]) as sentinel:
            url = sentinel.url.replace("rediss:", "rediss+sentinel:").replace("/0?", "/main?")
            assert isinstance(await refusal(open_engine(url, SCHEMA)), UnavailableError)
            assert not sentinel.heard

    asyncio.run(main())


def test_without_tls_those_whom_a_server_names_get_the_password() -> None:
    """As the documentation says: nodes and masters are elsewhere by design, and only TLS tells friend from foe."""

    async def main() -> None:
        for kind in ("cluster", "sentinel"):
            async with Rogue(lambda _: b"*0\r\n") as elsewhere:
                there = array(bulk(b"127.0.0.1"), bulk(b"%d" % elsewhere.port))
                node = array(bulk(b"127.0.0.1"), b":%d\r\n" % elsewhere.port)
                told = there if kind == "sentinel" else array(array(b":0\r\n", b":16383\r\n", node))
                async with Rogue(lambda _, told=told: told) as rogue:
                    url = rogue.url.replace("redis:", f"redis+{kind}:")
                    url = url.replace("/0?", "/main?") if kind == "sentinel" else url
                    await refused_once_heard(url, elsewhere, SECRET)

    asyncio.run(main())


def test_a_way_that_leaves_the_machine_unprotected_is_a_problem_and_a_warning() -> None:
    async def main() -> None:
        plain = await empty()
        async with engine_at(plain) as engine:
            health = await engine.health()
            assert health.settings["tls"] == "none"
            assert not any("encrypted" in problem for problem in health.problems)
        # The same server by a name that is not known to stay on this machine.
        with pytest.warns(InsecureTransportWarning, match=r"127\.1 is not encrypted.*use rediss://"):
            async with engine_at(plain.replace("127.0.0.1", "127.1")) as engine:
                health = await engine.health()
        assert not health.ok
        assert any("127.1 is not encrypted" in problem for problem in health.problems)
        secured = server("redis-tls").url
        async with engine_at(secured) as engine:
            assert (await engine.health()).settings["tls"] == "verified"
        unchecked = secured.replace("127.0.0.1", "127.1") + "&ssl_check_hostname=no"
        with pytest.warns(InsecureTransportWarning, match="certificate is not verified"):
            async with engine_at(unchecked) as engine:
                health = await engine.health()
        assert health.settings["tls"] == "encrypted"
        assert any("certificate is not verified" in problem for problem in health.problems)

    asyncio.run(main())


def test_who_turns_the_warning_into_an_error_keeps_the_password() -> None:
    async def main() -> None:
        async with Rogue(lambda _: b"+OK\r\n") as rogue:
            elsewhere = rogue.url.replace("127.0.0.1", "127.1")
            with warnings.catch_warnings():
                warnings.simplefilter("error", InsecureTransportWarning)
                for opening in (open_engine, plan_migration):
                    with pytest.raises(InsecureTransportWarning):
                        await opening(elsewhere, SCHEMA)
            assert not rogue.heard

    asyncio.run(main())
