"""A lease: while a worker holds it, no other worker picks up the run.

It is a profile under the owner `LEASES`, with the run's id as its key, and expires by the engine's clock. A lease saves
work; it guards nothing. What a worker that has lost it still commits is rejected by the run's rev, because its
successor moved the run.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from uuid import uuid4

from perdure.errors import OutcomeUnknown, PerdureError, VersionConflict
from perdure.model.profile import Profile
from perdure.stores.store import Store
from perdure.workers.trouble import to_its_end, until_stored

LEASES = "perdure.leases"
"""The owner of the profiles that are leases."""
_RELEASE_SECONDS = 5.0


class Lease:
    """A lease that this worker holds, or held."""

    def __init__(self, store: Store, profile: Profile, ms: int, since: float) -> None:
        self._store = store
        self._profile = profile
        self._ms = ms
        self.deadline: float = since + ms / 1000
        """Until when, by the loop's clock, it is surely held."""

    async def keep(self) -> None:
        """Renew it in time, again and again; returns when it is lost."""
        while True:
            await asyncio.sleep(self._ms / 3000)
            try:
                async with asyncio.timeout_at(self.deadline):
                    await until_stored(self._renew)
            except (PerdureError, TimeoutError):
                return

    async def _renew(self) -> None:
        since = asyncio.get_running_loop().time()
        try:
            self._profile = await self._put()
        except VersionConflict:
            # An earlier renewal may have landed although its answer was lost.
            self._profile = await self._current()
            self._profile = await self._put()
        self.deadline = since + self._ms / 1000

    async def _put(self) -> Profile:
        held = self._profile
        return await self._store.profiles.put(LEASES, held.key, held.value, if_rev=held.rev, ttl_ms=self._ms)

    async def _current(self) -> Profile:
        profile = await self._store.profiles.find(LEASES, self._profile.key)
        if profile is None or profile.value != self._profile.value:
            raise VersionConflict(f"the lease of run {self._profile.key!r} was lost")
        return profile

    async def release(self) -> None:
        """Give it back, if that is possible now; otherwise it expires. Whoever cancels this waits for its end."""
        await to_its_end(self._release())

    async def _release(self) -> None:
        with suppress(PerdureError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._store.profiles.delete(LEASES, self._profile.key, if_rev=self._profile.rev)


async def claim(store: Store, run_id: str, worker: str, ms: int) -> Lease | None:
    """The lease of a run, or None if another worker has it. If this is cancelled, it leaves no lease behind."""
    claiming = asyncio.create_task(_claim(store, run_id, worker, ms))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        with suppress(PerdureError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                lease = await claiming
            if lease is not None:
                await lease.release()
        raise


async def _claim(store: Store, run_id: str, worker: str, ms: int) -> Lease | None:
    value: dict[str, Any] = {"worker": worker, "token": uuid4().hex}
    since = asyncio.get_running_loop().time()
    try:
        profile = await store.profiles.put(LEASES, run_id, value, if_rev=0, ttl_ms=ms)
    except VersionConflict:
        return None
    except OutcomeUnknown:
        current = await store.profiles.find(LEASES, run_id)
        if current is None or current.value != value:
            raise
        profile = current
    return Lease(store, profile, ms, since)
