"""A worker process for the tests: `python -m tests.workers.process STORE LEDGER [in_order]`. Kill it to end it.

Its tool appends a line to the ledger each time it runs: the process, the run, and whether it was repeated. The tool of
the run `hangs` never ends the first time; so it is with `hangs-at-first`, whose model makes two more calls. The tool of
the run `paused` is shielded, and ends when there is a file `go` beside the ledger; whoever takes over that run ends it
when there is a file `end`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import perdure
from perdure import Message, ToolUse
from perdure.workers import Job, Stopped, serve

LEASE_MS = 3_000


def note(ledger: str, *words: object) -> None:
    with open(ledger, "ab", buffering=0) as file:  # noqa: PTH123 - one write, which no other process can split
        file.write((" ".join(map(str, words)) + "\n").encode())


async def file(ledger: str, name: str) -> None:
    """Wait for a file beside the ledger."""
    while not Path(ledger).with_name(name).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.02)


async def pay_shielded(job: Job, ledger: str) -> None:
    with job.shield():
        await file(ledger, "go")
        try:
            await job.commit(
                Message.tool(f"call-{job.run.id}", "Paid."), Message.assistant("Late."), run=job.run.finish("Late.")
            )
        except Stopped:
            note(ledger, os.getpid(), job.run.id, "stopped")
            raise


async def main(url: str, ledger: str, promise: str = "") -> None:
    async def agent(job: Job) -> None:
        for call in await job.unfinished_calls():
            note(ledger, os.getpid(), job.run.id, "uncertain" if job.uncertain(call) else "certain")
            await job.commit(Message.tool(call.id, "It may have been paid.", is_error=True))
            if job.run.id == "paused":
                await file(ledger, "end")
        if len(await job.history()) == 1:
            later = [ToolUse(f"later-{n}", "pay", {}) for n in range(2 if job.run.id == "hangs-at-first" else 0)]
            await job.commit(Message.assistant([ToolUse(f"call-{job.run.id}", "pay", {}), *later]))
            note(ledger, os.getpid(), job.run.id, "ran")
            if job.run.id.startswith("hangs"):
                await asyncio.Event().wait()
            if job.run.id == "paused":
                await pay_shielded(job, ledger)
            await job.commit(Message.tool(f"call-{job.run.id}", "Paid."))
        await job.commit(Message.assistant("Done."), run=job.run.finish())

    async with perdure.open(url) as store:
        await serve(store, agent, concurrency=2, poll_ms=20, lease_ms=LEASE_MS, in_order=bool(promise))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
