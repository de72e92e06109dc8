"""Run the whole workload on a store: its outcomes, its contents, and what the engine says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.recorded import refusals, workload
from tests.recorded.contents import all_contents
from tests.recorded.pages import busy, lookups, pages
from tests.recorded.plain import plain
from tests.recorded.recorder import Recorder, start_clock
from tests.recorded.support import audit, opened
from tests.recorded.transfers import transfers

Line = dict[str, Any]
CHAPTERS = (*workload.CHAPTERS, transfers, *refusals.CHAPTERS, pages, lookups, workload.profiles, busy)


class Played:
    """What a run of the workload leaves: outcomes and contents as normalised lines, the engine's own facts."""

    def __init__(self, outcomes: list[Line], contents: list[Line], facts: Line, findings: list[str]) -> None:
        self.outcomes = outcomes
        self.contents = contents
        self.facts = facts
        self.findings = findings


async def play(url: str, folder: Path) -> Played:
    """Run the workload on the empty store at `url`; files that it makes go to `folder`."""
    clock = start_clock()
    async with opened(url, clock) as store:
        recorder = Recorder(store, clock, folder)
        for chapter in CHAPTERS:
            recorder.chapter = f"{chapter.__module__.rpartition('.')[2]}.{chapter.__name__}"
            await chapter(recorder)
        contents = await all_contents(store)
        health = plain(await store.health())
        # Durability, and the notes on it, are the settings of the server at hand.
        own = plain(store.capabilities())
        del own["durability"], own["notes"]
        facts = {"capabilities": own, "health": sorted(health), "settings": sorted(health["settings"])}
        return Played(recorder.lines, contents, facts, await audit(store))
