"""The blocking face: `perdure.sync.open(url)` opens the same stores with the same methods, without `await`.

It is usable from several threads. On an embedded engine a commit runs on the caller's own thread, or joins the group
commit of the thread that is writing; a store on a server has one background thread with an event loop, where
its connections live. Inside a running event loop it refuses, with a hint: there, use `perdure.open`.
"""

from __future__ import annotations

from os import PathLike

from perdure.clock import Clock, system_clock
from perdure.errors import UnsupportedError
from perdure.opening import DurabilityChoice, as_text, check_options, is_server, make_store, open_engine
from perdure.rules.checks import check_own_scope
from perdure.stores.patience import Patience
from perdure.sync.buffered import BufferedWriter
from perdure.sync.driver import Driver, LoopDriver
from perdure.sync.follower import Follower
from perdure.sync.stores.branches import Branches
from perdure.sync.stores.messages import Messages
from perdure.sync.stores.pending import Pending
from perdure.sync.stores.profiles import Profiles
from perdure.sync.stores.runs import Runs
from perdure.sync.stores.state import State
from perdure.sync.stores.store import Store
from perdure.sync.stores.thread_handle import ThreadHandle
from perdure.sync.stores.threads import Threads

__all__ = [
    "Branches",
    "BufferedWriter",
    "Follower",
    "Messages",
    "Pending",
    "Profiles",
    "Runs",
    "State",
    "Store",
    "ThreadHandle",
    "Threads",
    "open",
]


def open(
    url: str | PathLike[str],
    *,
    scope: str = "default",
    durability: DurabilityChoice = "power",
    read_only: bool = False,
    clock: Clock = system_clock,
    pool: None = None,
    housekeeping: bool = True,
    retry_ms: int = 0,
) -> Store:
    """Open a store for blocking callers; use it with `with`, or close it. The options are those of `perdure.open`.

    It takes no `pool`: the connections of an async pool belong to the event loop that made it, and here is none.
    """
    own_pool: object = pool
    if own_pool is not None:
        raise UnsupportedError(
            "a pool belongs to the event loop that made it, so a blocking store cannot use it",
            hint="leave pool out, or use perdure.open with async code",
        )
    check_options(read_only=read_only, clock=clock, housekeeping=housekeeping, retry_ms=retry_ms)
    check_own_scope(scope, read_only=read_only)
    url = as_text(url)
    driver = LoopDriver() if is_server(url) else Driver()
    try:
        engine = driver.run(
            Patience(retry_ms).repeat(lambda: open_engine(url, durability=durability, read_only=read_only, clock=clock))
        )
        tidy = housekeeping and not read_only
        engine = engine.blocking() or engine
        inner = make_store(engine, scope, url, housekeeping=tidy, read_only=read_only, retry_ms=retry_ms)
    except BaseException:
        driver.close()
        raise
    return Store(inner, driver)
