"""What the fault programs share: the command line, figures as JSON lines, and the line that replays a failure.

Each program is a process of its own with private servers, so that killing one of them hurts nobody else. What it finds
is raised as `FaultFound`; the driver in `tests/torture` reads `progress`, `total` and `figures` from its output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tests.support.servers import ServerMissing

import perdure
from perdure.audit import verify_engine
from perdure.errors import OutcomeUnknown, UnavailableError

T = TypeVar("T")
Figures = dict[str, Any]
Run = Callable[[argparse.Namespace], Coroutine[Any, Any, Figures]]

ENGINES = ("postgres", "mysql", "redis")
UNCERTAIN = (OutcomeUnknown, UnavailableError)
"""All that a caller may see of a broken server or connection."""

MISSING = 3
"""The exit status of a program whose server cannot be had here."""

PATIENCE = 90.0
"""No call may take longer than this, whatever happened to the server or to the connection."""


class FaultFound(Exception):
    """The store did not keep its promise under a fault."""


def tell(what: str, value: Any) -> None:
    """One JSON line for whoever started this program."""
    print(json.dumps({what: value}), flush=True)


def parser_of(doc: str | None, unit: str, default: int) -> argparse.ArgumentParser:
    """The options that every program has: engine, volume, seed."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, default="postgres")
    parser.add_argument(f"--{unit}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    return parser


def main(module: str, run: Run, parser: argparse.ArgumentParser) -> int:
    """Run a program from the command line; a failure ends with the line that replays it."""
    asked = parser.parse_args()
    os.environ["PERDURE_SEED"] = str(asked.seed)
    given = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in vars(asked).items() if value is not None)
    try:
        tell("figures", asyncio.run(run(asked)))
    except ServerMissing as missing:
        tell("missing", str(missing))
        return MISSING
    except Exception as error:  # noqa: BLE001 - reported with the line that replays it
        traceback.print_exc()
        tell("replay", f"python -m {module} {given}")
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


async def bounded(work: Awaitable[T], what: str, seconds: float = PATIENCE) -> T:
    """The result of a call that must end: a hang is a fault like any other."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise FaultFound(f"{what} did not end within {seconds:.0f} s") from None


async def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait for a condition, with a deadline."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise FaultFound(f"{what}: not within {seconds:.0f} s")
        await asyncio.sleep(0.005)


async def insist(work: Callable[[], Awaitable[T]], what: str, seconds: float = PATIENCE) -> T:
    """Make a safe call again until the server answers: a read, or a commit with a key."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return await bounded(work(), what)
        except UNCERTAIN as error:
            if time.monotonic() > give_up:
                raise FaultFound(f"{what}: no answer within {seconds:.0f} s of trying: {error}") from error
        await asyncio.sleep(0.02)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[perdure.Store]:
    """A store on a server that may still be starting."""
    store = await insist(lambda: perdure.open(url), "opening the store")
    try:
        yield store
    finally:
        await bounded(store.close(), "closing the store")


async def audit(url: str) -> int:
    """The whole store through the auditor, by a client of its own; returns how many threads it holds."""
    async with opened(url) as store:
        findings = await verify_engine(store.engine)
        if findings:
            raise FaultFound("; ".join(map(str, findings[:10])))
        return len([thread.id async for thread in store.threads.iter()])


def address_of(url: str) -> tuple[str, int]:
    """Host and port of a server's URL."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise FaultFound("the test server's URL names no host and port")
    return parts.hostname, parts.port
