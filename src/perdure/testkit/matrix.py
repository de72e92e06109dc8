"""`python -m perdure.testkit.matrix`: runs every case on every engine and prints a table of capability × engine.

    python -m perdure.testkit.matrix [memory] [sqlite] [package.module:Provider] …

A cell counts the cases that passed, or says why none ran. The exit code is 1 if a case failed, or if a server is
missing where servers are required (see `kit.servers_required`).
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from perdure.clock import ManualClock
from perdure.testkit.kit import Case, Provider, ServerMissing, registry, run_case, servers_required
from perdure.testkit.providers import provider_named, provider_names


@dataclass
class Cell:
    """What became of one capability's cases on one engine."""

    passed: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        if not self.passed and not self.failed:
            return "; ".join(self.reasons) or "no cases"
        parts = [f"{self.passed} passed"]
        if self.failed:
            parts.append(f"{self.failed} FAILED")
        parts.extend(f"{count} not run: {reason}" for reason, count in self.reasons.items())
        return ", ".join(parts)


Matrix = dict[str, dict[str, Cell]]


async def fill(cases: Sequence[Case], providers: Sequence[Provider], missing: Mapping[str, str]) -> Matrix:
    """Run everything, printing failures as they come."""
    matrix: Matrix = {}
    for case in cases:
        row = matrix.setdefault(case.capability, {provider.name: Cell() for provider in providers})
        for provider in providers:
            if provider.name in missing:
                row[provider.name].reasons["no server"] += 1
            else:
                await _run(case, provider, row[provider.name])
    return matrix


async def unavailable(providers: Sequence[Provider]) -> dict[str, str]:
    """The engines whose server is missing, and why."""
    reasons = {}
    for provider in providers:
        try:
            await provider.start(ManualClock())
            await provider.stop()
        except ServerMissing as missing:
            reasons[provider.name] = str(missing)
    return reasons


async def _run(case: Case, provider: Provider, cell: Cell) -> None:
    reason = case.reason_to_skip(provider)
    if reason is not None:
        cell.reasons[reason] += 1
        return
    try:
        await run_case(case, provider)
    except Exception:  # noqa: BLE001 - whatever a case raises is its failure, and is shown whole
        cell.failed += 1
        print(f"FAILED {case.id} on {provider.name}", file=sys.stderr)
        traceback.print_exc()
    else:
        cell.passed += 1


def show(matrix: Matrix, engines: Sequence[str], missing: Mapping[str, str]) -> None:
    """Print the table, in colour when rich is there."""
    rows = [[capability, *(str(cells[engine]) for engine in engines)] for capability, cells in matrix.items()]
    total = ["all", *(missing.get(engine) or _passed(matrix, engine) for engine in engines)]
    if find_spec("rich") is None:
        _show_plain([["capability", *engines], *rows, total])
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("capability", *engines, title="conformance cases", title_justify="left")
    for row in rows:
        table.add_row(*row, style="red" if any("FAILED" in cell for cell in row) else None)
    table.add_section()
    table.add_row(*total, style="bold")
    Console().print(table)


def _passed(matrix: Matrix, engine: str) -> str:
    return f"{sum(cells[engine].passed for cells in matrix.values())} passed"


def _show_plain(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main(names: Sequence[str]) -> int:
    """Run the named providers, or every registered one."""
    providers = [provider_named(name) for name in names or provider_names()]
    missing = asyncio.run(unavailable(providers))
    matrix = asyncio.run(fill(list(registry().values()), providers, missing))
    show(matrix, [provider.name for provider in providers], missing)
    failed = any(cell.failed for cells in matrix.values() for cell in cells.values())
    return 1 if failed or (missing and servers_required()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
