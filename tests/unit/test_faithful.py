"""Faithful JSON: what goes in comes out equal, at its level; what is not JSON is refused with its path."""

from __future__ import annotations

import datetime
import math
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.budget import spot_checks

from perdure.errors import CorruptError, CursorExpired, InvalidError
from perdure.ids import new_id, new_rev
from perdure.kernel import codec
from perdure.kernel.cursor import decode_cursor, encode_cursor
from perdure.model.faithful import Extra
from perdure.model.message import BODY_READER, Message, MessageBody, Text, ToolResult, write_body
from perdure.model.plain import check_json
from perdure.model.run import Run
from perdure.model.stored_json import write
from perdure.model.tickets import Ticket

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FREE = st.text(min_size=1).filter(lambda name: name not in {"type", "text", "content"})
FIELDS = st.dictionaries(FREE, JSON, max_size=4)


@given(JSON)
def test_json_values_survive(value: Any) -> None:
    check_json(value, "value")
    assert codec.decode(codec.encode(value), "value") == value


@given(FIELDS, FIELDS, st.text())
def test_unknown_fields_and_blocks_survive_storage(
    on_block: dict[str, Any], on_opaque: dict[str, Any], text: str
) -> None:
    data = {
        "role": "user",
        "content": [{"type": "text", "text": text, **on_block}, {**on_opaque, "type": "hologram"}],
    }
    message = Message.from_json(data)
    assert message.to_json() == data
    stored = BODY_READER.read(write_body(MessageBody(message.content)))
    assert Message(role="user", content=stored.content).to_json() == data


def test_an_empty_list_of_arguments_is_kept() -> None:
    for more in ({}, {"caller": 1}):
        data = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "n", "input": [], **more}]}
        message = Message.from_json(data)
        assert message.to_json() == data
        assert BODY_READER.read(write_body(MessageBody(message.content))).content == message.content


def test_a_field_called_extra_is_a_field_like_any_other() -> None:
    data = {"role": "user", "content": [{"type": "text", "text": "x", "extra": {"deep": None}}]}
    message = Message.from_json(data)
    assert message.content[0] == Text("x", extra=Extra({"extra": {"deep": None}}))
    assert message.to_json() == data
    assert BODY_READER.read(write(MessageBody(message.content))).content == message.content


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "value.a[1]"),
        ({"a": {"b": math.inf}}, "value.a.b"),
        ([b"bytes"], "value[0]"),
        ({"s": {1, 2}}, "value.s"),
        ((1, 2), "value"),
        ({"t": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, "value.t"),
        ({"m": {1: "x"}}, "value.m"),
        (["\ud800"], "value[0]"),
        ({"\udfff": 1}, "value"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(InvalidError) as caught:
        check_json(value, "value")
    assert caught.value.path == path


def test_depth_is_limited() -> None:
    value: Any = 1
    for _ in range(64):
        value = [value]
    check_json(value, "value")
    with pytest.raises(InvalidError, match="64"):
        check_json([value], "value")


def test_damaged_json_names_the_record() -> None:
    with pytest.raises(CorruptError, match="run 'r'"):
        codec.decode(b'{"a":', "run 'r'")


QUERY = ("threads", None, "p", True, "active")
KEYSET = (int, str)


def test_a_cursor_continues_its_own_query_only() -> None:
    cursor = encode_cursor(QUERY, (17, "id"))
    assert decode_cursor(cursor, QUERY, KEYSET) == (17, "id")
    with pytest.raises(InvalidError):
        decode_cursor(cursor, ("threads", None, "q", True, "active"), KEYSET)


def test_a_cursor_of_another_version_has_expired() -> None:
    with patch("perdure.kernel.cursor._VERSION", 0):
        old = encode_cursor(QUERY, (17, "id"))
    with pytest.raises(CursorExpired, match="format 0"):
        decode_cursor(old, QUERY, KEYSET)


def test_every_flipped_bit_of_a_cursor_is_noticed() -> None:
    cursor = encode_cursor(QUERY, (1_700_000_000_000, "01M7GMHTPQ731SFQX54KE7E0C6"))
    raw = cursor.encode()
    for i in range(len(raw)):
        for bit in range(7):
            damaged = raw[:i] + bytes([raw[i] ^ (1 << bit)]) + raw[i + 1 :]
            with pytest.raises(InvalidError):
                decode_cursor(damaged.decode(), QUERY, KEYSET)


@pytest.mark.parametrize("text", ["", "x", "é", "AAAA", "=" * 8, "A" * 5000])
def test_foreign_text_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidError):
        decode_cursor(text, QUERY, KEYSET)


def test_ids_rise_and_revs_fit() -> None:
    ids = [new_id() for _ in range(5000)]
    assert ids == sorted(set(ids))
    assert all(0 < new_rev() < 2**53 for _ in range(1000))


def test_a_path_is_cut_in_its_keys_and_as_a_whole() -> None:
    value: Any = b"x"
    for n in range(20):
        value = {"k" * 100 + str(n): [0, value]}
    with pytest.raises(InvalidError) as caught:
        check_json(value, "value")
    path = caught.value.path or ""
    assert path.startswith("value." + "k" * 79 + "…[1]." + "k" * 79)
    assert path.endswith("…[1]")
    assert len(path) == 401


def test_a_run_waits_for_tickets_only() -> None:
    run: Any = Run(**dict.fromkeys(Run.__struct_fields__))
    for tickets in ([5], "x", [Ticket(ticket_id=5)], [Ticket(ticket_id="a", tool_call_id=5)], {"a": 1}):  # type: ignore[arg-type]
        with pytest.raises(InvalidError):
            run.wait(tickets)


def test_a_message_nested_beyond_the_stack_has_no_json() -> None:
    block: Any = Text("x")
    for _ in range(5_000):
        block = ToolResult("c", [block])
    with pytest.raises(InvalidError, match="nested too deeply"):
        Message("tool", [block]).to_json()


def test_what_is_huge_as_json_is_refused_by_the_walk() -> None:
    small: Any = [0] * 10
    for _ in range(4):
        small = [small] * 10
    assert check_json(small, "value") >= 200_000
    with pytest.raises(InvalidError, match=r"^value: more than 100,000 bytes of JSON"):
        check_json(small, "value", 100_000)


def test_a_check_takes_little_memory() -> None:
    spot_checks.memory()
