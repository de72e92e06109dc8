"""The store that is damaged: built once, with a clock that never says the same time twice."""

from __future__ import annotations

import itertools
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.audit.mutations import SCOPE, File
from tests.audit.samples import rich

from perdure import Message
from perdure.audit import Finding, verify_engine
from perdure.engines.sqlite import open_sqlite
from perdure.stores.schema import SCHEMA
from perdure.stores.store import Store
from perdure.sync.driver import Driver

T = TypeVar("T")


class Place:
    """A file that can be damaged and restored, and the engine that reads it in this very thread."""

    def __init__(self, folder: Path) -> None:
        path = folder / "store.db"
        ticks = itertools.count(time.time_ns() // 1_000_000, 1_000)
        self._run = Driver().run
        opened = self._run(open_sqlite(str(path), SCHEMA, clock=lambda: next(ticks), durability="process"))
        self.engine = opened.blocking()
        self._run(rich(self.store()))
        self._run(self.store("other").commit("t", messages=[Message.user("another tenant")]))
        self.file = File(path)

    def store(self, scope: str = SCOPE) -> Store:
        """A store without memories of what it saw before."""
        return Store(self.engine, scope, owner=False)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call."""
        return self._run(call)

    def audit(self) -> list[Finding]:
        """What `doctor verify --all-scopes` finds."""
        return self._run(verify_engine(self.engine))

    def close(self) -> None:
        self.file.close()
        self._run(self.engine.close())
