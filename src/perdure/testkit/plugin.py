"""The pytest plugin: gives a test that asks for `perdure_case` and `perdure_provider` every pair of them.

It is registered for everybody who has Perdure and pytest installed, so it only adds one option and looks at argument
names; everything else is imported when a test wants it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perdure.testkit.kit import Case, Provider

FIXTURES = ("perdure_case", "perdure_provider")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--perdure-provider`, which may be given more than once."""
    parser.getgroup("perdure").addoption(
        "--perdure-provider",
        action="append",
        metavar="NAME",
        help="run the conformance cases on this engine: memory, sqlite or package.module:Class (default: all built-in)",
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
