"""What commits log, as `perdure.commit`: refusals and slow ones. Ids and scopes are logged, content never is."""

from __future__ import annotations

import logging
from contextlib import suppress

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


def note_slow(context: Context, commit: Prepared, seconds: float) -> None:
    """The commit took long."""
    with suppress(Exception):  # a handler that raises must not make a commit look failed
        _logger.warning("slow commit: %.3f s for thread %r in scope %r", seconds, commit.thread_id, context.scope)
