"""A sample of the hostile inputs on every engine; `python -m tests.hostile.run` tries them all."""

from __future__ import annotations

import pytest
from tests.hostile.inputs import COUNTS, hostile_inputs, sample
from tests.hostile.run import run_engine
from tests.support.providers import BUILTIN, EMBEDDED
from tests.support.servers import ServerMissing, servers_required


def test_there_are_two_thousand_of_them() -> None:
    inputs = hostile_inputs()
    assert len({item.text for item in inputs}) >= 2_000
    assert {item.kind for item in inputs} == set(COUNTS)
    assert inputs == hostile_inputs()


@pytest.mark.parametrize("engine", BUILTIN)
def test_hostile_inputs_are_refused_or_kept_as_they_are(engine: str) -> None:
    chosen = sample(90 if engine == "sqlite" else 18)
    inputs = [item for item in chosen if engine == "memory" or item.kind != "url"]
    try:
        tally = run_engine(engine, inputs)
    except ServerMissing as missing:
        if engine in EMBEDDED or servers_required():
            raise
        pytest.skip(str(missing))
    assert tally.failures == []
