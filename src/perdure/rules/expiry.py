"""When a document with a time to live is over, and which life is possible at all."""

from __future__ import annotations

from perdure import limits
from perdure.rules.soundness.stored import StoredRow


def has_expired(row: StoredRow, now: int) -> bool:
    """Is the document no longer there at the engine's time `now`?"""
    expires_at: int | None = row["expires_at"]
    return expires_at is not None and expires_at <= now


def expiry_problem(row: StoredRow) -> str | None:
    """Does a document expire before it was written, or later than any put allows?"""
    expires_at = row["expires_at"]
    if expires_at is None or 0 < expires_at - row["updated_at"] <= limits.PROFILE_TTL_MS:
        return None
    return f"it expires at {expires_at} although it was written at {row['updated_at']}"
