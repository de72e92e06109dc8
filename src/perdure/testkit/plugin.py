"""The pytest plugin: runs a test that asks for `perdure_case` and `perdure_provider` with every pair of them.

Load it with `pytest -p perdure.testkit.plugin`; installing Perdure alone adds nothing to a test run. A test whose
provider raises `ServerMissing` is skipped, or fails where servers are required (see `kit.servers_required`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from perdure.testkit.kit import Case, Provider, ServerMissing, registry, servers_required
from perdure.testkit.providers import provider_named, provider_names

FIXTURES = ("perdure_case", "perdure_provider")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--perdure-provider`, which may be repeated."""
    parser.getgroup("perdure").addoption(
        "--perdure-provider",
        action="append",
        metavar="NAME",
        help="run the conformance cases on this engine: memory, sqlite or package.module:Class (default: all)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every case on every provider; a case that does not apply is a skip with its reason."""
    if not all(name in metafunc.fixturenames for name in FIXTURES):
        return
    names = metafunc.config.getoption("--perdure-provider") or provider_names()
    pairs = [_pair(case, provider) for provider in map(provider_named, names) for case in registry().values()]
    metafunc.parametrize(FIXTURES, pairs)


def _pair(case: Case, provider: Provider) -> Any:
    reason = case.reason_to_skip(provider)
    marks = () if reason is None else (pytest.mark.skip(reason=reason),)
    return pytest.param(case, provider, id=f"{provider.name}:{case.id}", marks=marks)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """A fixture may need a server too."""
    return (yield from _skip_without_server())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Skip a test whose server is missing, with the reason."""
    return (yield from _skip_without_server())


def _skip_without_server() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
