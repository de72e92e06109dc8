"""`job.draft`: words that people see before the answer is committed. It may fail, and the run does not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from tests.workers.scenes import ended, finish, serving, until
from tests.workers.test_serving import on_memory

from perdure import Draft, InvalidError, Message, Store, UnavailableError
from perdure.clock import ManualClock
from perdure.stores.profiles import Profiles
from perdure.workers import Job, drafts


async def texts(store: Store) -> list[str]:
    """The drafts of thread "t" that are stored now, of whichever run."""
    return [profile.value["text"] async for profile in store.profiles.iter("draft:t")]


def test_words_are_shown_as_they_come_and_are_gone_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "GAP_SECONDS", 0.0)

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent", messages=[Message.user("Go.")])
        follower = store.thread("t").follow_drafts()

        async def handler(job: Job) -> None:
            for words in ("One", None, "", " two"):
                job.draft(words)
                if words:
                    await anext(follower)
            await job.answer(Message.assistant("One two."))

        async with serving(store, handler):
            await ended(store, run.id)
            assert await anext(follower) == Draft(run_id=run.id, branch=0, text=None)
        follower.close()
        assert await texts(store) == []

    on_memory(scene)


def test_a_character_that_comes_in_halves_is_shown_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a half without the other does not end the updates."""
    monkeypatch.setattr(drafts, "GAP_SECONDS", 0.0)

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")
        expected = ["Hello ", "Hello ", "Hello \U0001f600 and ", "Hello \U0001f600 and \ufffd more."]

        async def handler(job: Job) -> None:
            for words, shown in zip(("Hello ", "\ud83d", "\ude00 and \ud83d", " more."), expected, strict=True):
                job.draft(words)
                await until(partial(_shows, store, shown))
            await job.answer(Message.assistant("Done."))

        async with serving(store, handler):
            await ended(store, run.id)

    on_memory(scene)


async def _shows(store: Store, text: str) -> bool:
    return await texts(store) == [text]


def test_each_answer_has_its_own_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before a commit is void after it, even while its profile is still there."""
    monkeypatch.setattr(drafts, "GAP_SECONDS", 0.0)

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent", messages=[Message.user("Go.")])
        shown: list[str | None] = []

        async def handler(job: Job) -> None:
            for text in ("One", "Two"):
                job.draft(text)
                async for draft in store.runs.follow_drafts("t"):
                    shown.append(draft.text)
                    if draft.text == text:
                        break
                await job.commit(Message.assistant(text))
            await finish(job)

        async with serving(store, handler):
            await ended(store, run.id)
        assert [text for text in shown if text is not None] == ["One", "Two"]

    on_memory(scene)


def test_a_stop_keeps_what_people_have_read() -> None:
    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent", messages=[Message.user("Go.")])

        async def handler(job: Job) -> None:
            job.draft("Half an ans")
            await asyncio.Event().wait()

        async with serving(store, handler):
            await anext(store.runs.follow_drafts("t"))
            await store.runs.cancel(run.id, keep_draft=True)
            await store.commit("t", messages=[Message.user("Next.")])
            await until(lambda: _has_none(store))
        history = await store.messages.history("t")
        assert [record.text for record in history] == ["Go.", "Half an ans", "Next."]

    on_memory(scene)


def test_a_commit_without_messages_cuts_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task of the handler may store state while the model writes."""
    monkeypatch.setattr(drafts, "GAP_SECONDS", 0.0)

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")

        async def handler(job: Job) -> None:
            job.draft("First half. ")
            await until(partial(_shows, store, "First half. "))
            await job.commit(state={"plan": 1})
            follower = store.thread("t").follow_drafts()
            assert (await anext(follower)).text == "First half. "
            job.draft("Second half.")
            await until(partial(_shows, store, "First half. Second half."))
            await store.runs.cancel(run.id, keep_draft=True)
            await job.commit(Message.assistant("late"))

        async with serving(store, handler):
            await ended(store, run.id)
        assert [record.text for record in await store.messages.path("t")] == ["First half. Second half."]
        assert await texts(store) == []

    on_memory(scene)


def test_writes_are_few_and_the_last_words_are_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []
    put = Profiles.put

    async def counted(self: Profiles, owner: str, key: str, value: Any, **options: Any) -> Any:
        if owner == "draft:t":
            writes.append(value)
        return await put(self, owner, key, value, **options)

    monkeypatch.setattr(Profiles, "put", counted)
    monkeypatch.setattr(drafts, "GAP_SECONDS", 0.05)
    monkeypatch.setattr(drafts, "RENEW_SECONDS", 3600.0)

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")

        async def handler(job: Job) -> None:
            for n in range(2_000):
                job.draft(f"{n} ")
                await asyncio.sleep(0)
            expected = "".join(f"{n} " for n in range(2_000))

            async def complete() -> bool:
                return await texts(store) == [expected]

            await until(complete)  # the model pauses now: no more words come to push these out
            await finish(job)

        async with serving(store, handler):
            await ended(store, run.id)
        assert len(writes) <= 200, "2,000 words are not 2,000 writes"

    on_memory(scene)


