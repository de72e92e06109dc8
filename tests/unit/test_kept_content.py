"""What outlives a call: kinds hold no content of their first commit; indexes survive a read that was interrupted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.toys import SCHEMA

from perdure.engines.memory.schema import Order, TableData
from perdure.kernel.kinds import Kind
from perdure.kernel.ops import NOW, Append, Patch, Put, Row


def test_a_kind_holds_no_bodies() -> None:
    entries = [("id", "kind", 0, NOW, b'"secret"')]
    ops = [Put("items", ("a",), {"n": 1}, b'"secret"'), Patch("pairs", ("a", 1), {"n": 1}, body=b'"secret"')]
    kind = Kind([*ops, Append("notes", "t", entries)])
    assert "secret" not in repr(kind.template)
    assert kind.shapes == Kind(kind.template).shapes


def test_a_read_that_is_interrupted_leaves_the_indexes_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    table = SCHEMA.table["items"]
    data, move, moves = TableData(table), Order.move, 0
    width = len(table.column_names)
    for n in range(20):
        data.replace((f"i-{n:02d}",), Row((f"i-{n:02d}",), (None,) * width, 1, None, table.positions))

    def interrupted(self: Order, old: Any, new: Any) -> None:
        nonlocal moves
        move(self, old, new)
        moves += 1
        if moves == 23:
            raise KeyboardInterrupt

    monkeypatch.setattr(Order, "move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.order(None)
    assert [key for (key,) in data.walk(None, (), None, desc=False)] == [f"i-{n:02d}" for n in range(20)]
