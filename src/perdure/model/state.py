"""State documents: one JSON value per name, owned by a thread or by one of its runs."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec


class _Remove(Enum):
    REMOVE = "remove"


REMOVE: Final = _Remove.REMOVE
"""Give this instead of a value to delete a document in a commit."""


class Doc(msgspec.Struct, frozen=True):
    """A value with the schema version its owner gives it; a plain value means schema 1."""

    value: Any
    schema: int = 1


class StateDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A stored document. `rev` guards the next write; `run_id` is None when the thread owns it."""

    thread_id: str
    run_id: str | None
    name: str
    value: Any
    schema: int
    rev: int
    at: int
