"""Bugs in pages of messages and in followers. See `bugs`."""

from __future__ import annotations

from tests.planted.bug import Bug

_FOLLOW = "tests/unit/test_sync_follow.py"
_WAKER = "tests/unit/test_waker.py"

MESSAGE_BUGS = (
    Bug(
        "a history shows the open calls of the run that is at work as interrupted",
        "rules/views.py",
        'interruption.except_run == (record.run_id or "")',
        'interruption.except_run == ""',
        ("case:messages/interrupted@memory",),
    ),
    Bug(
        "a history shows a retracted call as interrupted",
        "rules/views.py",
        "open_ids = [name for name in calls if (at, name) not in paired and (record.seq, name) not in withdrawn]",
        "open_ids = [name for name in calls if (at, name) not in paired]",
        ("case:messages/interrupted@memory",),
    ),
    Bug(
        "an older page does not look for retractions",
        "stores/newest.py",
        "            self._markers = await self._read(head, PathQuery(where=_MARKERS))\n",
        "            self._markers = []\n",
        ("case:messages/page-late-verdicts@memory", "case:messages/page-random@memory"),
    ),
    Bug(
        "an older page does not look for late results",
        "stores/newest.py",
        "while not self._at_end and has_open_calls(self._path(records), upto=self._after):",
        "while self._at_end and has_open_calls(self._path(records), upto=self._after):",
        ("case:messages/page-late-verdicts@memory", "machine:memory:3000"),
    ),
    Bug(
        "a page counts before its view filters",
        "stores/message_pages.py",
        "tail = Tail(views.external, request.limit + 1, folded=False, as_of_now=True)",
        "tail = Tail(views.external, request.limit, folded=False, as_of_now=True)",
        ("case:messages/page-random@memory", "case:messages/page-cursors@memory"),
    ),
    Bug(
        "a page of the history separates a call from its results",
        "rules/views.py",
        "            reach[at] = asked.get(_answered(record), 0)\n",
        "            reach[at] = at\n",
        ("case:messages/page-pairs@memory",),
    ),
    Bug(
        "a cursor follows the current branch",
        "stores/message_pages.py",
        "        end = await _end(context, request, branch)\n",
        "        end = await _end(context, request, named)\n",
        ("case:messages/page-writers@memory",),
    ),
    Bug(
        "a forged cursor leaves the window of its page",
        "stores/message_pages.py",
        "earliest = before if end.before is None else min(before, end.before)",
        "earliest = before",
        ("case:messages/page-cursor-forged@memory",),
    ),
    Bug(
        "a follower of a branch leaves out what the branch inherited",
        "rules/branch_path.py",
        "for branch, start, end in path if end is None or end > max(after, start)",
        "for branch, start, end in path if end is None",
        ("case:messages/follow-branch@memory",),
    ),
    Bug(
        "followers of the external view are shown internal messages",
        "stores/following.py",
        "if not self._external or record.visibility == ALL",
        "if self._external or record.visibility == ALL",
        ("case:messages/follow-external@memory",),
    ),
    Bug(
        "closing a follower does not wake its reader",
        "stores/waker.py",
        "        waker.call(waker.leave, self.seat, feed)\n        self.seat.ring()\n",
        "        waker.call(waker.leave, self.seat, feed)\n",
        (f"test:{_FOLLOW}::test_closing_wakes_a_reader_that_would_wait_for_ever[memory]",),
        hangs=True,
    ),
    Bug(
        "a dropped follower stays subscribed",
        "stores/following.py",
        "        with suppress(AttributeError):  # refused before it was complete\n            self.close()\n",
        "        pass\n",
        (f"test:{_FOLLOW}::test_a_dropped_follower_leaves_no_subscription[memory]",),
    ),
    Bug(
        "a waker relies on hints alone",
        "stores/waker_rounds.py",
        "        if started >= self._next_look():\n",
        "        if self._look_soon and started >= self._next_look():\n",
        (f"test:{_WAKER}::test_followers_complete_although_every_hint_is_lost[all]",),
        hangs=True,
    ),
    Bug(
        "followers of a deleted branch wait on",
        "stores/waker_rounds.py",
        '    return row is None or row["deleted_at"] is not None\n',
        "    return row is None\n",
        (f"test:{_WAKER}::test_a_deleted_branch_is_noticed_although_every_hint_is_lost",),
        hangs=True,
    ),
    Bug(
        "a follower behind the tail goes on where the tail begins",
        "stores/feeds.py",
        "        if position + 1 < first:\n            return None\n",
        "        position = max(position, first - 1)\n",
        (f"test:{_WAKER}::test_a_follower_behind_the_tail_reads_for_itself",),
        hangs=True,
    ),
    Bug(
        "a follower of a branch is sent what others write",
        "stores/following.py",
        "own = [shared for shared in entries if shared[0][4] == self._branch]",
        "own = list(entries)",
        (f"test:{_WAKER}::test_followers_of_branches_share_reads_and_get_their_own_records",),
    ),
    Bug(
        "a subscription forgets hints when it holds too many",
        "engines/shared/hints.py",
        "            self.hear_everything()\n        return silent\n",
        "            self._heard.clear()\n        return silent\n",
        ("test:tests/unit/test_engine_shared.py::test_a_watcher_that_does_not_wait_holds_a_bounded_number_of_hints",),
    ),
    Bug(
        "an empty list of arguments becomes null",
        "model/faithful.py",
        "if value or required or default is None:",
        "if value or required:",
        ("test:tests/unit/test_faithful.py::test_an_empty_list_of_arguments_is_kept",),
    ),
    Bug(
        "a retracted result is shown on a path that looks plain",
        "rules/plain_paths.py",
        " or message.visibility == INTERNAL:",
        ":",
        ("test:tests/unit/test_plain_paths.py::test_a_plain_path_is_its_own_view",),
    ),
    Bug(
        "unknown fields that nest deeply are read",
        "model/message.py",
        "if block.extra is not NO_EXTRA and not _are_flat(block.extra):",
        "if block.extra is not NO_EXTRA and not _are_flat(NO_EXTRA):",
        ("test:tests/unit/test_plain_paths.py::test_a_stored_message_whose_unknown_part_nests_too_deeply_is_refused",),
    ),
)
