"""The golden dumps: what the workload gave when they were written, and how today's run compares.

`outcomes.jsonl` and `contents.jsonl` hold for every engine; `engines.json` has what an engine says of itself, one entry
each. `changed_texts.toml` lists error texts that were changed on purpose since.
"""

from __future__ import annotations

import json
import re
import tomllib
from itertools import zip_longest
from pathlib import Path
from typing import Any

Line = dict[str, Any]
FOLDER = Path(__file__).with_name("golden")
CHANGED = Path(__file__).with_name("changed_texts.toml")
REWRITE = "If the change is intended: python -m tests.recorded --write (or list the text in changed_texts.toml)."
_MOST_PRINTED = 5
_RESUMED = re.compile(r'"resumed_from":\{.*?\},(?="outcome")')
_REV = re.compile(r'"rev-\d+"')


def read(name: str) -> list[Line]:
    """The lines of a golden dump."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def write(name: str, lines: list[Line]) -> None:
    """Write a golden dump anew."""
    text = "".join(spelled(line) + "\n" for line in lines)
    (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")


def spelled(line: Line) -> str:
    """A line as it stands in a file; a lone surrogate, which UTF-8 cannot carry, stands as an escape."""
    return json.dumps(line, ensure_ascii=True, sort_keys=True)


def changed_texts() -> list[Line]:
    """The listed changes: `old`, `new`, and `class`, `code` and `retryable` where they changed too."""
    listed: list[Line] = tomllib.loads(CHANGED.read_text(encoding="utf-8")).get("changed", [])
    return listed


def with_changed_texts(lines: list[Line], changes: list[Line]) -> tuple[list[Line], list[str]]:
    """Golden lines with the listed texts in their errors replaced, and the listed texts that occur nowhere."""
    used: set[str] = set()
    for line in lines:
        error = line.get("error", {})
        for change in changes:
            for field in ("message", "hint"):
                if change["old"] in (error.get(field) or ""):
                    used.add(change["old"])
                    error[field] = error[field].replace(change["old"], change["new"])
                    error |= {name: change[name] for name in ("class", "code", "retryable") if name in change}
    return lines, [change["old"] for change in changes if change["old"] not in used]


def without_revs(lines: list[Line]) -> list[Line]:
    """The same lines with every rev alike: a copy gives its rows revs of its own."""
    return [json.loads(_REV.sub('"rev"', spelled(line))) for line in lines]


def before_decisions(lines: list[Line]) -> list[Line]:
    """The same lines as a build without `resumed_from` left them: the old file is of such a build."""
    return [_before_decisions(line) for line in lines]


def _before_decisions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _before_decisions(item) for name, item in value.items() if name != "resumed_from"}
    if isinstance(value, list):
        return [_before_decisions(item) for item in value]
    return _RESUMED.sub("", value) if isinstance(value, str) else value  # a line of an export


def differences(expected: list[Line], actual: list[Line]) -> str:
    """The first differences in words; empty when both are the same."""
    pairs = enumerate(zip_longest(expected, actual), 1)
    unequal = [(number, old, new) for number, (old, new) in pairs if old != new]
    if not unequal:
        return ""
    excerpt = "\n".join(_difference(number, old, new) for number, old, new in unequal[:_MOST_PRINTED])
    return f"{len(unequal)} of {len(expected)} lines differ:\n{excerpt}\n{REWRITE}"


def _difference(number: int, old: Line | None, new: Line | None) -> str:
    known = {**(old or new or {})}
    where = " ".join(str(known[name]) for name in ("chapter", "step", "scope", "thread", "view") if name in known)
    return "\n".join([f"line {number} {where}", *_parts("", old, new)])


def _parts(path: str, old: Any, new: Any) -> list[str]:
    """The parts of a value that differ, each with its path."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted({*old, *new}, key=str)
        return [part for name in names for part in _parts(f"{path}.{name}", old.get(name), new.get(name))]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [part for i, (left, right) in pairs for part in _parts(f"{path}[{i}]", left, right)]
    return [] if old == new else [f"  {path or 'line'}", f"    golden: {old!r:.600}", f"    now:    {new!r:.600}"]
