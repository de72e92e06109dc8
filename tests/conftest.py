"""What every test shares: the servers, which end with the run, and one random seed, the same in every worker process.

A test that wants chance takes the `seed` fixture and builds its own `random.Random(seed)`. The line in the header
replays the run. Coroutines are run by the test itself with `asyncio.run`: there is no plugin and no event loop
that outlives its test.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.support import providers, servers

SEED_VARIABLE = "PERDURE_SEED"

# A slow shared machine is no reason to fail; a failure prints the blob that replays it.
settings.register_profile("perdure", deadline=None, print_blob=True)
settings.load_profile("perdure")


# Imported for its effect: `--perdure-provider` now knows the server engines too.
ENGINES = providers.BUILTIN


def pytest_configure() -> None:
    # Workers inherit the environment, so all of them draw from the seed that the header names.
    os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(2**32)))


def pytest_report_header() -> str:
    return f"seed: {os.environ[SEED_VARIABLE]} (replay with {SEED_VARIABLE}={os.environ[SEED_VARIABLE]})"


def pytest_unconfigure() -> None:
    servers.stop_all()


@pytest.fixture
def seed() -> int:
    return int(os.environ[SEED_VARIABLE])


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """A job in the background begins with Ctrl-C ignored; a test that sends it to itself wants it heard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
