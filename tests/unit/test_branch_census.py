"""Counting a branch's messages from the rows of all branches: right, or None, for any history."""

from __future__ import annotations

import random

from perdure.rules.branch_census import Census, Extent

CHANCES = 400


def _history(chance: random.Random) -> tuple[list[int], list[int]]:
    """Branches in the order in which they wrote, and the fork seq of each."""
    forks, log = [0], []
    for _ in range(chance.randrange(1, 40)):
        if log and chance.random() < 0.15:
            forks.append(chance.randrange(0, len(log) + 1))
        recent = len(forks) - 1 if chance.random() < 0.6 else chance.randrange(len(forks))
        log.append(recent)
    return log, forks


def test_what_the_rows_tell_is_what_the_log_says(seed: int) -> None:
    chance = random.Random(seed)
    known = 0
    for _ in range(CHANCES):
        log, forks = _history(chance)
        extents = []
        for number, fork_seq in enumerate(forks):
            own = [seq for seq, branch in enumerate(log, 1) if branch == number]
            extents.append(Extent(number, fork_seq, own[-1] if own else fork_seq, len(own)))
        census = Census(extents)
        for number in range(len(forks)):
            for upto in range(len(log) + 1):
                count = census.count(number, upto)
                if count is not None:
                    known += 1
                    assert count == log[:upto].count(number)
    assert known > CHANCES


def test_a_thread_that_was_edited_again_and_again_needs_no_count() -> None:
    """Each edit forks from the branch before it, near its end; nobody returns to an older branch to write."""
    extents = [Extent(0, 0, 10, 10)]
    for number in range(1, 200):
        seq = 10 * number
        extents.append(Extent(number, seq - 2, seq + 10, 10))
    census = Census(extents)
    for number in range(1, 200):
        assert census.count(number - 1, extents[number].fork_seq) is not None


def test_branches_written_alternately_must_be_counted() -> None:
    census = Census([Extent(0, 0, 9, 5), Extent(1, 1, 10, 5)])
    assert census.count(0, 5) is None
    assert census.count(0, 9) == 5
    assert census.count(1, 1) == 0
