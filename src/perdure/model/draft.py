"""The record of a draft: the words of an answer that is still being written."""

from __future__ import annotations

from perdure.model.record import Record


class Draft(Record, frozen=True, kw_only=True):
    """What `follow_drafts` yields: the text so far, or that a draft has gone."""

    run_id: str
    """The run whose answer it is."""
    branch: int
    """The number of the branch that the answer will be on."""
    text: str | None
    """All the words so far; None when the draft has gone: the answer was committed, or will not come."""
