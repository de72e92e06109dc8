"""The record of what an engine can do: one constructor, so that an engine spells out only what is special about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from perdure.kernel.engine import Capabilities, Durability


def capabilities(
    engine: str,
    durability: Durability,
    notes: Mapping[str, bool],
    *,
    round_trips: int,
    watch: Literal["push", "poll"],
    read_only: bool = False,
    embedded: bool = False,
    processes: Literal["one", "many"] = "many",
) -> Capabilities:
    """The record. `notes` says of each note whether it applies; an `embedded` engine runs inside its caller's process,
    so it serves one machine and needs no event loop."""
    return Capabilities(
        engine=engine,
        durability=durability,
        processes=processes,
        machines="one" if embedded else "many",
        round_trips_per_commit=round_trips,
        watch=watch,
        blocking=embedded,
        notes=tuple(note for note, applies in {**notes, "opened read-only": read_only}.items() if applies),
    )
