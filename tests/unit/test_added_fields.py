"""Fields that messages gained: what an older build stored under their names stays readable, and stays as it was.

`unknown-usage.db` was written by the build before `usage`, `model` and `stop_reason` existed, with these names as
unknown fields of every shape.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Extra, InvalidError, KeyReused, Message, Store, Usage
from perdure.audit import verify
from perdure.clock import ManualClock
from perdure.copy import copy_store
from perdure.stores.transfer.export import export_lines
from perdure.stores.transfer.importing import import_lines

MADE_AT = 1_735_689_600_000
FIXTURE = Path(__file__).parents[1] / "fixtures" / "unknown-usage.db"
UNFIT: list[dict[str, Any]] = [
    {"usage": "a string"},
    {"usage": {"input_tokens": "x"}},
    {"model": 3},
    {"usage": [1]},
    {"usage": {"input_tokens": -1}},
    {"usage": {"input_tokens": 1.5}},
    {"usage": {"output_tokens": 2**60}},
    {"stop_reason": {"why": "length"}},
]
MIXED = Message.assistant("answer 8", id="m-8", model="gpt-x", extra=Extra(usage="x", stop_reason=False))
ORDINARY = Message.assistant("answer 9", id="m-9", usage=Usage(7, 2), model="gpt-x", stop_reason="stop")
FURTHER = Message.assistant("answer 10", id="m-10", usage=Usage(7, extra=Extra(prompt_tokens=7)), extra=Extra(custom=1))
EXPECTED = [
    *(Message.assistant(f"answer {i}", id=f"m-{i}", extra=Extra(shape)) for i, shape in enumerate(UNFIT)),
    *(MIXED, ORDINARY, FURTHER),
]


@asynccontextmanager
async def old_store(folder: Path) -> AsyncIterator[Store]:
    file = folder / "old.db"
    if not file.exists():
        shutil.copy(FIXTURE, file)
    async with perdure.open(f"sqlite:///{file}", housekeeping=False, clock=ManualClock(MADE_AT)) as store:
        yield store


async def messages_of(store: Store) -> list[Message]:
    return [record.message for record in await store.messages.history("t")]


def test_an_older_store_opens_and_reads(tmp_path: Path) -> None:
    async def run() -> None:
        async with old_store(tmp_path) as store:
            assert await messages_of(store) == EXPECTED
            assert [record.message async for record in store.messages.iter("t")] == EXPECTED
            (pending,) = (await store.pending.list("t")).items
            assert pending.message.extra == {"usage": "a string", "model": 3}
            assert await verify(store) == []
            await store.pending.freeze("t")
            assert (await messages_of(store))[-1].extra == {"usage": "a string", "model": 3}

    asyncio.run(run())


def test_it_is_exported_imported_and_copied_unchanged(tmp_path: Path) -> None:
    async def run() -> None:
        target = f"sqlite:///{tmp_path / 'new.db'}"
        async with old_store(tmp_path) as old, perdure.open("memory://", housekeeping=False) as imported:
            lines = [line async for line in export_lines(old)]
            await import_lines(imported, lambda: iter(lines))
            assert await messages_of(imported) == EXPECTED
            assert [line async for line in export_lines(imported)] == lines
        await copy_store(f"sqlite:///{tmp_path / 'old.db'}", target)
        async with perdure.open(target, housekeeping=False) as new:
            assert await messages_of(new) == EXPECTED
            assert [line async for line in export_lines(new)] == lines

    asyncio.run(run())


def test_a_keyed_commit_of_the_older_build_replays(tmp_path: Path) -> None:
    """The fingerprint of a typed field is that of the unknown field it was."""

    async def run() -> None:
        async with old_store(tmp_path) as store:
            for i, message in enumerate(EXPECTED):
                receipt = await store.commit("t", messages=[message], key=f"k-{i}")
                assert (receipt.replayed, receipt.message_ids) == (True, [f"m-{i}"])
            changed = Message.assistant("answer 9", id="m-9", usage=Usage(8, 2), model="gpt-x", stop_reason="stop")
            with pytest.raises(KeyReused):
                await store.commit("t", messages=[changed], key="k-9")

    asyncio.run(run())


@pytest.mark.parametrize("shape", UNFIT, ids=str)
def test_json_of_another_shape_is_carried(shape: dict[str, Any]) -> None:
    data = {"role": "assistant", "content": [{"type": "text", "text": "x"}], **shape}
    message = Message.from_json(data)
    assert message.extra == shape
    assert message.to_json() == data


def refused(message: Message) -> InvalidError:
    async def run() -> None:
        async with perdure.open("memory://", housekeeping=False) as store:
            await store.commit("t", messages=[message])

    with pytest.raises(InvalidError) as caught:
        asyncio.run(run())
    return caught.value


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"usage": {"input_tokens": 1}}, "messages[0].usage"),
        ({"usage": Usage(input_tokens=-1)}, "usage.input_tokens"),
        ({"usage": Usage(output_tokens=True)}, "usage.output_tokens"),
        ({"usage": Usage(extra=Extra(input_tokens=1))}, "messages[0].usage"),
        ({"model": 3}, "messages[0].model"),
        ({"stop_reason": ["stop"]}, "messages[0].stop_reason"),
        ({"extra": Extra(usage={"input_tokens": 1})}, "messages[0]"),
        ({"extra": Extra(model="gpt-x")}, "messages[0]"),
        ({"extra": Extra(model=None)}, "messages[0]"),
        ({"model": "gpt-x", "extra": Extra(model=3)}, "messages[0]"),
    ],
)
def test_what_would_not_come_back_as_it_is_is_refused(fields: dict[str, Any], path: str) -> None:
    assert path in str(refused(Message.assistant("x", **fields)))


def test_content_as_providers_send_it() -> None:
    assert Message.from_json({"role": "assistant", "content": None}).content == []
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "Sunny."}
    message = Message.from_json({"role": "tool", "content": [result]})
    assert message == Message.tool("c1", "Sunny.")
    assert (message.result_text, message.text) == ("Sunny.", "")
    assert Message.from_json({"role": "tool", "content": [{**result, "content": None}]}) == Message.tool("c1")
    assert Message.user("Sunny.").result_text == ""


def test_the_hints_name_what_reads_a_provider_s_message() -> None:
    for fields in ({"tool_calls": [{"id": "c1"}]}, {"function_call": {"name": "f"}}, {"tool_call_id": "c1"}):
        with pytest.raises(InvalidError, match=r"perdure\.formats\.openai"):
            Message.from_json({"role": "assistant", "content": None, **fields})
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "x"}
    assert "perdure.formats.anthropic" in str(refused(Message.from_json({"role": "user", "content": [result]})))
    with pytest.raises(InvalidError, match=r"json\.dumps it"):
        Message.tool("c1", {"degrees": 24})  # type: ignore[arg-type]
