"""How a program ends: a forked child leaves its parent's store alone, and an atexit handler may close one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

URLS = ("memory://", "sqlite:///{path}")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(params=URLS, ids=("memory", "sqlite"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(path=tmp_path / "store.db")


def run(program: str, url: str) -> subprocess.CompletedProcess[str]:
    given = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, url]  # newer Pythons warn of any fork
    return subprocess.run(given, capture_output=True, text=True, timeout=120, check=False)


_START = """
import asyncio, atexit, os, sys
import perdure, perdure.sync
from perdure import Message
from perdure.engines.memory.engine import MemoryEngine
from perdure.opening import make_store
from perdure.stores.schema import SCHEMA
url = sys.argv[1]

def code_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

async def write(store):
    await store.commit("t", messages=[Message.user("x")])

def write_now(store):
    store.commit("t", messages=[Message.user("x")])
"""

_BLOCKING = """
with perdure.sync.open(url) as store:
    write_now(store)
    child = os.fork()
    if child == 0:
        store.close()
        sys.exit(7)
    code = code_of(child)
    write_now(store)
    assert store.threads.get("t").version == 2
sys.exit(code)
"""

# A child that ends the inherited loop would take the parent's loop its wake-ups (they share the selector): so this one
# leaves `async with` by its exit, and then the process at once.
_ASYNC_INSIDE = """
async def main():
    code = 0
    try:
        async with perdure.open(url) as store:
            await write(store)
            child = os.fork()
            if child == 0:
                await store.close()
                sys.exit(7)
            code = code_of(child)
            await write(store)
            assert (await store.threads.get("t")).version == 2
    except SystemExit as left:
        os._exit(left.code)
    sys.exit(code)
asyncio.run(main())
"""

_ASYNC_BETWEEN = """
with asyncio.Runner() as runner:
    async def opened():
        store = await perdure.open(url)
        await write(store)
        return store
    store = runner.run(opened())
    child = os.fork()
    if child == 0:
        asyncio.run(store.close())
        os._exit(7)
    code = code_of(child)
    runner.run(write(store))
    runner.run(store.close())
sys.exit(code)
"""

_INSIDE_AN_ITERATION = """
with perdure.sync.open(url) as store:
    write_now(store)
    write_now(store)
    for record in store.messages.iter("t"):
        child = os.fork()
        if child == 0:
            sys.exit(7)
        code = code_of(child)
sys.exit(code)
"""

_HOUSEKEEPING_UNDER_WAY = """
async def main():
    async with perdure.open(url) as store:
        keeper = store._housekeeper
        with keeper._lock:  # held by a thread that the child does not have
            child = os.fork()
            if child == 0:
                keeper.revisit("default")
                await store.close()
                os._exit(7)
        code = code_of(child)
    sys.exit(code)
asyncio.run(main())
"""

_TASK_OF_A_SERVER = """
class Served(MemoryEngine):
    def blocking(self):
        return None

async def main():
    async with make_store(Served(SCHEMA), "default", "served", housekeeping=True) as store:
        child = os.fork()
        if child == 0:
            sys.exit(7)
        code = code_of(child)
    sys.exit(code)
asyncio.run(main())
"""


@needs_fork
@pytest.mark.parametrize(
    "program",
    [_BLOCKING, _ASYNC_INSIDE, _ASYNC_BETWEEN, _INSIDE_AN_ITERATION, _HOUSEKEEPING_UNDER_WAY, _TASK_OF_A_SERVER],
    ids=["blocking", "inside the loop", "between loops", "iterating", "housekeeping", "task"],
)
def test_closing_in_a_forked_child_does_nothing(program: str, url: str) -> None:
    done = run(_START + program, url)
    assert (done.returncode, done.stderr) == (7, "")


_AT_EXIT = """
async def opened():
    store = await perdure.open(url)
    await write(store)
    return store

def close(store):
    asyncio.run(store.close())
    print("closed")

store = asyncio.run(opened())
atexit.register(close, store)
"""

_AT_EXIT_BUSY = """
import threading
from perdure.stores import housekeeping
begun, real = threading.Event(), housekeeping.sweep

async def slow(context, progress, pause):
    begun.set()
    while True:
        await pause()

housekeeping.sweep = slow
store = asyncio.run(opened())
assert begun.wait(60)
atexit.register(close, store)
"""

_AT_EXIT_BLOCKING = """
store = perdure.sync.open(url)
write_now(store)

def close():
    store.close()
    print("closed")

atexit.register(close)
"""


@pytest.mark.parametrize(
    "program",
    [_AT_EXIT, _AT_EXIT + _AT_EXIT_BUSY, _AT_EXIT_BLOCKING],
    ids=["async", "async, housekeeping", "blocking"],
)
def test_a_store_may_be_closed_when_the_interpreter_ends(program: str, url: str) -> None:
    done = run(_START + program, url)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == {"closed"}
    assert not Path(f"{url.removeprefix('sqlite:///')}-wal").exists()
