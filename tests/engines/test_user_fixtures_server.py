"""The fixtures for users' tests on a shared server: scopes that are gone afterwards, other data untouched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.servers import fresh_database, server
from tests.unit.test_user_fixtures import run_tests, scopes

import perdure.sync
from perdure import Message


@pytest.mark.parametrize("engine", ["postgres", "mysql", "redis"])
def test_a_shared_server_is_clean_before_and_after(engine: str, tmp_path: Path) -> None:
    url = asyncio.run(fresh_database(server(engine), "fixtures"))
    with perdure.sync.open(url, scope="production") as store:
        store.commit("precious", messages=[Message.user("keep me")])
    done = run_tests(tmp_path, f"--perdure-store={url}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
    assert scopes(url) == ["production"]
    with perdure.sync.open(url, scope="production") as store:
        assert store.load("precious").version == 1
