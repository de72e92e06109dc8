"""Where the arguments of an operation are in the values of its kind, in the order in which scripts take them.

The values of an operation are those of `kernel.shapes`: key, columns, body, condition, default. A script takes the
condition before the columns, takes nothing for a NULL or for the last seq, and takes the key as one text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from perdure.engines.redis.schema.keys import OFFSET, encode_key, escape
from perdure.kernel.kinds import Kind
from perdure.kernel.ops import Swap
from perdure.kernel.schema import Table
from perdure.kernel.shapes import NOW, NULL, PLAIN, Columns, RowShape, SeqOf

Key = Callable[[Sequence[Any]], str]


class RowPositions:
    """The positions of one operation on a row: those of its key, those of its condition, and for each column the kind
    of its value and its positions."""

    def __init__(self, kind: Kind, number: int, shape: RowShape, table: Table) -> None:
        numbers = iter(range(kind.starts[number], kind.starts[number + 1]))
        self.key = [next(numbers) for _ in table.key]
        self._columns = list(_columns(shape.columns, numbers))
        self._condition: list[int] = []
        if shape.condition is int:
            self._condition.append(next(numbers))
        elif isinstance(shape.condition, Columns):
            self._condition += [next(numbers) for each in shape.condition.kinds if each is not NULL]
        if shape.default is not None:
            self._columns += _columns(shape.default, numbers)
        self.encode: Key = _key(table, self.key)

    @property
    def seqs(self) -> list[int]:
        """The positions of values that count back from a seq."""
        return [positions[0] for kind, positions in self._columns if isinstance(kind, SeqOf)]

    def arguments(self, values: Sequence[Any], *, by_key: bool) -> list[int]:
        """The positions of what follows the key, for transactions with the NULLs of these values."""
        positions = list(self._condition)
        for kind, numbers in self._columns:
            is_nothing = (kind is PLAIN and values[numbers[0]] is None) or (
                isinstance(kind, SeqOf) and not values[numbers[0]]
            )
            positions += [] if is_nothing else numbers
        return positions + self.key if by_key else positions


def _columns(columns: Columns, numbers: Iterator[int]) -> Iterator[tuple[Any, list[int]]]:
    for kind in columns.kinds:
        if kind is not NOW:
            yield kind, [next(numbers), next(numbers)] if kind is Swap else [next(numbers)]


def _key(table: Table, numbers: list[int]) -> Key:
    """What encodes the key of a row: as `encode_key` does, with fewer calls for the common ones."""
    kinds = [column.type for column in table.key]
    if len(numbers) == 1 and kinds == ["text"]:
        only = numbers[0]
        return lambda values: escape(values[only])
    if kinds == ["text", "int"]:
        first, second = numbers
        return lambda values: f"{escape(values[first])}\x00{values[second] + OFFSET:016d}"
    if len(numbers) == 1:
        only = numbers[0]
        return lambda values: encode_key((values[only],))
    pick = itemgetter(*numbers)
    if "int" in kinds:
        return lambda values: encode_key(pick(values))
    return lambda values: _joined(pick(values))


def _joined(texts: tuple[str, ...]) -> str:
    """A key of several texts."""
    key = "\x00".join(texts)
    return key if "\x01" not in key and key.count("\x00") == len(texts) - 1 else encode_key(texts)
