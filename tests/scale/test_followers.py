"""A small version of `followers`: 500 followers of 50 threads, and a writer in another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.scale.followers import judge, run
from tests.support.servers import ServerMissing, servers_required


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_every_follower_yields_its_records_while_another_process_writes(engine: str, tmp_path: Path) -> None:
    try:
        report = asyncio.run(run(engine, 500, 50, 1.0, str(tmp_path)))
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
    assert report["records delivered"] > 500
    judge(report)
