"""The records of state documents: a JSON value with a schema version, and the marker that removes one."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from perdure.model.record import Record


class _Remove(Enum):
    REMOVE = "remove"


REMOVE: Final = _Remove.REMOVE
"""Give this instead of a value to delete a document in a commit."""


class Doc(Record, frozen=True):
    """A value with the schema version that its owner gives it."""

    value: Any
    """Any JSON value."""
    schema: int = 1
    """From 1; a value that is passed without `Doc` has schema 1."""


class StateDoc(Record, frozen=True, kw_only=True):
    """A stored document as it was when read."""

    thread_id: str
    """The thread it belongs to."""
    run_id: str | None
    """The run that owns it; None if the thread does."""
    name: str
    """Unique for its owner."""
    value: Any
    """The JSON value."""
    schema: int
    """The schema version it was written with."""
    rev: int
    """Guards the next write: `if_rev`, or `expect_state` of a commit."""
    at: int
    """When it was written, in milliseconds."""
