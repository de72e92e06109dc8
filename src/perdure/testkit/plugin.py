"""The pytest plugin: gives a test that asks for `perdure_case` and `perdure_provider` every pair of them.

It also sees to test servers: one that cannot be had skips the test that wants it (or fails it where servers are
required, see `perdure.testkit.servers`), and all of them end with the session. It is registered for everybody who has
Perdure and pytest installed, so it only adds one option and looks at names; everything else is imported when a test
wants it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perdure.testkit.kit import Case, Provider

FIXTURES = ("perdure_case", "perdure_provider")
_SERVERS = "perdure.testkit.servers"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--perdure-provider`, which may be given more than once."""
    parser.getgroup("perdure").addoption(
        "--perdure-provider",
        action="append",
        metavar="NAME",
        help="run the conformance cases on this engine: memory, sqlite, postgres, mysql, redis or package.module:Class "
        "(default: all built-in)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every case on every provider; a case that does not apply is a skip with its reason."""
    if not all(name in metafunc.fixturenames for name in FIXTURES):
        return
    from perdure.testkit.kit import registry
    from perdure.testkit.providers import BUILTIN, provider_named

    chosen = metafunc.config.getoption("--perdure-provider") or list(BUILTIN)
    pairs = [_pair(case, provider) for provider in map(provider_named, chosen) for case in registry().values()]
    metafunc.parametrize(FIXTURES, pairs)


def _pair(case: Case, provider: Provider) -> Any:
    reason = case.reason_to_skip(provider)
    marks = () if reason is None else (pytest.mark.skip(reason=reason),)
    return pytest.param(case, provider, id=f"{provider.name}:{case.id}", marks=marks)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """A fixture may want a server too."""
    return (yield from _skipped_without_server())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """A test that wants a server which cannot be had is skipped, loudly and counted."""
    return (yield from _skipped_without_server())


def _skipped_without_server() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except Exception as error:
        servers = sys.modules.get(_SERVERS)
        if servers is None or not isinstance(error, servers.ServerMissing) or servers.servers_required():
            raise
        pytest.skip(str(error))


def pytest_unconfigure() -> None:
    """End the servers of this process."""
    servers = sys.modules.get(_SERVERS)
    if servers is not None:
        servers.stop_all()
