"""Wake-up hints: by event inside the process, by polling across processes.

A commit made here rings the watchers of its own topics. A commit made by another process shows only as a change of
`PRAGMA data_version`, which does not say what changed, so it rings every watcher, with `EVERYTHING`. Polling runs only
while something is watched.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from perdure import limits
from perdure.engines.shared.hints import HintHub, Watched


class PollingHub(HintHub):
    """The hub of one file. `version` reads the file's change counter, None while the writer is busy."""

    def __init__(self, version: Callable[[], int | None]) -> None:
        super().__init__()
        self._version = version
        self._last_version: int | None = None
        self._poller: threading.Thread | None = None

    def note_version(self) -> None:
        """Take the file's content as known: only later changes ring."""
        self._last_version = self._version()

    def on_subscribe(self, added: Sequence[Watched]) -> None:
        """Start polling."""
        with self._lock:
            if self._watchers and self._poller is None:
                self._poller = threading.Thread(target=self._poll, name="perdure-watch", daemon=True)
                self._poller.start()

    def close(self) -> None:
        """Wake every watcher a last time, forget them all and end the thread."""
        self.release_all()
        poller = self._poller
        if poller is not None:
            poller.join()

    def _poll(self) -> None:
        while True:
            with self._lock:
                if not self._watchers:
                    self._poller = None
                    return
            version = self._version()
            if version is not None and version != self._last_version:
                self._last_version = version
                self.ring_all()
            time.sleep(limits.WATCH_POLL_MS / 1000)
