"""What `profiles.follow` reads: the documents of an owner, compared with what was seen of them before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from perdure.model.profile import Profile, ProfileChange


class ProfileSource:
    """The documents of an owner that were written or have gone since the last look. It never ends by itself."""

    ended = behind = at_end = False

    def __init__(self, owner: str, documents: Callable[[], AsyncIterator[Profile]]) -> None:
        self._owner = owner
        self._documents = documents
        self._revs: dict[str, int] = {}

    async def read(self, *, fresh: bool = True) -> list[ProfileChange]:
        """Every change since the last look; a look that is cancelled loses nothing."""
        revs: dict[str, int] = {}
        changes: list[ProfileChange] = []
        async for profile in self._documents():
            revs[profile.key] = profile.rev
            if self._revs.get(profile.key) != profile.rev:
                changes.append(ProfileChange(owner=self._owner, key=profile.key, profile=profile))
        gone = sorted(self._revs.keys() - revs.keys())
        changes += [ProfileChange(owner=self._owner, key=key, profile=None) for key in gone]
        self._revs = revs
        return changes
