"""Selects the pending messages that a boundary takes, as one pure function.

Boundaries rise from `interrupt` to `new_run`; a message that was not read at its boundary may be read at a later one.
`resume_input` is separate: it takes exactly the messages meant for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.pending import BOUNDARIES, DeliveryMode, PendingMessage

_RANK = {boundary: rank for rank, boundary in enumerate(BOUNDARIES[:4])}


def select(queue: Sequence[PendingMessage], boundary: str, run_id: str | None) -> list[PendingMessage]:
    """The messages that this boundary of this run takes, in order."""
    selection: list[PendingMessage] = []
    skipped = False
    for entry in queue:
        mode = entry.mode
        if not eligible(mode, boundary, run_id):
            if mode.barrier or not _skippable(mode, boundary):
                break
            skipped = True
            continue
        if (mode.barrier and skipped) or (mode.granularity == "one" and selection):
            break
        selection.append(entry)
        if mode.barrier or mode.granularity == "one":
            break
    return selection


def eligible(mode: DeliveryMode, boundary: str, run_id: str | None) -> bool:
    """May a message with this mode be read at this boundary of this run?"""
    if mode.target_run_id is not None:
        if boundary == "new_run":
            if not mode.fallback_to_new_run:
                return False
        elif mode.target_run_id != run_id:
            return False
    if "resume_input" in (mode.boundary, boundary):
        return mode.boundary == boundary
    return _RANK.get(mode.boundary, len(_RANK)) <= _RANK[boundary]


def _skippable(mode: DeliveryMode, boundary: str) -> bool:
    if boundary != "new_run":
        return mode.boundary == "new_run"
    return mode.boundary != "new_run" and not mode.fallback_to_new_run
