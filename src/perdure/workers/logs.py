"""What a worker logs, and where to if its program has not said: one line per event of a run, none per step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.errors import shortened
from perdure.model.run import WAITING, Run
from perdure.model.visible_text import one_line

LOGGER = logging.getLogger("perdure.workers")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """While the block runs, what Perdure logs from INFO on is on stderr, unless the program has a handler for it."""
    root = logging.getLogger("perdure")
    if _has_handler(root):
        yield
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter(_FORMAT))
    # The program may have a handler for a part of Perdure, or add one later: so each record is looked at.
    handler.addFilter(lambda record: not _has_handler(logging.getLogger(record.name), but=handler))
    level = root.level
    root.addHandler(handler)
    if level == logging.NOTSET:  # else the program has chosen one
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


def _has_handler(logger: logging.Logger, but: logging.Handler | None = None) -> bool:
    """Does a handler other than this one get what the logger logs? It may be a handler of a logger above."""
    above: logging.Logger | None = logger
    while above is not None:
        if any(each is not but and not isinstance(each, logging.NullHandler) for each in above.handlers):
            return True
        above = above.parent if above.propagate else None
    return False


def described(error: BaseException) -> str:
    """The class and the text of an error, for a failed run. It may echo anything, even text that is not Unicode."""
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except Exception:  # noqa: BLE001 - an error's own __str__ may raise anything
        text = type(error).__name__
    return shortened(text, 2_000).encode("utf-8", "replace").decode()


def brief(error: BaseException) -> str:
    """The same for a log: one short line."""
    return one_line(described(error))


def log_pick_up(before: Run, doubts: int | None, lost: int) -> None:
    """A run was picked up, from this state.

    `doubts` says how many of its calls another worker may have started, `lost` how many workers in a row were lost.
    """
    if doubts is None:
        verb = "is resumed" if before.status == WAITING else "is picked up"
        LOGGER.info("run %r of agent %r %s", before.id, before.agent_id, verb)
        return
    cause = "resumed after a pause from outside" if before.status == WAITING else "taken over from an earlier worker"
    again = f"; {lost} workers in a row were lost" if lost > 1 else ""
    LOGGER.warning("run %r is %s; %s uncertain%s", before.id, cause, _count(doubts, "call"), again)


def log_given_up(run: Run) -> None:
    """A run was ended because too many workers were lost with it."""
    detail = "" if run.outcome is None else run.outcome.termination.detail
    LOGGER.error("run %r is not picked up again, and ends with an error: %s", run.id, detail)


def log_end(run: Run) -> None:
    """A handler has ended well, and left its run like this."""
    if run.outcome is not None:
        LOGGER.info("run %r is done: %s", run.id, one_line(run.outcome.termination.type))
    elif run.status == WAITING:
        LOGGER.info("run %r waits: %s open", run.id, _count(len(run.open_tickets), "ticket"))


def _count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number or 'no'} {noun}s are"


def was_driven(run: Run) -> bool:
    """Has the run been moved since it was created? If not, it was only started (`runs.start`), and has no calls."""
    return run.updated_at > run.created_at or run.steps > 0 or run.output is not None
