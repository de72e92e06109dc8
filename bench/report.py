"""Tables a person can read, the same figures as JSON, and the closing table of targets."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import Case, Ratio, cost, speed


@dataclass(frozen=True)
class Target:
    """A figure the project promises: `at_least` or at most `limit`; without a limit it is only shown."""

    name: str
    limit: float | None
    at_least: bool
    measured: float
    spread: str

    @property
    def goal(self) -> str:
        return "shown" if self.limit is None else f"{'≥' if self.at_least else '≤'} {self.limit:g} ×"

    @property
    def met(self) -> bool | None:
        if self.limit is None:
            return None
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


_VERDICT = {True: "yes", False: "NO", None: "–"}


class Report:
    """Collects sections as they are measured; prints each at once and the targets at the end."""

    def __init__(self) -> None:
        self.sections: list[dict[str, Any]] = []
        self.targets: list[Target] = []
        self.facts: dict[str, Any] = {}

    def cases(self, title: str, cases: list[Case], base: Case, *, slower: bool = False) -> None:
        """One interleaved comparison. `slower` shows times beside the baseline's, otherwise speeds."""
        compare, word = (cost, "time") if slower else (speed, "speed")
        rows: list[list[str]] = []
        data: list[dict[str, Any]] = []
        for case in cases:
            if case.error or not case.seconds:
                rows.append([case.name, case.error[:70] or "no result", "", "", "", ""])
                data.append({"case": case.name, "error": case.error})
                continue
            ratio = compare(case, base)
            own = [duration(case.median), rate(case.median), duration(case.median_cpu)]
            rows.append([case.name, *own, times(ratio.median), spread(ratio)])
            data.append({"case": case.name, "rounds_s": case.seconds, "rounds_cpu_s": case.cpu, word: asdict(ratio)})
        head = ["case", "median", "per second", "CPU", f"{word} × {base.name}", "middle half"]
        self.table(title, head, rows, {"baseline": base.name, "cases": data})

    def table(self, title: str, head: list[str], rows: list[list[str]], data: Any = None) -> None:
        """Any other table."""
        self.sections.append({"title": title, "data": data if data is not None else {"head": head, "rows": rows}})
        print(f"\n{title}\n{render(head, rows)}", flush=True)

    def promise(self, name: str, limit: float | None, ratio: Ratio | float, *, at_least: bool) -> None:
        """Hold a measured figure against its target."""
        middle = ratio.median if isinstance(ratio, Ratio) else ratio
        shown = spread(ratio) if isinstance(ratio, Ratio) else ""
        self.targets.append(Target(name, limit, at_least, middle, shown))

    def failure(self, what: str, reason: str) -> None:
        """Something that could not be measured: said at once, and kept in the closing table."""
        print(f"\n{what}: {reason}", flush=True)
        self.sections.append({"title": what, "data": {"error": reason}})
        self.targets.append(Target(f"{what}: {reason}"[:100], None, True, math.nan, ""))

    def finish(self, path: Path | None) -> None:
        """The closing table, and the JSON file if one was asked for."""
        rows = [[t.name, t.goal, times(t.measured), t.spread, _VERDICT[t.met]] for t in self.targets]
        print(f"\nTargets\n{render(['figure', 'target', 'measured', 'middle half', 'met'], rows)}", flush=True)
        if path is not None:
            targets = [asdict(t) | {"met": t.met} for t in self.targets]
            whole = {"facts": self.facts, "sections": self.sections, "targets": targets}
            path.write_text(json.dumps(whole, indent=1))


def render(head: list[str], rows: list[list[str]]) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        aligned = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  " + "  ".join([cells[0].ljust(widths[0]), *aligned]).rstrip()

    return "\n".join([line(head), "  " + "  ".join("-" * width for width in widths), *map(line, rows)])


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.1f} ms"


def rate(seconds: float) -> str:
    """Operations per second."""
    return f"{1 / seconds:,.0f}" if seconds < 0.1 else f"{1 / seconds:,.1f}"


def times(ratio: float) -> str:
    """A ratio with as many digits as it deserves."""
    if math.isnan(ratio):
        return "not measured"
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:,.1f} ×"


def spread(ratio: Ratio) -> str:
    """The middle half of the per-round ratios."""
    return f"{ratio.low:.2f}–{ratio.high:.2f}"
