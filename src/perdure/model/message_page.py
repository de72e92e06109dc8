"""A page of messages: where to follow on from it, and whether an answer is being written."""

from __future__ import annotations

from perdure.model.message import MessageRecord
from perdure.model.page import Page


class MessagePage(Page[MessageRecord], frozen=True, kw_only=True):
    """One page of a branch, as `messages.page` returns it."""

    branch: int
    """The number of the branch."""
    after_seq: int
    """Where `messages.follow(branch=page.branch, after_seq=page.after_seq)` continues the newest page, without a gap.

    That is the end of the page, or, while the open run has calls without a result, before the first of them: the page
    hides such a call, and following sends its message again, with the call.
    """
    open_run_id: str | None
    """A run of the thread that is not done, or None."""
