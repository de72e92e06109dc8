"""Single checks of the budget as a program, for planted bugs. It asserts nothing, so `python -O` sees the same.

python -m tests.budget.spot_checks memory | size | repeated-call | summaries
"""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from tests.budget.run import measure_growth, table

from perdure.errors import InvalidError
from perdure.model.plain import check_json


class OverBudget(Exception):
    """Something costs more than it may."""


def memory() -> None:
    """A check of long keys above a long list takes less memory than the JSON itself."""
    value = {"k" * 2_000: [0] * 30_000}
    tracemalloc.start()
    try:
        check_json(value, "value")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > 62_000:
        raise OverBudget(f"{peak:,} bytes for 62,000 bytes of JSON")


def size() -> None:
    """What is small in memory and huge as JSON is refused by the walk."""
    value: Any = [0] * 10
    for _ in range(4):
        value = [value] * 10
    try:
        check_json(value, "value", 100_000)
    except InvalidError:
        return
    raise OverBudget("more than 200,000 bytes of JSON passed as 100,000")


def growth(name: str) -> None:
    """A call with four times as many things does not take sixteen times as long."""
    costs = asyncio.run(measure_growth("memory", [name]))
    if not all(cost.within for cost in costs):
        raise OverBudget(table(costs).strip())


CHECKS: dict[str, Callable[[], None]] = {
    "memory": memory,
    "size": size,
    "repeated-call": lambda: growth("commit, a repeated call"),
    "summaries": lambda: growth("messages.history, summaries"),
}


def main(name: str) -> int:
    """Run one check."""
    try:
        CHECKS[name]()
    except OverBudget as error:
        sys.stderr.write(f"OverBudget: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
