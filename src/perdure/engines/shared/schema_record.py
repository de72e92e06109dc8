"""What a database records about its schema, and whether this build may use it.

The record is three facts in a table called `perdure_meta`: version, digest, declaration. A newer version and another
declaration of the same version are refused; an older one can be brought up to date by adding, or is refused too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.engines.shared.migrations import Additions, additions, parse_declaration
from perdure.errors import CorruptError, UnsupportedError, short_repr
from perdure.kernel.schema import Schema

META = "perdure_meta"
MIGRATED = "if a newer Perdure has migrated the store, restart this process with that version; nothing was written"
"""What to do about tables that are gone: a change of generation renames them under a process that is at work."""


class Recorded(msgspec.Struct, frozen=True):
    """What a database says about its schema."""

    version: int
    digest: str
    declaration: str


def facts(schema: Schema) -> dict[str, str]:
    """What to record of a schema."""
    return {"version": str(schema.version), "digest": schema.digest(), "declaration": schema.declaration()}


def recorded_from(values: Mapping[str, str], where: str) -> Recorded:
    """The record, from the rows of the table that keeps it."""
    try:
        return Recorded(int(values["version"]), values["digest"], values["declaration"])
    except (KeyError, ValueError) as error:
        raise CorruptError(f"{META} is incomplete: {error}", where=where) from None


def refuse_unless_usable(recorded: Recorded, schema: Schema, where: str, thing: str = "file") -> None:
    """Raise unless this build can use the database as it is or after adding to it."""
    if recorded.version > schema.version:
        raise UnsupportedError(
            f"{where} holds schema version {recorded.version}; this build of Perdure knows version {schema.version}",
            hint=f"upgrade Perdure to open it; the {thing} was not changed",
        )
    if recorded.version == schema.version and recorded.digest != schema.digest():
        raise UnsupportedError(
            f"{where} holds schema version {recorded.version} with other declarations than this build's"
            f" (digest {short_repr(recorded.digest)}, here {schema.digest()})",
            hint=f"open it with the build that made it; the {thing} was not changed",
        )
    if recorded.version < schema.version:
        missing(recorded, schema, where)


def missing(recorded: Recorded, schema: Schema, where: str) -> Additions:
    """What has to be added to get from what is recorded to this schema."""
    return additions(parse_declaration(recorded.declaration, where), schema)


def refuse_unless_current(recorded: Recorded | None, schema: Schema, where: str, hint: str) -> None:
    """Raise unless the database holds exactly this schema: for opening it without the right to change it."""
    if recorded is None:
        raise UnsupportedError(f"{where} holds no store yet", hint=hint)
    refuse_unless_usable(recorded, schema, where, "database")
    if recorded.version < schema.version:
        raise UnsupportedError(
            f"{where} holds schema version {recorded.version}, this build needs {schema.version}", hint=hint
        )
