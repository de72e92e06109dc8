"""The shortcut for plain paths gives what the rules of the views give; the one for shallow messages misses no depth."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from perdure.errors import CorruptError
from perdure.kernel import codec
from perdure.model.message import (
    BODY_READER,
    Compaction,
    Message,
    MessageBody,
    MessageRecord,
    Text,
    ToolResult,
    ToolUse,
    may_nest,
    write_body,
)
from perdure.rules import views
from perdure.rules.plain_paths import is_plain
from perdure.stores.records import message_record

_PATHS = 3_000


def _message(rng: random.Random, waiting: list[str]) -> Message:
    roll = rng.random()
    visibility = "internal" if rng.random() < 0.04 else "all"
    mark = Compaction(rng.randint(1, 3), rng.randint(3, 6)) if rng.random() < 0.02 else None
    if roll < 0.3:
        return Message(rng.choice(("user", "system")), [Text("t")], visibility=visibility, compaction=mark)
    if roll < 0.6 or not waiting:
        calls = [f"c{rng.randint(0, 30)}" for _ in range(rng.choice((0, 1, 1, 2)))]
        waiting += calls
        content = [Text("t"), *[ToolUse(call, "n") for call in dict.fromkeys(calls)]]
        return Message("assistant", content, visibility=visibility, compaction=mark)
    call = waiting.pop(rng.randrange(len(waiting)))
    if rng.random() < 0.05:
        call = "c1"
    content = [] if rng.random() < 0.01 else [ToolResult(call, [Text("r")])]
    return Message("tool", content, visibility=visibility)


def _path(rng: random.Random) -> list[MessageRecord]:
    waiting: list[str] = []
    messages = [_message(rng, waiting) for _ in range(rng.randint(0, 8))]
    messages += [Message.tool(call, "r") for call in waiting if rng.random() < 0.9]
    return [MessageRecord("t", seq, 0, None, message, 0) for seq, message in enumerate(messages, 1)]


@pytest.mark.parametrize("external", [False, True])
def test_a_plain_path_is_its_own_view(external: bool, seed: int) -> None:
    rng, plain = random.Random(seed), 0
    for _ in range(_PATHS):
        path = _path(rng)
        withdrawn = views._withdrawn(path)
        view = views._strip(path if external else views.fold(path), withdrawn, external=external)
        if is_plain(path, external=external):
            plain += 1
            assert view == path
        assert (views.external if external else views.history)(path) == view
    assert _PATHS // 20 < plain < _PATHS * 19 // 20


def test_a_view_of_a_plain_path_is_a_list_of_its_own() -> None:
    path = [MessageRecord("t", 1, 0, None, Message.user("x"), 0)]
    for view in (views.history, views.external):
        view(path).clear()
    assert len(path) == 1


def _nested(depth: int) -> Any:
    value: Any = "x" * 300
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "body",
    [
        MessageBody([ToolUse("c", "n", _nested(130))]),
        MessageBody([ToolUse("c", "n", {"a": 1, "b": _nested(130)})]),
        MessageBody([Text("x"), ToolUse("c", "n", {"a": {"b": _nested(130)}})]),
        MessageBody([Text("x")], metadata={"a": _nested(130)}),
        MessageBody([ToolResult("c", [Text("x"), ToolUse("c", "n", _nested(130))])]),
    ],
    ids=["list", "object", "later", "metadata", "result"],
)
def test_a_stored_message_that_nests_too_deeply_is_refused(body: MessageBody) -> None:
    data = write_body(body)
    assert may_nest(BODY_READER.decode(data))
    with pytest.raises(CorruptError, match=f"deeper than {codec.STORED_DEPTH}"):
        message_record("t", (1, 1, "m", "user", 0, "all", None, None, 0, data), None)


@pytest.mark.parametrize("depth", [130, 5_000])
@pytest.mark.parametrize(
    "around",
    [
        '{"more":%s,"content":[]}',
        '{"content":[{"type":"text","text":"x","more":{"a":%s}}]}',
        '{"content":[{"type":"odd","a":%s}]}',
        '{"content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"x","more":%s}]}]}',
        '{"content":[],"usage":{"more":%s}}',
        '{"content":[],"compaction":{"from_seq":1,"to_seq":1,"more":%s}}',
        '{"content":[],"metadata":{"a":%s},"more":1}',
        '{"content":[{"type":"tool_use","id":"i","name":"n","input":%s,"more":1}]}',
        '{"content":%s,"more":1}',
    ],
)
def test_a_stored_message_whose_unknown_part_nests_too_deeply_is_refused(around: str, depth: int) -> None:
    data = (around % ("[" * depth + "]" * depth)).encode()
    with pytest.raises(CorruptError) as caught:
        message_record("t", (1, 1, "m", "user", 0, "all", None, None, 0, data), None)
    if depth < 1_000:  # far deeper ones are given up by the decoder
        assert f"deeper than {codec.STORED_DEPTH}" in str(caught.value)


def test_a_stored_message_of_nested_results_is_refused() -> None:
    data: Any = {"type": "text", "text": "x" * 300}
    for _ in range(70):
        data = {"type": "tool_result", "tool_use_id": "c", "content": [data]}
    text = msgspec.json.encode({"content": [data]})
    with pytest.raises(CorruptError, match=f"deeper than {codec.STORED_DEPTH}"):
        message_record("t", (1, 1, "m", "tool", 0, "all", None, None, 0, text), None)


def test_ordinary_messages_need_no_second_look() -> None:
    call = ToolUse("c", "n", {"query": "x" * 300, "limit": 5, "all": None})
    for content in ([Text("x")], [Text("x"), call], [ToolResult("c", [Text("x"), Text("y")])], []):
        assert not may_nest(MessageBody(content))  # type: ignore[arg-type]
