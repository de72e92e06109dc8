"""The records of profiles: what is remembered about a user, an agent or the whole application, beside the threads."""

from __future__ import annotations

from typing import Any

from perdure.model.record import Record


class Profile(Record, frozen=True, kw_only=True):
    """A document of an owner as it was when read. Times are milliseconds since 1970, UTC, by the engine's clock."""

    owner: str
    """Who or what it is about: `user:alice`, `agent:planner`, `app`, a session id, or any other id."""
    key: str
    """Unique for its owner."""
    value: Any
    """The JSON value."""
    schema: int
    """The schema version it was written with; `Doc(value, schema)` sets it."""
    rev: int
    """Guards the next write: `if_rev`."""
    created_at: int
    """When it was first written; later writes keep it."""
    updated_at: int
    """When it was last written."""
    expires_at: int | None
    """From when on it is no longer there; None: it stays until it is deleted."""


class ProfileChange(Record, frozen=True, kw_only=True):
    """What `profiles.follow` yields: a document that was written, or the key of one that is gone."""

    owner: str
    """Whose document it is."""
    key: str
    """The document's key."""
    profile: Profile | None
    """The document as it is now; None if it was deleted or has expired."""
