"""What engines decide in Python: a unique column of a log is looked up, never read through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure.engines.shared.decisions import refuse_repeated
from perdure.kernel.engine import Conflict
from perdure.stores.schema import MESSAGES


class OnlyLookups(dict[Any, int]):
    """The owners of a long log: walking through them would make an append cost what the log holds."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("the owners were walked through")

    keys = __iter__  # type: ignore[assignment]


def entry(message_id: str) -> tuple[Any, ...]:
    return (message_id, "user", 0, "all", None, None, 1, b"{}")


def test_an_append_looks_its_ids_up() -> None:
    refuse_repeated(0, MESSAGES, [entry("c"), entry("d")], {"id": OnlyLookups(a=1, b=2)})


@pytest.mark.parametrize("ids", [("c", "a"), ("c", "c")])
def test_a_repeated_id_is_refused(ids: tuple[str, ...]) -> None:
    with pytest.raises(Conflict) as refusal:
        refuse_repeated(3, MESSAGES, [entry(i) for i in ids], {"id": OnlyLookups(a=1, b=2)})
    assert (refusal.value.op, refusal.value.kind) == (3, "unique")
