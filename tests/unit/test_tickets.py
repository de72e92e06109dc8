"""Decisions on tickets: what older builds stored under the new names, and what exports carry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Extra, IllegalTransition, InvalidError, NewRun, RunBody, Store, Ticket, VersionConflict, Waiting
from perdure.audit import verify
from perdure.model.stored_json import Reader
from perdure.stores.transfer.export import export_lines
from perdure.stores.transfer.importing import import_lines

UNFIT: list[Any] = ["a wait", 3, [], {"tickets": []}, {"reason": 1}]


@pytest.mark.parametrize("value", UNFIT, ids=str)
def test_another_meaning_of_the_name_is_carried_until_the_run_resumes(value: Any) -> None:
    async def scenario() -> None:
        async with perdure.open("memory://", housekeeping=False) as store:
            new = NewRun(agent_id="a", body=RunBody(extra=Extra(resumed_from=value, colour="red")))
            run = (await store.commit("t", run=new)).run
            assert (run.body.extra["resumed_from"], run.body.resumed_from) == (value, None)
            run = (await store.commit("t", run=run.wait([Ticket(ticket_id="k")]))).run
            run = await store.runs.decide(run.id, "k", True)
            assert (await store.runs.get(run.id)).body.extra == {"resumed_from": value, "colour": "red"}
            await store.commit("t", run=run.resume())
            stored = await store.runs.get(run.id)
            assert (stored.decision("k"), stored.body.extra) == (True, {"colour": "red"})
            assert await verify(store) == []

    asyncio.run(scenario())


def test_a_record_without_decisions_reads_and_writes_as_before() -> None:
    stored = b'{"waiting":{"reason":"user_input","tickets":[{"ticket_id":"k","later":{"x":1}}]},"later":2}'
    body = Reader(RunBody).read(stored)
    assert body.waiting == Waiting(
        reason="user_input", tickets=[Ticket(ticket_id="k", extra=Extra(later={"x": 1}))], extra=Extra()
    )
    assert perdure.RunBody.to_json(body)["later"] == 2
    assert "decision" not in str(body.to_json())


async def resumed_run(store: Store) -> perdure.Run:
    run = await store.runs.start("t", "agent", run_id="r")
    run = (await store.commit("t", run=run.wait([Ticket(ticket_id="k", tool_call_id="c", arguments=[])]))).run
    run = await store.runs.decide(run.id, "k", [])
    run = (await store.commit("t", run=run.resume())).run
    run = (await store.commit("t", run=run.wait([Ticket(ticket_id="l")]))).run
    return await store.runs.decide(run.id, "l", {"by": "eve"})


def test_an_export_carries_the_decisions() -> None:
    async def scenario() -> None:
        async with perdure.open("memory://") as old, perdure.open("memory://") as new:
            run = await resumed_run(old)
            lines = [line async for line in export_lines(old)]
            await import_lines(new, lambda: iter(lines))
            copy = await new.runs.get("r")
            assert copy.body == run.body
            assert (copy.ready, copy.decision("c"), copy.decision("l")) == (True, [], {"by": "eve"})
            assert await verify(new) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("reason", ["Two Words", ""])
def test_an_import_checks_the_wait_that_ended(reason: str) -> None:
    async def scenario() -> None:
        async with perdure.open("memory://") as old, perdure.open("memory://") as new:
            await resumed_run(old)
            lines = [line async for line in export_lines(old)]
            sound, wrong = b'"resumed_from":{"reason":"user_input"', f'"resumed_from":{{"reason":"{reason}"'.encode()
            assert any(sound in line for line in lines)
            bad = [line.replace(sound, wrong) for line in lines]
            with pytest.raises(InvalidError):
                await import_lines(new, lambda: iter(bad))

    asyncio.run(scenario())


def test_a_record_refuses_what_the_store_would() -> None:
    async def scenario() -> None:
        async with perdure.open("memory://") as store:
            run = await resumed_run(store)
            with pytest.raises(VersionConflict) as caught:
                run.decide("l", False)
            assert (caught.value.expected, caught.value.actual) == (False, {"by": "eve"})
            assert run.decide("l", {"by": "eve"}).status == "waiting"
            with pytest.raises(VersionConflict):
                run.decide("l", object())
            with pytest.raises(InvalidError, match="null"):
                run.decide("l", None)
            with pytest.raises(perdure.NotFoundError):
                run.decide("k", True)
            done = (await store.commit("t", run=run.finish())).run
            with pytest.raises(IllegalTransition):
                done.decide("l", {"by": "eve"})

    asyncio.run(scenario())
