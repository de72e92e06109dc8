"""Wake-up hints inside one process: who watches which topics, what each has heard, and what `watch` returns.

A hint says "look again", and where; it may be lost or spurious, so every consumer also polls. Engines subclass
`HintHub` to carry hints between processes: `on_subscribe` starts whatever listens for those of others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

from perdure import limits
from perdure.kernel.engine import EVERYTHING, Hints, Topic
from perdure.kernel.signals import Signal

Watched = tuple[str | None, str]
"""A scope and a topic in it; no scope: the topic in every scope."""


class HintHub:
    """Who watches which topics. Any thread may call it."""

    def __init__(self) -> None:
        # Reentrant: a watcher that is collected unsubscribes, and the collector may run in here.
        self._lock = threading.RLock()
        self._watchers: dict[Watched, set[Subscription]] = {}
        self._released = False

    @property
    def is_watched(self) -> bool:
        """Whether anything is watched at all."""
        return bool(self._watchers)

    @property
    def topics(self) -> list[Watched]:
        """Every topic that is watched."""
        with self._lock:
            return list(self._watchers)

    def ring(self, topics: Iterable[Topic]) -> None:
        """Wake every watcher of one of these topics, and say which."""
        watchers = self._watchers
        if not watchers:
            return
        with self._lock:
            silent = [
                watcher
                for topic in topics
                for watched in (topic, (None, topic[1]))
                for watcher in list(watchers.get(watched, ()))
                if watcher.hear(topic)
            ]
        for watcher in silent:
            watcher.signal.ring()

    def ring_all(self, watched: Iterable[Watched] | None = None) -> None:
        """Wake every watcher, or those of one of these; each is told that anything may have changed."""
        with self._lock:
            names = self.topics if watched is None else list(watched)
            watchers = {watcher for name in names for watcher in list(self._watchers.get(name, ()))}
            silent = [watcher for watcher in watchers if watcher.hear_everything()]
        for watcher in silent:
            watcher.signal.ring()

    def subscribe(self, watcher: Subscription, topics: Iterable[Watched]) -> None:
        """Let a watcher hear of these topics; nothing comes from an engine that is closed."""
        if self._released:
            return
        added: list[Watched] = []
        with self._lock:
            for topic in topics:
                watchers = self._watchers.get(topic)
                if watchers is None:
                    watchers = self._watchers[topic] = set()
                    added.append(topic)
                watchers.add(watcher)
        self.on_subscribe(added)

    def unsubscribe(self, watcher: Subscription, topics: Iterable[Watched]) -> None:
        """Let a watcher hear of these topics no longer."""
        removed: list[Watched] = []
        with self._lock:
            for topic in topics:
                watchers = self._watchers.get(topic)
                if watchers is not None:
                    watchers.discard(watcher)
                    if not watchers:
                        self._watchers.pop(topic, None)
                        removed.append(topic)
        self.on_unsubscribe(removed)

    def release_all(self) -> None:
        """Wake every watcher a last time and forget them all: the engine is closed."""
        self._released = True
        self.ring_all()
        with self._lock:
            self._watchers.clear()

    def reset_in_child(self) -> None:
        """After a fork, in the child: the thread that held the lock may not exist there."""
        self._lock = threading.RLock()

    def heard(self, watcher: Subscription) -> Hints:
        """What a watcher has heard since it was last asked."""
        with self._lock:
            return watcher.forget()

    def on_subscribe(self, added: Sequence[Watched]) -> None:
        """Called after each subscription, with the topics that nobody watched before; engines start to listen here."""

    def on_unsubscribe(self, removed: Sequence[Watched]) -> None:
        """Called after each end of a subscription, with the topics that nobody watches any more."""


class Subscription:
    """What `watch` returns. `signal` is how its waiter waits."""

    def __init__(self, hub: HintHub, topics: Sequence[Watched], signal: Signal) -> None:
        self.signal = signal
        self._hub = hub
        self._topics = set(topics)
        self._heard: set[Topic] = set()
        self._everything = False
        self._closed = False
        hub.subscribe(self, topics)

    async def wait(self, timeout: float) -> Hints:
        """Wait up to `timeout` seconds for hints; `EVERYTHING` at the end of the subscription."""
        deadline = time.monotonic() + timeout
        while True:
            hints = EVERYTHING if self._closed else self._hub.heard(self)
            # A ring may be that of hints which the wait before has returned.
            if hints or not await self.signal.wait(max(deadline - time.monotonic(), 0)):
                return hints or self._hub.heard(self)

    def add(self, scope: str | None, topics: Sequence[str]) -> None:
        """Watch these topics as well."""
        watched = topics_of(scope, topics)
        self._topics.update(watched)
        self._hub.subscribe(self, watched)

    def remove(self, scope: str | None, topics: Sequence[str]) -> None:
        """Watch these topics no longer."""
        watched = topics_of(scope, topics)
        self._topics.difference_update(watched)
        self._hub.unsubscribe(self, watched)

    def close(self) -> None:
        """End the subscription and wake whoever waits for it."""
        self._closed = True
        self._hub.unsubscribe(self, list(self._topics))
        self.signal.ring()

    def hear(self, topic: Topic) -> bool:
        """Note a hint, under the hub's lock; True if it is the first since the last wait, which is to be rung."""
        if self._everything:
            return False
        silent = not self._heard
        self._heard.add(topic)
        if len(self._heard) > limits.HINTS_HELD:
            self.hear_everything()
        return silent

    def hear_everything(self) -> bool:
        """Note that anything may have changed, under the hub's lock; True if it is to be rung."""
        silent = not self._everything and not self._heard
        self._everything = True
        self._heard.clear()
        return silent

    def forget(self) -> Hints:
        """What was heard, under the hub's lock."""
        if self._everything:
            self._everything = False
            return EVERYTHING
        if not self._heard:
            return frozenset()
        heard, self._heard = self._heard, set()
        return frozenset(heard)


def topics_of(scope: str | None, topics: Sequence[str]) -> list[Watched]:
    """The topics of one scope, or of all, as a hub names them."""
    return [(scope, topic) for topic in topics]


def hints_of(scope: str, topics: Sequence[str]) -> list[Topic]:
    """The hints of a commit."""
    return [(scope, topic) for topic in topics]
