"""What a `Ref` points at, for engines that answer the reads of a view one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.kernel.ops import Get, ReadOp, Ref, Row, Scan
from perdure.kernel.schema import Schema


class Earlier:
    """The reads before the one at hand, and their rows; `answers` grows as they are answered."""

    def __init__(self, schema: Schema, reads: Sequence[ReadOp], answers: Sequence[Any]) -> None:
        self._schema = schema
        self._reads = reads
        self._answers = answers

    def keys(self, ref: Ref) -> list[tuple[Any, ...]]:
        """The values of the named columns, without those that hold a NULL."""
        read = self._reads[ref.read]
        key_names = self._schema.table[read.table].key_names if isinstance(read, (Get, Scan)) else ()
        rows: list[Row] = [row for row in self._answers[ref.read] if row is not None]
        if ref.columns == key_names:
            return [row.key for row in rows]
        keys = [
            tuple(row.key[key_names.index(name)] if name in key_names else row[name] for name in ref.columns)
            for row in rows
        ]
        return [key for key in keys if None not in key]

    def eq(self, eq: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """`eq` with its `Ref` replaced by the first value it leads to; None when it leads nowhere."""
        if not any(isinstance(value, Ref) for value in eq):
            return eq
        values = [self.keys(value)[:1] if isinstance(value, Ref) else [(value,)] for value in eq]
        return tuple(keys[0][0] for keys in values) if all(values) else None
