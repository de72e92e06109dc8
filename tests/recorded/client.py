"""One process of `old_and_new`: it runs with the code of one build, on a store that processes of other builds use too.

    python -m tests.recorded.client play URL FOLDER      run the workload on an empty store
    python -m tests.recorded.client contents URL FOLDER  read everything, audit it, send the last keyed commits again
    python -m tests.recorded.client work URL NAME        commit, round after round, until stdin is closed

Each prints JSON lines; the first of `work` comes when the store is open.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

from tests.recorded.contents import all_contents
from tests.recorded.plain import START
from tests.recorded.play import play
from tests.recorded.recorder import Recorder
from tests.recorded.support import Clock, audit, opened
from tests.recorded.workload import DAY, keyed_later

import perdure
from perdure import DeliveryMode, Message, NewRun


def say(**facts: Any) -> None:
    """A line for the process that started this one."""
    print(json.dumps({"build": str(Path(perdure.__file__).parent), **facts}), flush=True)


async def play_all(url: str, folder: str) -> None:
    """The whole workload."""
    played = await play(url, Path(folder))
    say(outcomes=played.outcomes, contents=played.contents, findings=played.findings)


async def read_all(url: str, folder: str) -> None:
    """Everything that is there; keyed commits that an earlier process made must be known, and change nothing."""
    clock = Clock(START + 10 * DAY)
    async with opened(url, clock) as store:
        contents, findings = await all_contents(store), await audit(store)
        replays = Recorder(store, clock, Path(folder))
        await keyed_later(replays)
        replayed = [line.get("returns", {}).get("replayed") for line in replays.lines]
        say(contents=contents, findings=findings, replayed=replayed, after=await all_contents(store))


async def work(url: str, name: str) -> None:
    """Rounds of everything that a server-side function may have a part in: commits, refusals, deletions."""
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    async with perdure.open(url, scope="shared") as store:
        say(opened=name)
        number = 0
        while not closed.is_set():
            number += 1
            await _round(store, name, number)
            say(round=number)
        findings = await audit(store)
    say(rounds=number, findings=findings)


async def _round(store: perdure.Store, name: str, number: int) -> None:
    thread = f"{name}-{number}"
    first = await store.commit(thread, messages=[Message.user("x", id="m-1")], state={"n": number}, key="once")
    again = await store.commit(thread, messages=[Message.user("x", id="m-1")], state={"n": number}, key="once")
    _insist(again.replayed and again.message_ids == first.message_ids, "a keyed commit is replayed")
    await _refused(perdure.AlreadyExists, store.commit(thread, messages=[Message.user("x", id="m-1")]))
    await _refused(perdure.VersionConflict, store.commit(thread, messages=[Message.user("x")], expect=7))
    await _refused(perdure.KeyReused, store.commit(thread, messages=[Message.user("other")], key="once"))
    run = await store.runs.start(thread, "worker", messages=[Message.user("go")])
    receipt = await store.commit(thread, messages=[Message.assistant("going")], run=run.step())
    await _refused(perdure.VersionConflict, store.commit(thread, run=run.step()))
    await store.commit(thread, run=receipt.run.finish("done"))
    await store.branches.fork(thread, at="m-1", name="side", switch=True)
    await _refused(perdure.AlreadyExists, store.branches.fork(thread, at="m-1", name="side"))
    await store.pending.append(thread, [Message.user("later")], mode=DeliveryMode())
    await store.pending.freeze(thread, run=NewRun(agent_id="worker"))
    await store.state.put(thread, "doc", number)
    await store.state.delete(thread, "doc")
    snapshot = await store.load(thread)
    _insist(snapshot.version == 4 and "doc" not in snapshot.state, "a thread is as it was written")
    # All processes share one thread, so that each meets what another build has just written.
    await store.commit("meeting", messages=[Message.user(thread)], state={"last": thread})
    await store.threads.delete(thread)
    _insist(await store.threads.find(thread) is None, "a deleted thread is gone")


async def _refused(kind: type[Exception], attempt: Any) -> None:
    try:
        result = await attempt
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, not {result!r}")


def _insist(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"it does not hold that {what}")


if __name__ == "__main__":
    verbs = {"play": play_all, "contents": read_all, "work": work}
    asyncio.run(verbs[sys.argv[1]](*sys.argv[2:]))
