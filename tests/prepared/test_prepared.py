"""A sample of the prepared stores, always the same; `python -m tests.prepared.run` takes them all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.prepared.examine import check_sound, examine
from tests.prepared.run import ENGINES, opened

SAMPLE = {"sqlite": 60, "redis": 40}


@pytest.mark.parametrize("engine", ENGINES)
def test_prepared_stores_are_refused_and_reported(engine: str, tmp_path: Path) -> None:
    stores = opened(engine, tmp_path)
    try:
        check_sound(stores)
        damages = stores.damages()
        assert len(damages) >= 300
        verdict = examine(stores, random.Random(1).sample(damages, SAMPLE[engine]))
    finally:
        stores.close()
    print(f"{engine}: {verdict.stores} of {len(damages)} prepared stores, {verdict.noticed} noticed")
    if verdict.problems:
        raise AssertionError("\n".join(verdict.problems))
