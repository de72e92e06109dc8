"""What the browser of a user is sent of messages and runs: an allow-list, so that what is added later is not in it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import perdure
from perdure import Message, Run, Store, Ticket, ToolUse, sse

SECRET = "s3cret"
ASSISTANT: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "Paris.", "citations": SECRET},
        {"type": "thinking", "thinking": SECRET, "signature": SECRET},
        {"type": "vendor_block", "data": SECRET},
        {"type": "tool_use", "id": "c", "name": "look", "input": {"extra": {"input": 1}}, "vendor": SECRET},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png", "vendor": SECRET}},
    ],
    "reasoning_content": SECRET,
    "metadata": {"cost": SECRET},
    "usage": {"input_tokens": 1, "output_tokens": 2, "vendor": SECRET},
    "model": SECRET,
}
RESULT: dict[str, Any] = {
    "role": "tool",
    "content": [
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [{"type": "text", "text": "Sunny.", "vendor": SECRET}, {"type": "vendor", "data": SECRET}],
            "vendor": SECRET,
        }
    ],
}


async def asking(store: Store) -> Run:
    """A run that waits, on a thread with messages of a provider."""
    metadata = {"customer": SECRET}
    run = await store.runs.start("t", "agent", messages=[Message.user("Where?")], metadata=metadata)
    tickets = [Ticket.for_call(ToolUse("c", "look", {"a": 1})), Ticket(ticket_id="d", decision=SECRET)]
    messages = [Message.from_json(ASSISTANT), Message.from_json(RESULT)]
    return (await store.commit("t", messages=messages, run=run.wait(tickets, message="May I?"))).run


def test_a_page_has_what_people_may_see() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            await asking(store)
            page = (await store.messages.page("t", variants=True)).public_json()
            assert SECRET not in json.dumps(page)
            everything = (await store.messages.page("t", variants=True)).to_json()
            assert {**page, "items": []} == {**everything, "items": []}
            answer, result = (item["message"]["content"] for item in page["items"][1:])
            assert [block["type"] for block in answer] == ["text", "tool_use", "image"]
            assert answer[1]["input"] == {"extra": {"input": 1}}, "data of the caller is left alone"
            assert result[0]["content"] == [{"type": "text", "text": "Sunny."}]
            assert [item["seq"] for item in page["items"]] == [1, 2, 3]

    asyncio.run(story())


def test_a_run_has_no_details() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            run = await asking(store)
            data = run.public_json()
            assert SECRET not in json.dumps(data)
            ticket = {"ticket_id": "c", "tool_call_id": "c", "tool_name": "look", "arguments": {"a": 1}, "reason": None}
            assert data["waiting"] == {"reason": "user_input", "message": "May I?", "open_tickets": [ticket]}
            run = (await store.commit("t", run=run.resume())).run
            ended = (await store.commit("t", run=run.fail(f"no such key: {SECRET}", error={"key": SECRET}))).run
            assert SECRET not in json.dumps(ended.public_json())
            assert ended.public_json()["outcome"] == {"type": "error", "code": None, "final_output": None}

    asyncio.run(story())


def test_a_stream_of_events_sends_nothing_else() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            await asking(store)
            chat = store.thread("t")
            body = b"".join([chunk async for chunk in sse.stream(chat.follow().merge(chat.follow_runs(), timeout=0))])
            assert b"open_tickets" in body
            assert b"Paris." in body
            assert SECRET.encode() not in body

    asyncio.run(story())


def test_what_a_tool_says_of_its_failure_is_not_sent() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            call, failed = Message.assistant([ToolUse("c", "look", {})]), f"refused: {SECRET}"
            result = Message.tool("c", failed, is_error=True, id="result")
            await store.commit("t", messages=[Message.user("q"), call, result])
            again = Message.tool("c", failed, is_error=True)
            await store.branches.fork("t", before="result", messages=[again], switch=True)
            page = (await store.messages.page("t", variants=True)).public_json()
            assert SECRET not in json.dumps(page)
            (sent,) = page["items"][2]["message"]["content"]
            assert sent == {"type": "tool_result", "tool_use_id": "c", "content": [], "is_error": True}
            assert len(page["variants"]) == 1

    asyncio.run(story())


def test_the_parts_of_a_result_and_of_a_medium_are_chosen_as_well() -> None:
    """A sub-agent's message may be the result of a tool: it has thinking and media of its own."""
    thinking = {"type": "thinking", "thinking": SECRET}
    image = {"type": "image", "source": {"type": "file", "file_id": SECRET}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [thinking, {"type": "text", "text": "ok"}, image]}
    empty = {"type": "tool_result", "tool_use_id": "d", "content": [thinking]}

    async def story() -> None:
        async with perdure.open("memory://") as store:
            question = Message.from_json({"role": "user", "content": [image]})
            calls = Message.assistant([ToolUse("c", "ask_agent", {}), ToolUse("d", "ask_agent", {})])
            results = [Message.from_json({"role": "tool", "content": [each]}) for each in (result, empty)]
            await store.commit("t", messages=[question, calls, *results])
            page = (await store.messages.page("t")).public_json()
            assert SECRET not in json.dumps(page)
            asked, _, *answered = (item["message"]["content"] for item in page["items"])
            assert asked == [{"type": "image", "source": {"type": "file"}}]
            assert [block["content"] for (block,) in answered] == [[{"type": "text", "text": "ok"}, *asked], []]

    asyncio.run(story())


def test_internal_messages_are_not_sent() -> None:
    async def story() -> None:
        async with perdure.open("memory://") as store:
            hidden = Message.system(SECRET, visibility="internal")
            await store.commit("t", messages=[Message.user("q", id="q"), hidden])
            await store.branches.fork("t", at="q", messages=[hidden])
            chat = store.thread("t")
            for view in ("raw", "history"):
                page = await chat.page(view=view, variants=view == "raw")  # type: ignore[arg-type]
                assert SECRET not in json.dumps(page.public_json()), view
                assert [item["seq"] for item in page.public_json()["items"]] == [1]
                assert page.items[1].public_json()["message"]["content"] == []
            versions = [variant.public_json() for variant in await chat.variants(page.items[1].message_id)]
            assert [(variant["preview"], variant["visibility"]) for variant in versions] == [("", "internal")] * 2
            assert [variant.preview for variant in await chat.variants("q")] == ["q"]
            chunks = [chunk async for chunk in sse.stream(chat.follow(timeout=0))]
            assert [chunk.split(b"\n")[0] for chunk in chunks] == [b"retry: 1000", b"id: 1"]

    asyncio.run(story())
