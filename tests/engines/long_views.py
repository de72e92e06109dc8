"""A long read holds up nobody while reader threads may still start.

    python -m tests.engines.long_views

One read after another begins and does not end; each of the next must still be answered, until every thread that may
start is busy.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
from pathlib import Path

from tests.engines.toys import SCHEMA, SCOPE

from perdure.engines.sqlite import open_sqlite
from perdure.engines.sqlite.connections.interrupts import Stop
from perdure.engines.sqlite.read import MAX_THREADS
from perdure.kernel.ops import Heads

PATIENCE = 60.0


class HeldUp(Exception):
    """A short read waited behind a long one, although a thread was free to start."""


async def run(folder: Path) -> int:
    """Returns how many long reads ran at once while a short one was answered."""
    engine = await open_sqlite(str(folder / "views.db"), SCHEMA)
    gate = threading.Event()
    reads: list[asyncio.Task[None]] = []
    try:
        for long in range(1, MAX_THREADS):
            began = threading.Event()

            def read_long(_: Stop, began: threading.Event = began) -> None:
                began.set()
                gate.wait(10 * PATIENCE)

            reads.append(asyncio.create_task(engine._read(read_long)))
            if not await asyncio.to_thread(began.wait, PATIENCE):
                raise HeldUp(f"long read {long} never began")
            try:
                async with asyncio.timeout(PATIENCE):
                    await engine.view(SCOPE, [Heads("notes", ["t"])])
            except TimeoutError:
                raise HeldUp(f"a short read waited behind {long} long one(s)") from None
    finally:
        gate.set()
        await asyncio.gather(*reads)
        await engine.close()
    return MAX_THREADS - 1


def main() -> int:
    """Run from the command line."""
    with tempfile.TemporaryDirectory(prefix="perdure-views-") as folder:
        try:
            long = asyncio.run(run(Path(folder)))
        except HeldUp as error:
            print(f"HeldUp: {error}", file=sys.stderr)
            return 1
    print(json.dumps({"figures": {"long reads at once": long}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
