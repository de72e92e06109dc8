"""Wake-up hints inside one process: who watches which topics, and what `watch` returns.

A hint says "look again"; it may be lost or spurious, so every consumer also polls. Engines subclass `HintHub` to carry
hints between processes: `on_subscribe` starts whatever listens for those of others.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from perdure.engines.shared.signals import Signal

TopicT = TypeVar("TopicT", bound=Hashable)
Topic = tuple[str, str]
"""A scope and a topic in it, as most engines name what is watched."""


class HintHub(Generic[TopicT]):
    """Who watches which topics. Any thread may call it."""

    def __init__(self) -> None:
        # Reentrant: a watcher that is collected unsubscribes, and the collector may run in here.
        self._lock = threading.RLock()
        self._signals: dict[TopicT, set[Signal]] = {}

    @property
    def is_watched(self) -> bool:
        """Whether anything is watched at all."""
        return bool(self._signals)

    @property
    def topics(self) -> list[TopicT]:
        """Every topic that is watched."""
        with self._lock:
            return list(self._signals)

    def ring(self, topics: Iterable[TopicT]) -> None:
        """Wake every watcher of one of these topics."""
        if not self._signals:
            return
        with self._lock:
            signals = {signal for topic in topics for signal in list(self._signals.get(topic, ()))}
        for signal in signals:
            signal.ring()

    def ring_all(self) -> None:
        """Wake every watcher."""
        self.ring(self.topics)

    def subscribe(self, topics: Sequence[TopicT], signal: Signal) -> None:
        """Ring `signal` at every hint on these topics."""
        with self._lock:
            for topic in topics:
                watchers = self._signals.get(topic, set())
                watchers.add(signal)
                self._signals[topic] = watchers
        self.on_subscribe()

    def unsubscribe(self, topics: Sequence[TopicT], signal: Signal) -> None:
        """Stop ringing `signal`."""
        with self._lock:
            for topic in topics:
                watchers = self._signals.get(topic, set())
                watchers.discard(signal)
                if not watchers:
                    self._signals.pop(topic, None)
        self.on_unsubscribe()

    def release_all(self) -> None:
        """Wake every watcher a last time and forget them all."""
        self.ring_all()
        with self._lock:
            self._signals.clear()

    def reset_in_child(self) -> None:
        """After a fork, in the child: the thread that held the lock may not exist there."""
        self._lock = threading.RLock()

    def on_subscribe(self) -> None:
        """Called after each subscription; engines start to listen here."""

    def on_unsubscribe(self) -> None:
        """Called after each end of a subscription."""


class Subscription(Generic[TopicT]):
    """What `watch` returns."""

    def __init__(self, hub: HintHub[TopicT], topics: Sequence[TopicT], signal: Signal) -> None:
        self._hub = hub
        self._topics = topics
        self._signal = signal
        self._waiting = False
        self._closed = False
        hub.subscribe(topics, signal)

    async def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; True if a hint came, or the end of the subscription."""
        self._waiting = True
        try:
            return self._closed or await self._signal.wait(timeout)
        finally:
            self._waiting = False

    def close(self) -> None:
        """End the subscription and wake whoever waits for it."""
        self._closed = True
        self._hub.unsubscribe(self._topics, self._signal)
        # Only for a waiter: one that is collected may be in the middle of a ring, whose lock is not reentrant.
        if self._waiting:
            self._signal.ring()


def topics_of(scope: str, topics: Sequence[str]) -> list[Topic]:
    """The topics of one scope as a hub names them."""
    return [(scope, topic) for topic in topics]
