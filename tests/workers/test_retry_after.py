"""What errors of other libraries say: how long to wait, whether they pass, and a word for the cause."""

from __future__ import annotations

import asyncio
import enum
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from tests.workers.scenes import ended, finish, serving
from tests.workers.test_serving import on_memory

from perdure import Store
from perdure.clock import ManualClock
from perdure.workers import Job, driving
from perdure.workers.retry_after import asked_pause
from perdure.workers.trouble import code_of

SENT = {"date": "Sun, 01 Mar 2026 10:00:00 GMT"}


class Refused(Exception):
    """As SDKs raise it."""

    def __init__(self, headers: Any) -> None:
        super().__init__("slow down")
        self.response = SimpleNamespace(headers=headers)


class Odd(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("the connection is closed")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after": "Sun, 01 Mar 2026 10:00:30 GMT", **SENT}, 30),
        ({"retry-after": "Sun, 01 Mar 2026 09:00:30 GMT", **SENT}, 0),
        ({"retry-after": "Sun, 01 Mar 2026 10:00:30 GMT"}, 0),
        ({"retry-after": "soon", **SENT}, 0),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": 20}, 0),
        ({}, 0),
        (None, 0),
        ("retry-after: 20", 0),
    ],
)
def test_a_pause_that_a_server_asks_for(headers: Any, seconds: float) -> None:
    assert asked_pause(Refused(headers)) == seconds
    assert asked_pause(ExceptionGroup("two", [ValueError("bug"), Refused(headers)])) == seconds


def test_an_error_that_cannot_be_asked_asks_for_nothing() -> None:
    assert asked_pause(Odd()) == 0
    assert asked_pause(ValueError("bug")) == 0


def test_a_handler_is_called_again_when_the_server_allows_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    errors = [Refused({"retry-after": "20"}), Refused({"retry-after": "600"}), *(Refused({}) for _ in range(4))]

    async def handler(job: Job) -> None:
        if errors:
            raise errors.pop(0)
        await finish(job)

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler, retry_on=(Refused,)):
            assert (await ended(store, run.id)).final_output == "Done."

    monkeypatch.setattr(driving, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": noted}))
    on_memory(body)
    assert [pause for pause in pauses if pause != driving.CHECK_SECONDS] == [20, 60, 4, 8, 16, 32]


def test_a_function_that_fails_says_no_and_the_error_counts(caplog: pytest.LogCaptureFixture) -> None:
    def passes(error: Any) -> bool:
        return bool(error.status_code >= 500)

    async def handler(job: Job) -> None:
        raise ValueError("the real error")

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler, retry_on=passes):
            outcome = (await ended(store, run.id)).outcome
        assert outcome is not None
        assert outcome.termination.detail == "ValueError: the real error"

    caplog.set_level(logging.ERROR, "perdure.workers")
    on_memory(body)
    (line,) = [record.getMessage() for record in caplog.records if "retry_on" in record.msg]
    assert line.startswith("retry_on failed for ValueError, which is not retried: AttributeError: ")


class Coded(Exception):
    def __init__(self, code: Any) -> None:
        super().__init__("it failed")
        self.code = code


class Cause(enum.StrEnum):
    BUSY = "busy"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Coded("context_length_exceeded"), "context_length_exceeded"),
        (Coded(Cause.BUSY), "busy"),
        (Coded(429), None),
        (Coded("the key sk-123 is wrong"), None),
        (Coded("x" * 65), None),
        (Coded("db-1.prod.internal:5432"), None),
        (Coded(""), None),
        (ValueError("no code"), None),
        (SystemExit("busy"), None),
    ],
)
def test_a_short_word_is_the_code_of_the_end(error: BaseException, code: str | None) -> None:
    async def handler(job: Job) -> None:
        raise error

    async def body(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "clerk")
        async with serving(store, handler):
            run = await ended(store, run.id)
        assert run.public_json()["outcome"] == {"type": "error", "code": code, "final_output": None}

    on_memory(body)
    assert code_of(error) == code
