"""Which hosts are local, what is wrong with the way to the others, and that it is said once."""

from __future__ import annotations

import warnings

import pytest

import perdure
from perdure.cli import application
from perdure.engines.mysql.target import parse_target
from perdure.kernel.transport import is_local, tls_level, transport_problem, warn_insecure


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "/run/postgresql",
        "@abstract",
        "localhost",
        "LOCALHOST.",
        "db.localhost",
        "ip6-localhost",
        "127.0.0.1",
        "127.8.9.10",
        "::1",
        "[::1]",
        "::1%lo",
        "::ffff:127.0.0.1",
    ],
)
def test_what_stays_on_this_machine(host: str | None) -> None:
    assert is_local(host)
    assert transport_problem(host, encrypted=False, verified=False, advice="do") is None


@pytest.mark.parametrize(
    "host",
    [
        "db",
        "db.example",
        "localhost.example",
        "10.0.0.1",
        "128.0.0.1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "127.0.0.1.example",
    ],
)
def test_what_leaves_it(host: str) -> None:
    assert not is_local(host)
    plain = transport_problem(host, encrypted=False, verified=False, advice="use TLS")
    taken = transport_problem(host, encrypted=True, verified=False, advice="use TLS")
    assert plain == f"the connection to {host} is not encrypted: others on the network can read and change it; use TLS"
    assert taken is not None
    assert f"{host} is encrypted, but the server's certificate is not verified" in taken
    assert transport_problem(host, encrypted=True, verified=True, advice="use TLS") is None


def test_a_host_that_steers_a_terminal_is_escaped_and_cut() -> None:
    problem = transport_problem("\x1b[2J" + "x" * 5_000, encrypted=False, verified=False, advice="do") or ""
    assert problem.isprintable()
    assert len(problem) < 400


def test_levels() -> None:
    assert tls_level(encrypted=False, verified=False) == "none"
    assert tls_level(encrypted=False, verified=True) == "none"
    assert tls_level(encrypted=True, verified=False) == "encrypted"
    assert tls_level(encrypted=True, verified=True) == "verified"


def test_python_shows_each_problem_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for problem in ("db is not encrypted", "db is not encrypted", "db is not verified", None):
            warn_insecure(problem)
    assert [str(warning.message) for warning in caught] == ["db is not encrypted", "db is not verified"]


def test_a_warning_that_is_an_error_comes_every_time_also_after_it_was_shown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", perdure.InsecureTransportWarning)
        warn_insecure("not encrypted")
        warnings.simplefilter("error", perdure.InsecureTransportWarning)
        for _ in range(2):
            with pytest.raises(perdure.InsecureTransportWarning, match="not encrypted"):
                warn_insecure("not encrypted")


def test_the_command_line_warns_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = transport_problem("db", encrypted=False, verified=False, advice="use TLS")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = application._show_warning
        monkeypatch.setattr("sys.argv", ["perdure", "threads"])
        warn_insecure(problem)
        monkeypatch.setattr("sys.argv", ["perdure", "threads", "--json"])
        warn_insecure(problem)
    assert " ".join(capsys.readouterr().err.split()) == f"warning: {problem}"


@pytest.mark.parametrize(
    ("url", "level", "problem"),
    [
        ("mysql://h/db", "none", "not encrypted"),
        ("mysql://h/db?ssl=yes", "encrypted", "not verified"),
        ("mysql://h/db?ssl=verify", "verified", None),
        (f"mysql://h/db?ssl_ca={__file__}", "verified", None),
        (f"mysql://h/db?ssl_cert={__file__}&ssl_key={__file__}", "verified", None),
        ("mysql://localhost/db", "none", None),
        ("mysql://h/db?unix_socket=/run/mysqld/mysqld.sock", None, None),
    ],
)
def test_how_a_mysql_url_is_protected(url: str, level: str | None, problem: str | None) -> None:
    target = parse_target(url)
    assert target.tls == level
    found = target.transport_problem()
    assert (found is None) == (problem is None)
    assert problem is None or problem in (found or "")
