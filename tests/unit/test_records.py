"""Every public record turns into plain JSON, and a store says where it was opened."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
import perdure.sync
from perdure import Extra, InvalidError, Message, NewRun, Receipt, RunReceipt, Text, Ticket, Usage

RECORDS = [
    getattr(perdure, name)
    for name in perdure.__all__
    if isinstance(getattr(perdure, name), type) and issubclass(getattr(perdure, name), msgspec.Struct)
]


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_public_record_has_a_json_form(kind: Any) -> None:
    assert callable(kind.to_json)
    assert kind.to_json.__doc__


async def everything() -> list[Any]:
    async with perdure.open("memory://") as store:
        run = await store.runs.start("t", "agent", messages=[Message.user("q")], metadata={"trace": 1})
        odd = Message.assistant([Text("a", extra=Extra(cache=True))], extra=Extra(vendor={"x": 1}))
        receipt = await store.commit("t", messages=[odd], run=run.wait([Ticket(ticket_id="k")]), state={"plan": [1]})
        await store.branches.fork("t", at=receipt.message_ids[0], name="other")
        await store.branches.label("t", receipt.message_ids[0], "here")
        await store.pending.append("t", [Message.user("later")])
        return [
            receipt,
            receipt.run,
            await store.load("t"),
            await store.threads.list(),
            await store.branches.get("t", "other"),
            (await store.branches.labels("t"))[0],
            await store.pending.list("t"),
            await store.state.get("t", "plan"),
            await store.health(),
            store.capabilities(),
            NewRun(agent_id="agent"),
            run.finish("bye"),
        ]


def test_json_forms_hold_every_field_as_plain_data() -> None:
    for record in asyncio.run(everything()):
        data = record.to_json()
        assert set(data) == set(record.__struct_fields__), type(record)
        assert json.loads(json.dumps(data)) == data, type(record)


def test_unknown_fields_return_to_their_level() -> None:
    snapshot = asyncio.run(everything())[2]
    message = snapshot.to_json()["messages"][-1]["message"]
    assert message["vendor"] == {"x": 1}
    assert message["content"] == [{"type": "text", "text": "a", "cache": True}]


def test_a_commit_with_a_run_has_it_on_its_receipt() -> None:
    async def scenario() -> None:
        async with perdure.open("memory://") as store:
            first = await store.commit("t", messages=[Message.user("q")], run=NewRun(agent_id="a"), key="k")
            again = await store.commit("t", messages=[Message.user("q")], run=NewRun(agent_id="a"), key="k")
            assert (type(first), type(again)) == (RunReceipt, RunReceipt)
            assert again.replayed
            assert again.run.id == first.run.id
            assert type(await store.commit("t", messages=[Message.user("more")])) is Receipt

    asyncio.run(scenario())


def test_a_run_shows_its_tickets_and_its_answer() -> None:
    _, waiting, *_ = asyncio.run(everything())
    assert [ticket.ticket_id for ticket in waiting.tickets] == ["k"]
    assert (waiting.metadata, waiting.final_output) == ({"trace": 1}, None)
    with pytest.raises(InvalidError, match=r"final_output must be text.*json\.dumps"):
        waiting.finish({"a": 1})


def test_a_store_says_where_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"

    async def scenario() -> None:
        store = await perdure.open(path)
        tenant = store.scoped("acme")
        assert repr(store) == f"<perdure.Store {path} scope='default' open>"
        assert repr(tenant) == f"<perdure.Store {path} scope='acme' open>"
        await store.close()
        assert repr(tenant).endswith("closed>")

    asyncio.run(scenario())
    with perdure.sync.open(f"sqlite:///{path}") as store:
        assert repr(store) == f"<perdure.sync.Store sqlite:///{path} scope='default' open>"


def test_a_store_does_not_say_its_password() -> None:
    assert "secret" not in repr(perdure.stores.store.Origin(perdure.opening.redacted("redis://app:secret@db/0")).url)


def test_a_change_takes_the_usage_of_a_message() -> None:
    run = asyncio.run(everything())[1]
    usage = Usage(input_tokens=7, output_tokens=3)
    for change in (run.step(usage=usage), run.finish("bye", usage=usage), run.fail("no", steps=1, usage=usage)):
        assert (change.input_tokens, change.output_tokens) == (7, 3)
    assert run.step(usage=None).steps == 1
    with pytest.raises(InvalidError, match="not both"):
        run.step(usage=usage, input_tokens=1)
    with pytest.raises(InvalidError, match=r"pass usage=message\.usage"):
        run.step(usage={"input_tokens": 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'stepps'"):
        run.finish(stepps=1)


def test_a_handle_is_the_calls_of_its_thread() -> None:
    async def scenario() -> None:
        async with perdure.open("memory://") as store:
            chat = store.thread("t")
            assert repr(chat) == "<perdure.ThreadHandle 't' of <perdure.Store memory:// scope='default' open>>"
            assert await chat.find() is None
            await chat.ensure(title="A trip")
            first = await chat.append(Message.user("q"), Message.assistant("a"), key="k")
            assert (await chat.append(Message.user("q"), Message.assistant("a"), key="k")).replayed
            run = await chat.start("agent", messages=[Message.user("go")])
            receipt = await chat.append(Message.assistant("done"), run=run.finish())
            assert receipt.run.status == "done"
            branch = await chat.fork(at=first.message_ids[0], messages=[Message.user("else")], switch=True)
            assert [record.text for record in await chat.path()] == ["q", "else"]
            assert (await chat.page(limit=1)).items[0].text == "else"
            await chat.checkout(receipt.message_ids[0])
            assert (await chat.load()).branch.id == 0
            assert [variant.branch for variant in await chat.variants(first.message_ids[1])] == [0, branch.id]
            assert "else" in (await chat.tree()).draw()
            async with chat.buffered() as writer:
                await writer.append(Message.user("late"))
            async with chat.follow(timeout=0) as follower:
                assert len([record async for record in follower]) == 6
            await chat.delete()
            assert await chat.find() is None
            with pytest.raises(InvalidError, match="thread id"):
                store.thread("")

    asyncio.run(scenario())


def test_a_blocking_handle_too(tmp_path: Path) -> None:
    with perdure.sync.open(tmp_path / "agents.db") as store:
        chat = store.thread("t")
        chat.append(Message.user("q"))
        assert [record.text for record in chat.history()] == ["q"]
        with chat.buffered() as writer:
            writer.append(Message.user("late"))
        assert [record.text for record in chat.follow(timeout=0)] == ["q", "late"]
        assert chat.tree().draw().count("\n") == 1
