"""Other processes of a fault program: the same module, started with an order and a URL, answering with one JSON line.

A second process is another engine with connections of its own, as a second worker of a fleet would be.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.faults.shell import FaultFound, bounded

ROOT = Path(__file__).parents[2]
Order = dict[str, Any]


async def helper(module: str, order: Order, seconds: float) -> Order:
    """Run `order` in a process of its own and return its answer."""
    flags = ["-O"] if sys.flags.optimize else []
    process = await asyncio.create_subprocess_exec(
        sys.executable, *flags, "-m", module, "--order", json.dumps(order),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        told, complaint = await bounded(process.communicate(), f"a helper of {module}", seconds)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode != 0:
        raise FaultFound(f"a helper of {module} failed:\n{complaint.decode()[-3000:]}")
    answer: Order = json.loads(told.splitlines()[-1])
    return answer


def obey(work: Callable[[Order], Coroutine[Any, Any, Order]]) -> bool:
    """If this process was started as a helper, do what was ordered; else say no."""
    if sys.argv[1:2] != ["--order"]:
        return False
    print(json.dumps(asyncio.run(work(json.loads(sys.argv[2])))), flush=True)
    return True
