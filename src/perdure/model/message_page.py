"""A page of messages: where to follow on from it, and whether an answer is being written."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model.branch import Variant
from perdure.model.message import ALL, MessageRecord
from perdure.model.page import Page


class MessagePage(Page[MessageRecord], frozen=True, kw_only=True):
    """One page of a branch, as `messages.page` returns it."""

    branch: int
    """The number of the branch."""
    after_seq: int
    """Where `messages.follow(branch=page.branch, after_seq=page.after_seq)` continues the newest page, without a gap.

    That is the end of the page or, if it hides calls that have no result yet, before the first of them: following sends
    the message of such a call again, with the call.
    """
    open_run_id: str | None
    """The thread's `open_run_id`: a run that is not done, or None. `runs.follow(thread_id=…)` knows of all of them."""
    variants: dict[str, list[Variant]] = {}
    """With `variants=True`: where lines part, by the id of the record that shows it, what was written there, in order.

    "2 of 3": the place in this list of the variant that is `asked`, and the length of the list.
    """
    next_variants: list[Variant] = []
    """With `variants=True`, on the newest page: what other branches have after its last record, or after what is hidden
    behind it, in order.

    So the earlier answers can be reached while the answer that replaces them is being written, or if it was stopped
    before its first word, or failed.
    """

    def public_json(self) -> dict[str, Any]:
        """The same data as `to_json`, for the browser of a user: without internal messages, and what none may see."""
        records = [record for record in self.items if record.visibility == ALL]
        lists = {message_id: [item.public_json() for item in items] for message_id, items in self.variants.items()}
        following = [item.public_json() for item in self.next_variants]
        plain = msgspec.structs.replace(self, items=records, variants={}, next_variants=[])
        return {**Page.public_json(plain), "variants": lists, "next_variants": following}
