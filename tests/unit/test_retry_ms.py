"""`perdure.open(url, retry_ms=…)`: what is repeated, what never is, and which error ends it, on a scripted engine."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
import perdure.sync
from perdure import ConflictError, InvalidError, Message, NotFoundError, OutcomeUnknown, Store, UnavailableError
from perdure.kernel.engine import Conflict
from perdure.stores import patience

LONG = 600_000
Act = Callable[[Store], Awaitable[Any]]


class Script:
    """Makes the next calls of an engine fail: before the transaction is applied, or after it, as a lost answer."""

    def __init__(self, engine: Any, *faults: str) -> None:
        self.faults = list(faults)
        self.calls: list[str] = []
        self._view = engine.view
        engine.view = self.view
        engine.transact = partial(self._faulty, engine.transact)
        engine.transact_filled = partial(self._faulty, engine.transact_filled)

    async def _faulty(self, transact: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        fault = self._next("transact")
        if fault == "lost":
            await transact(*arguments)
        if fault in ("lost", "unsent"):
            raise OutcomeUnknown("the answer was lost", rev=1)
        self._fail(fault)
        return await transact(*arguments)

    async def view(self, *arguments: Any) -> Any:
        self._fail(self._next("view"))
        return await self._view(*arguments)

    def _next(self, call: str) -> str:
        self.calls.append(call)
        return self.faults.pop(0) if self.faults else ""

    def _fail(self, fault: str) -> None:
        if fault == "down":
            raise UnavailableError("the server does not answer")
        if fault == "closed":
            raise UnavailableError("closed", retryable=False)
        if fault == "conflict":
            raise Conflict(0, "condition", None, None)


def outcome_of(act: Act, *faults: str, retry_ms: int = LONG) -> tuple[Any, int, Script]:
    """What the act returned or raised on thread t, how many messages the thread has then, and the script."""

    async def scenario() -> tuple[Any, int, Script]:
        async with perdure.open("memory://", housekeeping=False, retry_ms=retry_ms) as store:
            await store.commit("t", messages=[Message.user("first", id="m0")])
            script = Script(store.engine, *faults)
            try:
                answer: Any = await act(store.scoped("default"))
            except perdure.PerdureError as error:
                answer = error
            script.faults.clear()
            return answer, (await store.threads.get("t")).version, script

    return asyncio.run(scenario())


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FIRST_PAUSE", 0.0001)


def keyed(store: Store) -> Awaitable[Any]:
    return store.commit("t", messages=[Message.user("x")], key="k")


def plain(store: Store) -> Awaitable[Any]:
    return store.commit("t", messages=[Message.user("x")])


async def freeze(store: Store) -> Any:
    return await store.pending.freeze("t", messages=[Message.user("x")], key="k")


KEYED: dict[str, Act] = {
    "commit": keyed,
    "start": lambda store: store.runs.start("t", "a", messages=[Message.user("x")], key="k"),
    "create": lambda store: store.runs.create("t", "a", messages=[Message.user("x")], key="k"),
    "fork": lambda store: store.branches.fork("t", at="m0", messages=[Message.user("x")], key="k"),
    "freeze": freeze,
}


@pytest.mark.parametrize("name", KEYED)
@pytest.mark.parametrize("faults", [["down"] * 3, ["lost"], ["unsent", "down", "lost", "down"], ["down", "unsent"] * 4])
def test_a_keyed_commit_takes_effect_once_whatever_happens(name: str, faults: list[str]) -> None:
    answer, version, _ = outcome_of(KEYED[name], *faults)
    assert not isinstance(answer, Exception), answer
    assert version == 2


def test_a_commit_without_a_key_is_repeated_only_while_nothing_was_written() -> None:
    answer, version, script = outcome_of(plain, "down", "down")
    assert (answer.version, version, script.calls[:3]) == (2, 2, ["transact"] * 3)
    for fault, count in (("lost", 2), ("unsent", 1)):
        answer, version, _ = outcome_of(plain, "down", fault)
        assert isinstance(answer, OutcomeUnknown)
        assert version == count


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.threads.get("t"),
        lambda store: store.messages.history("t"),
        lambda store: store.threads.create("other"),
        lambda store: store.state.put("t", "s", 1),
        lambda store: store.runs.list(),
        lambda store: store.threads.delete("gone"),
    ],
    ids=["get", "history", "create", "put", "list", "delete"],
)
def test_reads_and_other_writes_are_repeated_too(act: Act) -> None:
    answer, _, script = outcome_of(act, "down", "down", "down")
    assert not isinstance(answer, UnavailableError)
    assert len(script.calls) > 3


def test_without_it_nothing_is_repeated() -> None:
    for act in (keyed, plain, lambda store: store.threads.get("t")):
        answer, version, script = outcome_of(act, "down", retry_ms=0)
        assert isinstance(answer, UnavailableError)
        assert (version, len(script.calls)) == (1, 2)
    answer, _, _ = outcome_of(keyed, "unsent", retry_ms=0)
    assert isinstance(answer, OutcomeUnknown)


def test_other_errors_are_raised_at_once() -> None:
    answer, _, script = outcome_of(lambda store: store.threads.get("nobody"), "down")
    assert isinstance(answer, NotFoundError)
    assert script.calls[:2] == ["view", "view"]
    answer, _, script = outcome_of(keyed, "closed")
    assert isinstance(answer, UnavailableError)
    assert len(script.calls) == 2
    answer, version, _ = outcome_of(keyed, "unsent", "closed")
    assert isinstance(answer, OutcomeUnknown), "the first attempt may have been made: the last does not say so"
    assert (answer.key, version) == ("k", 1)


def test_the_deadline_ends_it_with_the_last_error_or_the_doubt() -> None:
    answer, _, _ = outcome_of(plain, *["down"] * 100_000, retry_ms=20)
    assert isinstance(answer, UnavailableError)
    answer, _, _ = outcome_of(keyed, "unsent", *["down"] * 100_000, retry_ms=20)
    assert isinstance(answer, OutcomeUnknown)
    answer, _, _ = outcome_of(freeze, *["down"] * 100_000, retry_ms=20)
    assert isinstance(answer, UnavailableError)


def test_contention_is_repeated_with_a_key_only() -> None:
    faults = ["conflict", ""] * 30
    answer, version, _ = outcome_of(plain, *faults)
    assert isinstance(answer, ConflictError)
    assert (answer.retryable, version) == (True, 1)
    answer, version, _ = outcome_of(keyed, *faults)
    assert (answer.version, version) == (2, 2)


def test_a_cancelled_call_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FIRST_PAUSE", 3600)
    monkeypatch.setattr(patience, "_LONGEST_PAUSE", 3600)

    async def scenario() -> None:
        async with perdure.open("memory://", retry_ms=LONG) as store:
            script = Script(store.engine, "down")
            task = asyncio.ensure_future(plain(store.scoped("default")))
            for _ in range(20):
                await asyncio.sleep(0)
            assert script.calls == ["transact"]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_blocking_callers_wait_on_their_own_thread() -> None:
    with perdure.sync.open("memory://", housekeeping=False, retry_ms=LONG) as store:
        script = Script(store.engine, "down", "lost", "down", "down")
        receipt = store.commit("t", messages=[Message.user("x")], key="k")
        assert (receipt.version, script.faults) == (1, [])
        script.faults[:] = ["down"] * 2
        assert store.scoped("default").threads.get("t").version == 1


def test_opening_is_repeated_too(tmp_path: Path) -> None:
    async def opened(path: Path) -> bool:
        async with perdure.open(path, retry_ms=LONG) as store:
            return (await store.threads.list()).items == []

    for number, open_it in enumerate((lambda path: asyncio.run(opened(path)), _opened_blocking)):
        path = tmp_path / str(number) / "agents.db"
        making = threading.Timer(0.2, path.parent.mkdir)
        making.start()
        assert open_it(path)
        making.join()
    with pytest.raises(UnavailableError, match="does not exist"):
        asyncio.run(_opened_once(tmp_path / "never" / "agents.db"))


def _opened_blocking(path: Path) -> bool:
    with perdure.sync.open(path, retry_ms=LONG) as store:
        return store.threads.list().items == []


async def _opened_once(path: Path) -> None:
    async with perdure.open(path):
        pass


def test_each_repetition_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "perdure.retry"):
        outcome_of(keyed, "down", "unsent")
    assert [record.getMessage() for record in caplog.records if record.name == "perdure.retry"] == [
        "a call is repeated after UnavailableError: attempt 2",
        "a call is repeated after OutcomeUnknown: attempt 3",
    ]


@pytest.mark.parametrize("value", [-1, 1.5, True, "1", None, 600_001, 2**60])
def test_what_is_not_a_time_is_refused(value: Any) -> None:
    with pytest.raises(InvalidError, match="retry_ms"):
        perdure.open("memory://", retry_ms=value)
    with pytest.raises(InvalidError, match="retry_ms"):
        perdure.sync.open("memory://", retry_ms=value)
