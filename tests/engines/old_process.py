"""A process of another build that has a store open: it writes, waits for a line on stdin, and tries to write again.

    PYTHONPATH=<source of that build> python old_process.py URL

It knows nothing but the public API, and prints one JSON line each time: first the version it wrote, then what became of
each attempt (`null`, or the class of the error and its text).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import perdure
from perdure import Message


def _attempts(store: Any, first: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "commit": lambda: store.commit("t", messages=[Message.user("late")]),
        "new thread": lambda: store.commit("new", messages=[Message.user("late")]),
        "keyed commit": lambda: store.commit("t", messages=[Message.user("late")], key="k"),
        "state": lambda: store.commit("t", state={"plan": 2}),
        "run": lambda: store.runs.start("t", "agent"),
        "pending": lambda: store.pending.append("t", [Message.user("late")]),
        "rename": lambda: store.threads.update("t", title="late"),
        "fork": lambda: store.branches.fork("t", at=first),
        "label": lambda: store.branches.label("t", first, "late"),
        "profile": lambda: store.profiles.put("user:1", "name", "late"),
        "delete": lambda: store.threads.delete("t"),
        "read": lambda: store.load("t"),
    }


async def main(url: str) -> None:
    """Write, wait, write again."""
    async with perdure.open(url, housekeeping=False) as store:
        receipt = await store.commit("t", messages=[Message.user("early")], state={"plan": 1}, key="early")
        await store.profiles.put("user:1", "name", "early")
        await store.load("t")
        print(json.dumps(receipt.version), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        results: dict[str, Any] = {}
        for name, attempt in _attempts(store, receipt.message_ids[0]).items():
            try:
                await attempt()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
                results[name] = [type(error).__name__, str(error)]
            else:
                results[name] = None
        print(json.dumps(results), flush=True)


asyncio.run(main(sys.argv[1]))
