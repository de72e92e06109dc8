"""Walks a hierarchy of threads upwards, from children to parents, visiting each thread once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def upward_lines(parents: Mapping[str, str | None]) -> Iterator[tuple[list[str], str | None]]:
    """Every thread of `parents` once, in lines that lead from a thread to its parent, and where each line ended.

    A line ends at a root (None), at a thread outside `parents` or of an earlier line, or at one of its own: a cycle.
    For example `{"a": None, "b": "a", "c": "b"}` gives `(["a"], None)`, `(["b"], "a")`, `(["c"], "b")`.
    """
    visited: set[str] = set()
    for thread in parents:
        line: list[str] = []
        current: str | None = thread
        while current is not None and current in parents and current not in visited and current not in line:
            line.append(current)
            current = parents[current]
        if line:
            visited.update(line)
            yield line, current
