"""A small version of `trimming`: 6,000 entries, on every engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.engines.toys import EMBEDDED, SERVERS
from tests.scale.trimming import run
from tests.support.servers import ServerMissing, servers_required


@pytest.mark.parametrize("engine", [*EMBEDDED, *SERVERS])
def test_a_log_is_trimmed_while_others_write_and_read(engine: str, tmp_path: Path) -> None:
    try:
        report = asyncio.run(run(engine, 6_000, tmp_path, alone=0.5))
    except ServerMissing as missing:
        if servers_required():
            raise
        pytest.skip(str(missing))
    assert report["expired cursors"] > 0
    assert report["pages read"] > 0
