"""Defects that are known and not mended yet. The aim of this list is to be empty.

An entry names the case of the corpus that shows the defect, and the kind of its failure. The case must fail in just
this way: once it no longer does, the test asks for the entry to be removed. Failures of the same kind in a fuzzer's
own cases are counted and not reported, so that it finds what is not known yet.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A defect: the finding it belongs to, the case that shows it, and the kind of its failure."""

    finding: str
    case: str
    kind: str


KNOWN: tuple[Known, ...] = ()


def known_kinds(target: str) -> frozenset[str]:
    """The kinds of failure that a target is known to have."""
    return frozenset(known.kind for known in KNOWN if known.case.startswith(f"{target}/"))
