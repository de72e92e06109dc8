"""Cases: clock skew. A client's clock may be days off, and no time of the engine is ever compared with it.

These cases leave the kit's clock alone and use the engine's own, while the wall clock of this process, which is the
only clock of a client, is moved by eight days in both directions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from perdure.clock import system_clock
from perdure.errors import NotFoundError
from perdure.model.message import Message
from perdure.stores.cleanup import sweep
from perdure.stores.store import Store
from perdure.stores.transfer.arrival import Arrival
from perdure.stores.transfer.export import export_lines
from perdure.stores.transfer.source import read_items
from perdure.testkit.helpers import commit_texts
from perdure.testkit.kit import Kit, case, equal, raises

_DAY = 24 * 3600 * 1000
SKEWS = (8 * _DAY, -8 * _DAY, 90_000)


@contextmanager
def wall_clock_off_by(ms: int) -> Iterator[None]:
    """The clock of this process is wrong by this many milliseconds."""
    right, right_ns = time.time, time.time_ns
    with (
        patch.object(time, "time", lambda: right() + ms / 1000),
        patch.object(time, "time_ns", lambda: right_ns() + ms * 1_000_000),
    ):
        yield


async def _client(kit: Kit) -> Store:
    """A client with the engine's own clock, closed by the kit."""
    return await kit.second(clock=system_clock)


@case("lifecycle", "foreign-clock-keys", covers=("store.commit",))
async def case_foreign_clock_keys(kit: Kit) -> None:
    """A client whose clock is eight days off neither forgets keys nor repeats an effect."""
    healthy = await _client(kit)
    for number, skew in enumerate(SKEWS):
        thread = f"t{number}"
        first = await commit_texts(healthy, thread, "once", key="k")
        with wall_clock_off_by(skew):
            stranger = await _client(kit)
            await sweep(stranger._context)  # noqa: SLF001 - what housekeeping does
            equal(
                (await commit_texts(stranger, thread, "once", key="k")).replayed,
                True,
                f"the stranger's retry at {skew}",
            )
            await commit_texts(stranger, thread, "twice", key="k2")
            await sweep(stranger._context)  # noqa: SLF001
        again = await commit_texts(healthy, thread, "once", key="k")
        equal((again.replayed, again.seqs), (True, first.seqs), f"the healthy client's retry after {skew}")
        equal(
            (await commit_texts(healthy, thread, "twice", key="k2")).replayed, True, f"of the stranger's key at {skew}"
        )
        equal((await healthy.threads.get(thread)).version, 2, "one effect each")


@case("lifecycle", "foreign-clock-tombstones", covers=("threads.delete", "store.commit"))
async def case_foreign_clock_tombstones(kit: Kit) -> None:
    """A deleted thread's id stays refused for its week, whatever a client's clock says."""
    healthy = await _client(kit)
    for number, skew in enumerate(SKEWS):
        thread = f"t{number}"
        await commit_texts(healthy, thread, "gone")
        with wall_clock_off_by(skew):
            stranger = await _client(kit)
            await stranger.threads.delete(thread)
            await sweep(stranger._context)  # noqa: SLF001 - what housekeeping does
            await raises(NotFoundError, commit_texts(stranger, thread, "late"), f"the stranger's late commit at {skew}")
        await raises(NotFoundError, commit_texts(healthy, thread, "late"), f"a late commit after {skew}")


@case("lifecycle", "foreign-clock-import", covers=("store.commit",))
async def case_foreign_clock_import(kit: Kit) -> None:
    """An import in progress survives the housekeeping of clients whose clocks are off."""
    healthy = await _client(kit)
    await healthy.commit("big", messages=[Message.user(str(i)) for i in range(600)])
    lines = [line async for line in export_lines(healthy, ["big"])]
    items = list(read_items(healthy.engine.schema, lines, "checking", None))
    await healthy.threads.delete("big")
    arrival = Arrival(healthy._context, "big", detach=False)  # noqa: SLF001 - a store's own machinery
    for number, item in enumerate(items):
        await arrival.take(item.line)
        if number in (550, 590):
            for skew in SKEWS:
                with wall_clock_off_by(skew):
                    await sweep((await _client(kit))._context)  # noqa: SLF001
    history = await healthy.messages.history("big")
    equal([record.text for record in history], [str(i) for i in range(600)], "what arrived")
