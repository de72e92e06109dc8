"""What commits log, as `perdure.commit`: refusals and slow ones. Ids and scopes are logged, content never is."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from perdure import limits
from perdure.errors import ConflictError
from perdure.stores.commit.request import Prepared
from perdure.stores.context import Context

_logger = logging.getLogger("perdure.commit")


def note_refused(context: Context, commit: Prepared, error: ConflictError) -> None:
    """The commit conflicts with what is stored."""
    with suppress(Exception):  # a handler that raises must not replace the error
        _logger.info(
            "commit to thread %r in scope %r refused: %s", commit.thread_id, context.scope, type(error).__name__
        )


def note_duration(context: Context, commit: Prepared, begun: float) -> None:
    """A warning if the commit took long; two looks at a clock otherwise."""
    seconds = time.monotonic() - begun
    if seconds >= limits.SLOW_COMMIT_MS / 1000:
        with suppress(Exception):  # a handler that raises must not make a commit look failed
            _logger.warning("slow commit: %.3f s for thread %r in scope %r", seconds, commit.thread_id, context.scope)
