"""JSON is checked, read and written in C as it was in Python: the same values, the same refusals, word for word.

`PERDURE_VALUES=100000` compares that many values of each kind; a failure prints the seed and the number of its value.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.unit import odd_values, reference_json

from perdure import limits
from perdure.errors import InvalidError
from perdure.model import message as blocks
from perdure.model import plain
from perdure.model.faithful import Extra, Faithful, Opaque, Untyped
from perdure.model.message import Message, MessageBody, Text, ToolResult, ToolUse
from perdure.model.pending import PendingBody
from perdure.model.run import RunBody, Waiting
from perdure.model.stored_json import Reader, write
from perdure.model.thread import ThreadBody

VALUES = int(os.environ.get("PERDURE_VALUES", "3000"))

_CONTENT: list[Any] = [
    {"type": "text", "text": "é hello", "cache_control": {"type": "ephemeral"}},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa", "more": 1}},
    {"type": "document", "source": {"type": "file", "file_id": "f"}, "title": "t"},
    {"type": "tool_use", "id": "c1", "name": "n", "input": {"a": [1, {"b": None}]}, "caller": {"type": "direct"}},
    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}, {"type": "odd", "a": 1}]},
    {"type": "redacted_thinking", "data": "xyz"},
]
_BODY = {"content": _CONTENT, "usage": {"input_tokens": 5, "output_tokens": 6}, "model": "m", "tier": "standard"}
_SEEDS: dict[type[Faithful], list[Any]] = {
    MessageBody: [_BODY, {"content": [{"type": "text", "text": "hi"}]}, {"content": [], "metadata": {"a": 1}}],
    Message: [{"role": "user", **_BODY}, {"role": "tool", "content": [_CONTENT[5]], "visibility": "internal"}],
    PendingBody: [{"message": {"role": "user", **_BODY}, "mode": {"boundary": "b", "granularity": "g"}}],
    RunBody: [{"waiting": {"reason": "r", "tickets": [{"id": "t", "kind": "k"}]}, "input": {"range": {}}, "more": 1}],
    Waiting: [{"reason": "r", "tickets": [{"id": "t", "more": 2}], "since_dispatch_id": None}],
    ThreadBody: [{"custom": {"a": {"b": [1]}}}, {"custom": {}, "more": [1]}],
}


def _numbered(seed: int) -> Iterator[tuple[str, random.Random]]:
    for number in range(VALUES):
        yield f"PERDURE_SEED={seed}, value {number}", random.Random(f"{seed} {number}")


def _outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What a call returns, its types included, or how it refuses."""
    try:
        answer = call()
    except InvalidError as error:
        return (InvalidError, error.message, error.path, error.hint)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return (type(error), str(error))
    return (type(answer), repr(answer))


def test_values_are_checked_alike(seed: int) -> None:
    refused = 0
    for where, rng in _numbered(seed):
        value = odd_values.wrapped(rng)
        most, wrapped = rng.choice((limits.MESSAGE_BYTES, 2_000, 40, 2, 0)), rng.choice((0, 0, 8))
        expected = _outcome(lambda: reference_json.check_json(value, "v", most, wrapped=wrapped))  # noqa: B023
        answer = _outcome(lambda: plain.check_json(value, "v", most, wrapped=wrapped))  # noqa: B023
        assert answer == expected, f"{where}: {value!r:.500}"
        refused += expected[0] is InvalidError
    assert VALUES // 20 < refused < VALUES * 19 // 20, "the values are nearly all of one kind"


@pytest.mark.parametrize("cls", _SEEDS, ids=[cls.__name__ for cls in _SEEDS])
def test_records_are_read_and_written_alike(cls: type[Faithful], seed: int) -> None:
    reader, more = Reader(cls), 0
    for where, rng in _numbered(seed):
        text = odd_values.record(rng, _SEEDS[cls])
        data = text if rng.random() < 0.9 else text.decode("utf-8", "replace")
        expected = _outcome(lambda: reference_json.read(cls, data))  # noqa: B023
        assert _outcome(lambda: reader.read(data)) == expected, f"{where}: {data!r:.1000}"  # noqa: B023
        if expected[0] is cls:
            record = reader.read(data)
            assert record == reference_json.read(cls, data), where
            _insist_written_alike(record, where)
            more += reference_json.carries_unknown(record)
    assert more > VALUES // 200, "hardly anything unknown was read"


def _insist_written_alike(record: Faithful, where: str) -> None:
    data = write(record)
    if isinstance(record, MessageBody):
        assert data == blocks.write_body(record), where
    expected = reference_json.read(type(record), reference_json.write(record))
    for read in (Reader(type(record)).read, lambda data: reference_json.read(type(record), data)):
        answer = read(data)
        assert answer == expected, f"{where}: {data!r:.1000}"
        assert repr(reference_json.to_json(answer)) == repr(reference_json.to_json(expected)), where


class _Mapping(dict[str, Any]):
    pass


_MADE: list[MessageBody] = [
    MessageBody([Text("a", extra=extra), ToolUse("i", "n", {}, extra=extra)], extra=extra)  # type: ignore[arg-type]
    for extra in (Extra(), Extra(a=1, b="é"), {"a": 1}, {}, _Mapping(a=[1]), Extra({"extra": None, "": 1}))
]
_MADE += [
    MessageBody([ToolResult("i", [Text("a", extra=Extra(n=1)), Opaque(Untyped(type="odd", a=[1]))])]),
    MessageBody([Opaque({"type": "odd"}), blocks.Image(Opaque(Untyped(type="file")))]),  # type: ignore[arg-type]
    MessageBody([], usage=blocks.Usage(extra=Extra(more=1))),
    MessageBody([], usage=blocks.Usage(1, extra=Extra(more=1)), compaction=blocks.Compaction(1, 2, Extra(by="x"))),
    MessageBody([blocks.Thinking("t", extra=Extra(e='"\\\x00,"extra":null}'))], metadata={"extra": None}),
]


@pytest.mark.parametrize("body", _MADE, ids=range(len(_MADE)))
def test_what_callers_make_is_written_alike(body: MessageBody) -> None:
    _insist_written_alike(body, "made")


def test_many_blocks_with_unknown_fields_are_written_in_order() -> None:
    body = MessageBody([Text(str(n), extra=Extra(n=n)) for n in range(1_000)])
    assert [block["n"] for block in msgspec.json.decode(blocks.write_body(body))["content"]] == list(range(1_000))