async def _returns(job: Job) -> None:
    await finish(job)


async def _raises(job: Job) -> None:
    raise ValueError("a bug")


async def _stays_running(job: Job) -> None:
    return


async def _steps(job: Job) -> None:
    await job.commit(Message.assistant("A step."))
    assert await texts_after_end(job) == []
    job.draft("more words")
    await finish(job)


async def texts_after_end(job: Job) -> list[str]:
    async def gone() -> bool:
        return await texts(job.store) == []

    await until(gone)
    return await texts(job.store)


@pytest.mark.parametrize("end", [_returns, _raises, _stays_running, _steps])
def test_no_end_of_a_handler_leaves_a_draft(end: Callable[[Job], Coroutine[Any, Any, None]]) -> None:
    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")

        async def handler(job: Job) -> None:
            job.draft("words")

            async def stored() -> bool:
                return await texts(store) == ["words"]

            await until(stored)
            await end(job)

        async with serving(store, handler):
            await ended(store, run.id)
        assert await texts(store) == []
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("perdure draft")] == []

    on_memory(scene)


def test_a_stopped_run_leaves_no_draft() -> None:
    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")
        shown = asyncio.Event()

        async def handler(job: Job) -> None:
            job.draft("words")
            await until(lambda: _has(store))
            shown.set()
            await asyncio.Event().wait()

        async with serving(store, handler):
            await shown.wait()
            await store.runs.cancel(run.id)
            await until(lambda: _has_none(store))

    on_memory(scene)


async def _has(store: Store) -> bool:
    return bool(await texts(store))


async def _more_than(items: list[str], count: int) -> bool:
    return len(items) > count


async def _has_none(store: Store) -> bool:
    return not await texts(store)


def test_a_write_in_flight_does_not_bring_a_draft_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, writing = asyncio.Event(), asyncio.Event()
    put = Profiles.put

    async def slow(self: Profiles, owner: str, key: str, value: Any, **options: Any) -> Any:
        if owner == "draft:t":
            writing.set()
            await gate.wait()
        return await put(self, owner, key, value, **options)

    monkeypatch.setattr(Profiles, "put", slow)

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")

        async def handler(job: Job) -> None:
            job.draft("words")
            await writing.wait()
            await finish(job)  # does not wait for the draft

        async with serving(store, handler):
            await ended(store, run.id)
            gate.set()
        assert await texts(store) == []

    on_memory(scene)


def test_a_draft_that_cannot_be_stored_does_not_fail_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put, tried = Profiles.put, list[str]()

    async def failing(self: Profiles, owner: str, key: str, value: Any, **options: Any) -> Any:
        if owner == "draft:t":
            tried.append(value)
            raise UnavailableError("the server is gone")
        return await put(self, owner, key, value, **options)

    monkeypatch.setattr(Profiles, "put", failing)
    monkeypatch.setattr(drafts, "GAP_SECONDS", 0.0)

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")

        async def handler(job: Job) -> None:
            for n in range(3):
                job.draft("words")
                await until(partial(_more_than, tried, n))
            await finish(job)

        async with serving(store, handler):
            assert (await ended(store, run.id)).final_output == "Done."

    on_memory(scene)
    warnings = [record for record in caplog.records if "the draft of run" in record.message]
    assert len(warnings) == 1, "said once"


def test_only_text_is_a_draft() -> None:
    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")

        async def handler(job: Job) -> None:
            wrong: Any = b"bytes"
            with pytest.raises(InvalidError):
                job.draft(wrong)
            await finish(job)

        async with serving(store, handler):
            assert (await ended(store, run.id)).status == "done"

    on_memory(scene)


def test_a_draft_beyond_the_limit_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "GAP_SECONDS", 0.0)
    put, tried = Profiles.put, list[str]()

    async def counted(self: Profiles, owner: str, key: str, value: Any, **options: Any) -> Any:
        if owner == "draft:t":
            tried.append(value)
        return await put(self, owner, key, value, **options)

    monkeypatch.setattr(Profiles, "put", counted)

    async def scene(store: Store, _: ManualClock) -> None:
        run = await store.runs.start("t", "agent")

        async def handler(job: Job) -> None:
            job.draft("short")
            await until(lambda: _has(store))
            job.draft("x" * 1_000_000)
            await until(partial(_more_than, tried, 1))
            job.draft("and more")
            assert await texts(store) == ["short"]
            await finish(job)

        async with serving(store, handler):
            assert (await ended(store, run.id)).final_output == "Done."
        assert await texts(store) == []

    on_memory(scene)
