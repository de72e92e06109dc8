"""The draft of a job: what the model has written so far, for people to see before the answer is committed.

It is a profile with a time to live (`stores/drafts.py`). One task per job writes and removes it, one call after the
other, so that no write can bring back what was removed. A draft is a courtesy: the run never waits for it, and never
fails because of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from perdure.errors import InvalidError, PerdureError
from perdure.model.halves import Halves
from perdure.stores.drafts import draft_key, draft_owner, draft_value
from perdure.stores.store import Store
from perdure.workers.logs import LOGGER, brief
from perdure.workers.trouble import to_its_end

GAP_SECONDS = 0.2
"""The least time between two writes."""
TTL_MS = 60_000
RENEW_SECONDS = 20.0
"""How often a draft is written again while the model pauses, so that it does not expire."""
CLOSE_SECONDS = 0.5
"""How long the end of a handler waits for the removal; after that the draft, which nobody is shown, expires."""


class Drafts:
    """The drafts of one run, one at a time: `add` words, `end` the draft, `close` when the handler has ended."""

    def __init__(self, store: Store, thread_id: str, run_id: str) -> None:
        self._profiles = store.profiles
        self._owner, self._run_id = draft_owner(thread_id), run_id
        self._key = ""
        """The key of the draft that words are added to."""
        self._words: list[str] = []
        self._halves = Halves()
        self._text = ""
        """What was stored last of this draft."""
        self._full = False
        self._stored: str | None = None
        """The key of the profile that may be stored."""
        self._over = asyncio.Event()
        """A draft has ended, and its profile must go."""
        self._urgent = asyncio.Event()
        """The next write does not wait for its turn: a draft has ended, or its key has changed."""
        self._news = asyncio.Event()
        """There is something to do: words, an end, or the close."""
        self._closed = False
        self._logged = False
        self._task: asyncio.Task[None] | None = None

    def add(self, words: str, rev: int) -> None:
        """Append words to the draft, or begin one with them, for an answer to the run as it has this rev."""
        words = self._halves.joined(words)
        if self._closed or self._full or not words:
            return
        if not self._words:
            self._key = draft_key(rev)
        self._words.append(words)
        self._news.set()
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=f"perdure draft {self._run_id}")

    def end(self) -> None:
        """The draft is over: it is removed in the background, and the next words begin a new one."""
        self._words, self._text, self._full, self._halves = [], "", False, Halves()
        if self._stored is not None:
            self._over.set()
            self._urgent.set()
            self._news.set()

    def move(self, rev: int) -> None:
        """The run got this rev in the middle of the answer: the draft goes on under it once it is stored again."""
        if self._words:
            self._key = draft_key(rev)
            self._urgent.set()
            self._news.set()

    async def close(self) -> None:
        """Remove the draft, if that is possible now, and end the task. Whoever cancels this waits for its end."""
        self._closed = True
        self.end()
        self._news.set()
        if self._task is None:
            return
        await to_its_end(_finish(self._task))

    async def _work(self) -> None:
        while True:
            self._news.clear()
            self._urgent.clear()
            if self._over.is_set():
                self._over.clear()
                await self._remove()
            elif self._closed:
                return
            elif self._words:
                await self._show()
                await _happens(self._urgent, GAP_SECONDS)
                await _happens(self._news, RENEW_SECONDS)
            else:
                await self._news.wait()

    async def _show(self) -> None:
        """Store the text so far. If it is too long, what is shown stays, without more words."""
        before, self._stored, text = self._stored, self._key, "".join(self._words)
        try:
            await self._profiles.put(self._owner, self._stored, draft_value(self._run_id, text), ttl_ms=TTL_MS)
        except InvalidError as error:
            LOGGER.debug("the draft of run %r is not updated any more: %s", self._run_id, brief(error))
            if not self._over.is_set():
                self._words, self._full = [self._text] if self._text else [], True
                if before != self._stored:  # the key is new: what was shown under the old one is shown again
                    self._urgent.set()
                    self._news.set()
        except PerdureError as error:
            self._log(error)
        else:
            self._text = "" if self._over.is_set() else text
        if before != self._stored:
            await self._delete(before)

    async def _remove(self) -> None:
        key, self._stored = self._stored, None
        await self._delete(key)

    async def _delete(self, key: str | None) -> None:
        try:
            if key is not None:
                await self._profiles.delete(self._owner, key)
        except PerdureError as error:
            self._log(error)

    def _log(self, error: PerdureError) -> None:
        if not self._logged:
            self._logged = True
            LOGGER.warning("the draft of run %r cannot be shown: %s", self._run_id, brief(error))


async def _happens(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _finish(task: asyncio.Task[None]) -> None:
    """Let a task end, for a while."""
    try:
        await asyncio.wait({task}, timeout=CLOSE_SECONDS)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
