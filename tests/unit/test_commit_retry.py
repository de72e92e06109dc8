"""A commit that conflicts for no reason that can be read is given up soon, whatever its size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import ConflictError, Message
from perdure.kernel.engine import Conflict
from perdure.stores.commit.execute import UNMOVED_ATTEMPTS


def test_a_commit_that_nothing_explains_is_sent_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        sent: list[Any] = []

        async def refuse(*arguments: Any) -> Any:
            sent.append(arguments)
            raise Conflict(0, "condition", None, None)

        async with perdure.open("memory://") as store:
            await store.commit("t", messages=[Message.user("one")])
            with monkeypatch.context() as patched:
                patched.setattr(store.engine, "transact", refuse)
                patched.setattr(store.engine, "transact_filled", refuse)
                with pytest.raises(ConflictError) as refusal:
                    await store.scoped("default").commit("t", messages=[Message.user("two")])
            assert refusal.value.retryable
            assert 1 < len(sent) <= UNMOVED_ATTEMPTS + 2
            assert (await store.threads.get("t")).version == 1

    asyncio.run(main())
