"""Server-sent events: what a browser reads, how it goes on after a cut, and what ends a stream."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, cast

import pytest

import perdure
from perdure import Draft, InvalidError, Message, MessageRecord, ToolUse, limits, sse
from perdure.stores.follower import Follower


def parsed(chunk: bytes) -> dict[str, Any]:
    """One event by field, its data as JSON, the way a browser takes it apart."""
    text = chunk.decode()
    assert text.endswith("\n\n")
    assert text.count("\n\n") == 1
    fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return fields | ({"data": json.loads(fields["data"])} if "data" in fields else {})


async def collected(chunks: Any) -> list[dict[str, Any]]:
    return [parsed(chunk) async for chunk in chunks]


def test_messages_have_their_seq_as_id_and_a_browser_goes_on_after_it() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            chat = store.thread("t")
            await chat.append(Message.user("line\nbreak\r\x85\u2028\u2029"), Message.assistant("two"))
            first, *events = await collected(sse.stream(chat.follow(timeout=0)))
            assert first == {"retry": "1000"}
            assert [(e["id"], e["data"]["message"]["role"]) for e in events] == [("1", "user"), ("2", "assistant")]
            assert events[0]["data"]["message"]["content"][0]["text"] == "line\nbreak\r\x85\u2028\u2029"
            assert "event" not in events[0]
            again = sse.stream(chat.follow(after_seq=sse.after_seq("1"), timeout=0))
            assert [event.get("id") for event in await collected(again)] == [None, "2"]

    asyncio.run(story())


def test_what_can_be_stored_can_be_sent_however_deeply_it_nests() -> None:
    """A message that no browser could be sent would end every stream of the thread, again and again."""

    async def deepest() -> tuple[Any, list[dict[str, Any]]]:
        async with perdure.open("memory://") as store:
            chat, value = store.thread("t"), cast(Any, "deep")
            with suppress(InvalidError):
                for _ in range(2 * limits.JSON_DEPTH):
                    await chat.append(Message.assistant([ToolUse("c", "look", {"value": value})]))
                    value = [value]
            return value[0], await collected(sse.stream(chat.follow(timeout=0)))

    value, sent = asyncio.run(deepest())
    assert len(sent) > limits.JSON_DEPTH - 4
    assert sent[-1]["data"]["message"]["content"][0]["input"] == {"value": value}

    async def described() -> None:
        async with perdure.open("memory://") as store:
            chat = store.thread("t")
            await chat.append(Message.user("hello"))
            await collected(sse.stream(chat.follow(timeout=0), describe=lambda record: {1: record}))

    with pytest.raises(InvalidError, match="data"):
        asyncio.run(described())


def test_other_records_are_events_of_their_own_type() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            chat = store.thread("t")
            await chat.start("agent", messages=[Message.user("hello")])
            events = await collected(sse.stream(chat.follow().merge(chat.follow_runs(), timeout=0)))
            assert {event.get("event") for event in events[1:]} == {None, "run"}
            described = sse.stream(
                chat.follow().merge(chat.follow_runs(), timeout=0),
                describe=lambda record: {"text": record.text} if isinstance(record, MessageRecord) else None,
            )
            assert (await collected(described))[1:] == [{"id": "1", "data": {"text": "hello"}}]

    asyncio.run(story())


def test_silence_is_filled_with_comments_and_nothing_is_lost_by_it() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            await store.threads.create("t")
            follower = store.thread("t").follow()
            body = sse.stream(follower, heartbeat=0.001)
            assert [await anext(body) for _ in range(4)][1:] == [b": \n\n"] * 3
            await store.thread("t").append(Message.user("hello"))
            chunk = await anext(body)
            while chunk == b": \n\n":
                chunk = await anext(body)
            assert parsed(chunk)["id"] == "1"
            await body.aclose()
            assert follower.closed

    asyncio.run(story())


def test_a_follower_ends_in_time_whatever_the_heartbeat() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            await store.threads.create("t")
            async with asyncio.timeout(30):
                chunks = [chunk async for chunk in sse.stream(store.thread("t").follow(timeout=0.3), heartbeat=0.05)]
            assert chunks[1:] == [b": \n\n"] * (len(chunks) - 1)

    asyncio.run(story())


class Slow:
    """A source that takes its time."""

    ended = behind = at_end = False

    async def read(self, *, fresh: bool) -> list[Draft]:
        await asyncio.sleep(0.2)
        return [Draft(run_id="r", branch=0, text="words")]


class Never:
    """A wait that is not needed."""

    closed = False

    def subscribe(self) -> None:
        pass

    async def wait(self, seconds: float | None) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        self.closed = True


def test_a_read_that_is_slower_than_the_heartbeat_comes_through() -> None:
    async def story() -> None:
        body = sse.stream(Follower(Never(), Slow(), None), heartbeat=0.02)
        async with asyncio.timeout(30):
            while (chunk := await anext(body)) in (b": \n\n", b"retry: 1000\n\n"):
                pass
        assert parsed(chunk)["event"] == "draft"
        await body.aclose()
        assert [task for task in asyncio.all_tasks() if task.get_name() == "perdure sse"] == []

    asyncio.run(story())


class Shown:
    """A source of drafts, one per read."""

    behind = at_end = False

    def __init__(self, *drafts: tuple[str, str | None]) -> None:
        self._drafts = [Draft(run_id=run_id, branch=0, text=text) for run_id, text in drafts]

    @property
    def ended(self) -> bool:
        return not self._drafts

    async def read(self, *, fresh: bool) -> list[Draft]:
        return [self._drafts.pop(0)]


def test_a_browser_is_sent_each_word_of_a_draft_once() -> None:
    words = (("r", "a"), ("r", "a b"), ("s", "x"), ("r", "a b 😀"), ("r", "a B, c"), ("r", None), ("r", "a B c"))
    sent = [("r", "a", False), ("r", " b", True), ("s", "x", False), ("r", " 😀", True), ("r", "a B, c", False)]
    sent += [("r", None, False), ("r", "a B c", False)]

    async def story() -> None:
        events = (await collected(sse.stream(Follower(Never(), Shown(*words), None))))[1:]
        assert {event["event"] for event in events} == {"draft"}
        assert [tuple(event["data"][name] for name in ("run_id", "text", "append")) for event in events] == sent
        assert events[0]["data"] == {"run_id": "r", "branch": 0, "text": "a", "append": False}
        shown: dict[str, str | None] = {}
        for data, (run_id, text) in zip([event["data"] for event in events], words, strict=True):
            shown[data["run_id"]] = (shown[data["run_id"]] or "") + data["text"] if data["append"] else data["text"]
            assert shown[run_id] == text
        whole: list[Draft] = []
        described = sse.stream(Follower(Never(), Shown(*words), None), describe=whole.append)
        assert len(await collected(described)) == 1
        assert [(draft.run_id, draft.text) for draft in whole] == list(words), "whoever describes has all of them"

    asyncio.run(story())


def test_a_server_that_stops_ends_its_streams() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            chat, stop = store.thread("t"), asyncio.Event()
            await chat.append(Message.user("hello"))
            followers = [chat.follow() for _ in range(3)]
            bodies = [sse.stream(follower, stop=stop) for follower in followers]
            assert [parsed([await anext(body) for _ in range(2)][1])["id"] for body in bodies] == ["1"] * 3
            tabs = [asyncio.ensure_future(anext(body, "the end")) for body in bodies]
            await asyncio.sleep(0)
            stop.set()
            async with asyncio.timeout(30):
                assert await asyncio.gather(*tabs) == ["the end"] * 3
                assert await collected(sse.stream(chat.follow(), stop=stop)) == [{"retry": "1000"}], "a late one"
            assert all(follower.closed for follower in followers)
            assert [task for task in asyncio.all_tasks() if task.get_name() == "perdure sse"] == []

    asyncio.run(story())


def test_a_stream_that_is_closed_before_its_first_read_closes_its_follower() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            follower = store.thread("t").follow()
            body = sse.stream(follower)
            await body.aclose()
            assert follower.closed
            dropped = store.thread("t").follow()
            sse.stream(dropped)
            assert dropped.closed

    asyncio.run(story())


def test_a_describe_that_fails_is_an_error_of_the_server() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            chat = store.thread("t")
            await chat.append(Message.user("hello"))
            for describe in (lambda record: record.nothing, lambda record: b"bytes"):
                with pytest.raises((AttributeError, perdure.InvalidError)):
                    await collected(sse.stream(chat.follow(timeout=0), describe=describe))

    asyncio.run(story())


def test_an_error_is_told_to_the_browser() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            events = await collected(sse.stream(store.thread("none").follow()))
            assert events[1]["event"] == "failure"
            assert events[1]["data"]["code"] == "not_found"

    asyncio.run(story())


def test_a_browser_learns_that_another_thread_has_the_id_now() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            chat = store.thread("t")
            await chat.append(*[Message.user("old")] * 5)
            await store.threads.delete("t")
            await store.threads.create("t")
            await chat.append(Message.user("new"))
            follower = chat.follow_drafts().merge(chat.follow(after_seq=sse.after_seq("5")), chat.follow_runs())
            (event,) = (await collected(sse.stream(follower)))[1:]
            assert (event["event"], event["data"]["code"]) == ("failure", "cursor_expired")

    asyncio.run(story())


def test_a_browser_reconnects_while_the_store_is_unavailable() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            await store.threads.create("t")
            body = sse.stream(store.thread("t").follow())
            await anext(body)
        assert await collected(body) == [], "no event, only the end"

    asyncio.run(story())


def test_what_is_refused() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            follower = store.thread("t").follow()
            for options in ({"heartbeat": 0}, {"heartbeat": "1"}, {"heartbeat": True}, {"retry_ms": -1}):
                with pytest.raises(perdure.InvalidError):
                    sse.stream(follower, **options)  # type: ignore[arg-type]

    asyncio.run(story())
    for header in ("x", "-1", "1.5", "٣", "9" * 17, "9" * 16, str(limits.INTEGER_MAX + 1), "1\n2"):
        with pytest.raises(perdure.InvalidError):
            sse.after_seq(header)
    assert sse.after_seq(str(limits.INTEGER_MAX)) == limits.INTEGER_MAX
    assert (sse.after_seq(None), sse.after_seq("", 7), sse.after_seq("12", 7)) == (0, 7, 12)
    for field in ({"name": "a\nb"}, {"event_id": "1\r"}, {"name": ""}):
        with pytest.raises(perdure.InvalidError):
            sse.event({}, **field)
