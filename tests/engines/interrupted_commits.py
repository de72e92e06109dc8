"""Blocking commits that a signal handler interrupts: `python -m tests.engines.interrupted_commits FILE SEED`.

After every interruption a plain commit must go through, and no acknowledged commit may be lost. The alarms come at
random moments; a commit that never returns is what the caller's deadline is for.
"""

from __future__ import annotations

import random
import signal
import sys
import warnings
from types import FrameType

import perdure.sync
from perdure import Message
from perdure.errors import OutcomeUnknown

INTERRUPTIONS = 400


class Interruption(BaseException):
    """As Ctrl-C raises it."""


armed = False


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Raise, but only inside the call under test."""
    if armed:
        raise Interruption


def commit(store: perdure.sync.Store, key: str, wait: float) -> bool:
    """Commit under an alarm; whether the commit was acknowledged."""
    global armed  # noqa: PLW0603 - a signal handler has no other way to know
    signal.setitimer(signal.ITIMER_REAL, wait)
    try:
        armed = True
        store.commit("t", messages=[Message.user("x", id=key)], key=key)
        armed = False
    except (Interruption, OutcomeUnknown):
        return False
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def main(path: str, seed: int) -> int:
    """Interrupt so many commits, then look for those that were acknowledged."""
    warnings.simplefilter("ignore", RuntimeWarning)  # of a coroutine that was interrupted before its first step
    chance = random.Random(seed)
    signal.signal(signal.SIGALRM, interrupt)
    acknowledged: list[str] = []
    interrupted = number = 0
    with perdure.sync.open(path, durability="process") as store:
        while interrupted < INTERRUPTIONS:
            number += 1
            if commit(store, f"k{number}", chance.uniform(0.00002, 0.0012)):
                acknowledged.append(f"k{number}")
                continue
            interrupted += 1
            store.commit("other", messages=[Message.user("y")])
        stored = {record.message_id for record in store.messages.iter("t")}
    lost = [key for key in acknowledged if key not in stored]
    print(f"{number} commits, {interrupted} interrupted, {len(acknowledged)} acknowledged, lost: {lost}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
