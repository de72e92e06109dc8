"""The conformance suite as one test, for `pytest --pyargs perdure.testkit.suite`, on any engine.

Choose the engine with `--perdure-provider`; the plugin fills in the arguments.
"""

from __future__ import annotations

import asyncio

from perdure.testkit.kit import Case, Provider, run_case


def test_conformance(perdure_case: Case, perdure_provider: Provider) -> None:
    """One case on one engine."""
    asyncio.run(run_case(perdure_case, perdure_provider))
