"""`retryable` is True only where the same call may succeed later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
import perdure.sync
from perdure import ConflictError, UnavailableError
from perdure.stores.retry import Stale, retry


def test_a_closed_store_is_not_worth_a_retry(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")

    async def main() -> None:
        store = await perdure.open(url)
        await store.close()
        with pytest.raises(UnavailableError, match="the store is closed") as caught:
            await store.threads.list()
        assert not caught.value.retryable

    asyncio.run(main())
    assert UnavailableError("the server does not answer").retryable
    with perdure.sync.open(url) as store:
        store.close()
        with pytest.raises(UnavailableError) as caught:
            store.threads.list()
        assert not caught.value.retryable


def test_contention_is_worth_a_retry_and_other_conflicts_are_not() -> None:
    async def attempt() -> None:
        raise Stale

    with pytest.raises(ConflictError, match="thread 't-1' kept changing") as caught:
        asyncio.run(retry("thread", "t-1", attempt))
    assert caught.value.retryable
    assert not ConflictError("the destination has other data").retryable
