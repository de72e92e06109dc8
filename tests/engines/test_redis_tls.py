"""TLS of the Redis engine: a check that is off was turned off, files that do not serve are named, hints that help."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.engines.redis_place import DEADLINE, engine_at, refusal
from tests.engines.toys import SCHEMA
from tests.support.servers import server

from perdure.engines.redis import open_engine
from perdure.engines.redis.connections import connect
from perdure.engines.redis.target import parse
from perdure.errors import InvalidError, UnavailableError
from perdure.kernel.ops import Read


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where `certificate.pem` and its `key.pem` are."""
    return Path(server("redis-tls").url.partition("ssl_ca_certs=")[2]).parent


def test_what_is_not_said_is_checked(folder: Path) -> None:
    usual = {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
    certificate = str(folder / "certificate.pem")
    assert parse("redis://h").ssl == {}
    assert parse("rediss://h").ssl == usual
    assert parse(f"rediss://h?ssl_ca_certs={certificate}").ssl == {**usual, "ssl_ca_certs": certificate}
    assert parse("rediss://h?ssl_check_hostname=no").ssl == {**usual, "ssl_check_hostname": False}
    assert parse("rediss://h?ssl_cert_reqs=none").ssl == {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    files = {"ssl_certfile": certificate, "ssl_keyfile": str(folder / "key.pem")}
    told = "&".join(f"{name}={path}" for name, path in files.items())
    assert parse(f"rediss://h?{told}").ssl == {**usual, **files}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("ssl_check_hostname=", "ssl_check_hostname is yes or no, not ''"),
        ("ssl_check_hostname=false", "ssl_check_hostname is yes or no, not 'false'"),
        ("ssl_check_hostname=yes&ssl_cert_reqs=none", "ssl_cert_reqs is none"),
        ("ssl_cert_reqs=maybe", "ssl_cert_reqs is none, optional or required, not 'maybe'"),
        ("ssl_cert_reqs=", "ssl_cert_reqs is none, optional or required, not ''"),
        ("ssl_ca_certs=", "ssl_ca_certs must name a file"),
        ("ssl_ca_certs=/no.pem", "ssl_ca_certs: there is no file '/no.pem'"),
        ("ssl_certfile=/no.pem&ssl_cert_reqs=none", "ssl_certfile: there is no file '/no.pem'"),
        ("ssl_keyfile=/no.pem", "ssl_keyfile needs ssl_certfile"),
        ("ssl_certfile={certificate}&ssl_keyfile=/no.pem", "ssl_keyfile: there is no file '/no.pem'"),
        ("ssl_ca_certs={other}", "ssl_ca_certs: the file '{other}' holds no certificate"),
        ("ssl_certfile={key}", "ssl_certfile: the file '{key}' holds no certificate"),
        ("ssl_certfile={certificate}", "ssl_certfile: the file '{certificate}' holds no key"),
        ("ssl_certfile={certificate}&ssl_keyfile={other}", "ssl_keyfile: the file '{other}' holds no key"),
    ],
)
def test_an_option_that_would_not_do_what_it_says(folder: Path, tmp_path: Path, options: str, told: str) -> None:
    other = tmp_path / "other.pem"
    other.write_text("no certificate")
    names = {"certificate": folder / "certificate.pem", "key": folder / "key.pem", "other": other}
    with pytest.raises(InvalidError) as refused:
        parse(f"rediss://h?{options.format(**names)}")
    assert told.format(**names) in str(refused.value)


@pytest.mark.filterwarnings("ignore::perdure.kernel.transport.InsecureTransportWarning")
def test_the_name_of_the_host_is_checked_unless_it_is_turned_off() -> None:
    async def main() -> None:
        # Another way to write the same address, and a name that the certificate does not hold.
        elsewhere = server("redis-tls").url.replace("//127.0.0.1:", "//127.1:")
        for options in ("", "&ssl_check_hostname=yes", "&ssl_cert_reqs=optional"):
            error = await refusal(open_engine(elsewhere + options, SCHEMA))
            assert isinstance(error, UnavailableError)
            assert "the host in the URL must be the one in it" in (error.hint or "")
        for options in ("&ssl_check_hostname=no", "&ssl_cert_reqs=none"):
            async with engine_at(elsewhere + options) as engine:
                assert await engine.view("nobody", [Read("notes", "t")]) == [[]]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["", "+sentinel", "+cluster"])
def test_hints_speak_of_certificates_and_of_tls(kind: str) -> None:
    async def main() -> None:
        secured, plain = (urlsplit(server(name).url).netloc for name in ("redis-tls", "redis"))
        path = "main" if kind == "+sentinel" else "0"
        untrusted = await refusal(open_engine(f"rediss{kind}://{secured}/{path}", SCHEMA))
        without = await refusal(open_engine(f"redis{kind}://{secured}/{path}", SCHEMA))
        async with asyncio.timeout(DEADLINE):
            needless = await refusal(open_engine(f"rediss{kind}://{plain}/{path}?connect_timeout=3600", SCHEMA))
        assert [type(error) for error in (untrusted, without, needless)] == 3 * [UnavailableError]
        assert "ssl_ca_certs must name the authority" in (untrusted.hint or "")
        assert "If it speaks TLS, use rediss://" in (without.hint or "")
        assert "the server does not speak TLS on this port" in str(needless)
        assert "redis:// to connect without TLS" in (needless.hint or "")

    asyncio.run(main())


@pytest.mark.parametrize("greeting", [b"-NOAUTH Authentication required.\r\n", b"+PONG\r\n"])
def test_a_plain_server_that_is_spoken_to_with_tls_never_hears_the_password(greeting: bytes) -> None:
    async def main() -> None:
        heard = bytearray()
        served: list[Any] = []

        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(asyncio.current_task())
            while data := await reader.read(1024):
                heard.extend(data)
                if b"PING" in data:
                    writer.write(greeting)
            writer.close()

        listening = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with asyncio.timeout(DEADLINE):
            error = await refusal(open_engine(f"rediss://user:secret@127.0.0.1:{port}?connect_timeout=3600", SCHEMA))
        await asyncio.gather(*served, return_exceptions=True)
        listening.close()
        assert "does not speak TLS" in str(error)
        assert b"PING" in heard
        assert b"secret" not in heard

    asyncio.run(main())


def test_a_slow_handshake_is_not_taken_for_a_plain_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_PROBE_AFTER", 0.0)

    async def main() -> None:
        async with engine_at(server("redis-tls").url) as engine:
            assert await engine.view("nobody", [Read("notes", "t")]) == [[]]

    asyncio.run(main())
