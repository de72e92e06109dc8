"""`Profiles`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.profiles`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure import limits
from perdure.model.page import Page
from perdure.model.profile import Profile, ProfileChange
from perdure.stores import profiles as async_profiles
from perdure.sync.face import Face
from perdure.sync.follower import Follower

# fmt: off


class Profiles(Face[async_profiles.Profiles], of=async_profiles.Profiles):
    """`store.profiles`, blocking."""

    def find(self, owner: str, key: str) -> Profile | None:
        """The document, or None."""
        return self._driver.read(self._inner.find(owner, key))

    def get(self, owner: str, key: str) -> Profile:
        """The document; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(owner, key))

    def list(
        self, owner: str, *, prefix: str | None = None, limit: int = limits.PAGE_DEFAULT, cursor: str | None = None
    ) -> Page[Profile]:
        """The documents of an owner by key, all or those whose key begins with `prefix`."""
        return self._driver.read(self._inner.list(owner, prefix=prefix, limit=limit, cursor=cursor))

    def iter(self, owner: str, *, prefix: str | None = None) -> Iterator[Profile]:
        """Every document of the list, page by page."""
        return self._driver.iterate(self._inner.iter(owner, prefix=prefix))

    def put(
        self, owner: str, key: str, value: Any, *, if_rev: int | None = None, ttl_ms: int | None = None
    ) -> Profile:
        """Write a document; the last writer wins, unless `if_rev` guards it."""
        return self._driver.run(self._inner.put(owner, key, value, if_rev=if_rev, ttl_ms=ttl_ms))

    def delete(self, owner: str, key: str, *, if_rev: int | None = None) -> None:
        """Remove a document; a missing one is ignored, unless `if_rev` is passed."""
        return self._driver.run(self._inner.delete(owner, key, if_rev=if_rev))

    def clear(self, owner: str) -> None:
        """Remove every document of an owner, some at a time; an owner that has none is fine."""
        return self._driver.run(self._inner.clear(owner))

    def follow(
        self, owner: str, *, prefix: str | None = None, timeout: float | None = None
    ) -> Follower[ProfileChange]:
        """The owner's documents, then every change to them as it happens, deletion and expiry included."""
        return Follower(self._inner.follow(owner, prefix=prefix, timeout=timeout), self._driver)
