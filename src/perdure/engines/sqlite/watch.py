"""Wake-up hints: by event inside the process, by polling across processes.

A commit made here rings the watchers of its own topics. A commit made by another process shows only as a change of
`PRAGMA data_version`, which does not say what changed, so it rings everybody: hints may be spurious. Polling runs only
while somebody watches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from perdure import limits
from perdure.engines.shared.signals import Signal

Topic = tuple[str, str]


class Hub:
    """Who watches what. `version` reads the file's change counter as seen by the writer, None when it is busy."""

    def __init__(self, version: Callable[[], int | None]) -> None:
        self._version = version
        self._lock = threading.Lock()
        self._signals: dict[Topic, set[Signal]] = {}
        self._poller: threading.Thread | None = None
        self._seen: int | None = None

    def note_version(self) -> None:
        """Take what is in the file now as known: only later changes ring."""
        self._seen = self._version()

    def publish(self, topics: Iterable[Topic]) -> None:
        """Ring everybody who watches one of these topics."""
        if not self._signals:
            return
        with self._lock:
            rung = {signal for topic in topics for signal in self._signals.get(topic, ())}
        for signal in rung:
            signal.ring()

    def subscribe(self, topics: Sequence[Topic], signal: Signal) -> None:
        """Begin to ring `signal`."""
        with self._lock:
            for topic in topics:
                self._signals.setdefault(topic, set()).add(signal)
            if self._poller is None:
                self._poller = threading.Thread(target=self._poll, name="perdure-watch", daemon=True)
                self._poller.start()

    def unsubscribe(self, topics: Sequence[Topic], signal: Signal) -> None:
        """Stop ringing `signal`."""
        with self._lock:
            for topic in topics:
                watchers = self._signals.get(topic, set())
                watchers.discard(signal)
                if not watchers:
                    self._signals.pop(topic, None)

    def close(self) -> None:
        """Ring everybody a last time and forget them."""
        self._ring_all()
        with self._lock:
            self._signals.clear()
            poller = self._poller
        if poller is not None:
            poller.join()

    def _ring_all(self) -> None:
        with self._lock:
            rung = {signal for watchers in self._signals.values() for signal in watchers}
        for signal in rung:
            signal.ring()

    def _poll(self) -> None:
        while True:
            with self._lock:
                if not self._signals:
                    self._poller = None
                    return
            version = self._version()
            if version is not None and version != self._seen:
                self._seen = version
                self._ring_all()
            time.sleep(limits.WATCH_POLL_MS / 1000)


class Subscription:
    """What `watch` returns."""

    def __init__(self, hub: Hub, scope: str, topics: Sequence[str], signal: Signal) -> None:
        self._hub = hub
        self._topics = [(scope, topic) for topic in topics]
        self._signal = signal
        hub.subscribe(self._topics, signal)

    async def wait(self, timeout: float) -> bool:
        """Wait for a hint."""
        return await self._signal.wait(timeout)

    def close(self) -> None:
        """End the subscription."""
        self._hub.unsubscribe(self._topics, self._signal)
