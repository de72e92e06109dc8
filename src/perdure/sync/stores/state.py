"""`State`, as blocking callers see it.

Written by tools/make_sync.py from `perdure.stores.state`: edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.model.state import StateDoc
from perdure.stores import state as async_state
from perdure.stores.state import StateDocs
from perdure.sync.face import Face

# fmt: off


class State(Face[async_state.State], of=async_state.State):
    """`store.state`, blocking."""

    def find(self, thread_id: str, name: str, *, run_id: str | None = None) -> StateDoc | None:
        """The document, or None; raises `NotFoundError` if the thread does not exist."""
        return self._driver.read(self._inner.find(thread_id, name, run_id=run_id))

    def get(self, thread_id: str, name: str, *, run_id: str | None = None) -> StateDoc:
        """The document; raises `NotFoundError`."""
        return self._driver.read(self._inner.get(thread_id, name, run_id=run_id))

    def list(self, thread_id: str, *, run_id: str | None = None) -> StateDocs:
        """Every document of the thread (or of the run), by name."""
        return self._driver.read(self._inner.list(thread_id, run_id=run_id))

    def iter(self, thread_id: str, *, run_id: str | None = None) -> Iterator[StateDoc]:
        """Every document of the list, one by one."""
        return self._driver.iterate(self._inner.iter(thread_id, run_id=run_id))

    def put(
        self, thread_id: str, name: str, value: Any, *, run_id: str | None = None, if_rev: int | None = None
    ) -> StateDoc:
        """Write a document; with `if_rev`, only over that very revision (0: only if there is none)."""
        return self._driver.run(self._inner.put(thread_id, name, value, run_id=run_id, if_rev=if_rev))

    def delete(self, thread_id: str, name: str, *, run_id: str | None = None, if_rev: int | None = None) -> None:
        """Remove a document; a missing one is ignored, unless `if_rev` is passed."""
        return self._driver.run(self._inner.delete(thread_id, name, run_id=run_id, if_rev=if_rev))
