"""Checks every row that a store reads: `kernel.answers`, with the rules of `rules.columns`.

`Context.view` sends all its answers through here, so no store can forget it. Unknown words pass, because a newer
build may know them; so does text that is too long or holds control characters, which `doctor verify` reports.
"""

from __future__ import annotations

from functools import lru_cache

from perdure.kernel.answers import AnswerCheck, Expectations
from perdure.kernel.schema import Schema
from perdure.rules.columns import COLUMNS
from perdure.rules.soundness.stored import row_name
from perdure.stores.schema import SCHEMA


def _entry_name(_log: str, thread: str, seq: str) -> str:
    return f"message {seq} of thread {thread!r}"


_EXPECTED = Expectations(
    always=frozenset((table, name) for table, rules in COLUMNS.items() for name, rule in rules.items() if rule.always),
    least=0,
    row_name=row_name,
    entry_name=_entry_name,
)
_PRODUCT = AnswerCheck(SCHEMA, _EXPECTED)


@lru_cache(maxsize=16)
def _other(schema: Schema) -> AnswerCheck:
    return AnswerCheck(schema, _EXPECTED)


def answer_check(schema: Schema) -> AnswerCheck:
    """The check of a schema's answers, compiled once."""
    return _PRODUCT if schema is SCHEMA else _other(schema)
