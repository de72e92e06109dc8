"""Ten thousand followers of a thousand threads, while another process writes as fast as it can.

    python -m tests.scale.followers --engine sqlite --followers 10000 --threads 1000 --seconds 15

Followers differ: all branches or one, everything or the external view. Every follower must yield exactly its records,
with their parents, in order, up to the end marks that the writer leaves. Printed are reads per second by the waker and
by followers for themselves, memory per follower, and the writer's commits per second without and with followers. Only
correctness and memory decide the outcome: times on a busy machine do not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.servers import fresh_database, server

import perdure
from perdure import Message, MessageRecord, Store
from perdure.kernel.engine import Engine
from perdure.stores import waker
from perdure.stores.store import Store as OpenStore

QUERIES: tuple[dict[str, Any], ...] = ({}, {"branch": "main"}, {"branch": "side"}, {"view": "external"}, {"branch": 0})
MOST_BYTES = 64 * 1024
WRITERS = 16
DEADLINE = 600.0


class FollowersFailed(Exception):
    """A follower did not yield its records, or costs too much."""


class CountingEngine:
    """An engine that counts its views."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.views = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def view(self, *arguments: Any) -> Any:
        self.views += 1
        return await self._engine.view(*arguments)


class Digest:
    """What a follower has yielded, in a few bytes."""

    __slots__ = ("count", "ends", "sum")

    def __init__(self) -> None:
        self.count = self.sum = self.ends = 0

    def add(self, record: MessageRecord) -> None:
        # Cheap, because ten thousand followers do it beside the writer whose speed is measured.
        text = record.text
        self.sum = hash((self.sum, record.seq, record.branch, record.message_id, record.parent_id, text))
        self.count += 1
        self.ends += text == "end"

    def of(self, records: Iterable[MessageRecord]) -> tuple[int, int]:
        for record in records:
            self.add(record)
        return self.count, self.sum


def name_of(number: int) -> str:
    return f"thread-{number}"


async def prepare(store: Store, threads: int) -> None:
    """Threads with two branches each."""
    for number in range(threads):
        receipt = await store.commit(name_of(number), messages=[Message.user("root")])
        await store.branches.fork(name_of(number), at=receipt.message_ids[0], name="side")


async def write(url: str, threads: int, seconds: float, *, end: bool) -> dict[str, float]:
    """The other process: commits by several tasks, as fast as they go."""
    async with perdure.open(url, durability="process", housekeeping=False) as store:
        draw = random.Random(threads)
        commits = 0
        begun = time.perf_counter()

        async def one_writer() -> None:
            nonlocal commits
            while time.perf_counter() - begun < seconds:
                visibility = draw.choice(("all", "all", "internal"))
                messages = [Message.user("x" * draw.randrange(400), visibility=visibility)]
                branch = draw.choice(("main", "side"))
                await store.commit(name_of(draw.randrange(threads)), messages=messages, branch=branch)
                commits += 1

        await asyncio.gather(*(one_writer() for _ in range(WRITERS)))
        elapsed = time.perf_counter() - begun
        if end:
            for number in range(threads):
                for branch in ("main", "side"):
                    await store.commit(name_of(number), messages=[Message.user("end")], branch=branch)
        return {"commits": commits, "rate": commits / elapsed}


async def written(url: str, threads: int, seconds: float, *, end: bool) -> dict[str, float]:
    """What a writer in a process of its own reports."""
    arguments = ["--write", url, "--threads", str(threads), "--seconds", str(seconds)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.scale.followers", *arguments, *(["--end"] if end else []),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    if process.returncode:
        raise FollowersFailed("the writer failed")
    report: dict[str, float] = json.loads(output)
    return report


async def follow(store: Store, number: int, threads: int, started: asyncio.Semaphore) -> Digest:
    """One follower, to the end marks of what it follows."""
    query = QUERIES[number // threads % len(QUERIES)]
    digest = Digest()
    async with store.messages.follow(name_of(number % threads), **query) as records:
        async for record in records:
            digest.add(record)
            if digest.count == 1:
                started.release()
            if digest.ends == (1 if "branch" in query else 2):
                break
    return digest


async def check(store: Store, digests: Sequence[Digest], threads: int) -> int:
    """Compare what followers yielded with what is stored; returns how many records that was."""
    for thread in range(threads):
        for start, query in enumerate(QUERIES):
            numbers = range(thread + start * threads, len(digests), threads * len(QUERIES))
            if not numbers:
                continue
            if "branch" in query:
                records = await store.messages.path(name_of(thread), branch=query["branch"])
            else:
                records = [record async for record in store.messages.iter(name_of(thread))]
                if query:
                    records = [record for record in records if record.visibility == "all"]
            expected = Digest().of(records)
            for number in numbers:
                if (digests[number].count, digests[number].sum) != expected:
                    raise FollowersFailed(
                        f"follower {number} of {name_of(thread)} {query}: {digests[number].count} records, "
                        f"{expected[0]} are stored, or others"
                    )
    return sum(digest.count for digest in digests)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@contextmanager
def own_views() -> Iterator[list[int]]:
    """How many views followers made for themselves."""
    count = [0]
    view = waker.GatedKernel.view

    async def counted(self: Any, *arguments: Any) -> Any:
        count[0] += 1
        return await view(self, *arguments)

    waker.GatedKernel.view = counted  # type: ignore[method-assign]
    try:
        yield count
    finally:
        waker.GatedKernel.view = view  # type: ignore[method-assign]


async def run(engine_name: str, followers: int, threads: int, seconds: float, directory: str) -> dict[str, Any]:
    """The whole story on one engine."""
    url = f"sqlite:///{directory}/followers.db"
    if engine_name != "sqlite":
        url = await fresh_database(server(engine_name), "followers")
    async with perdure.open(url, durability="process", housekeeping=False) as opened:
        await prepare(opened, threads)
        before = await written(url, threads, seconds / 2, end=False)
        engine = CountingEngine(opened.engine)
        store = OpenStore(engine, owner=False)  # type: ignore[arg-type]
        with own_views() as own:
            started = asyncio.Semaphore(0)
            empty = resident_bytes()
            tasks = [asyncio.ensure_future(follow(store, n, threads, started)) for n in range(followers)]
            async with asyncio.timeout(DEADLINE):
                for _ in range(followers):
                    await started.acquire()
                await asyncio.sleep(0)
                idle = resident_bytes()
                views, own_before, begun = engine.views, own[0], time.perf_counter()
                processor = time.process_time()
                during = await written(url, threads, seconds, end=True)
                elapsed = time.perf_counter() - begun
                processor = time.process_time() - processor
                views, behind = engine.views - views, own[0] - own_before
                digests = await asyncio.gather(*tasks)
            drained = time.perf_counter() - begun - elapsed
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        records = await check(store, digests, threads)
        after = await written(url, threads, seconds / 2, end=False)
    alone = (before["rate"] + after["rate"]) / 2
    return {
        "engine": engine_name,
        "followers": followers,
        "threads": threads,
        "records delivered": records,
        "commits alone /s": round(alone),
        "commits with followers /s": round(during["rate"]),
        "ratio": round(during["rate"] / alone, 2),
        "follower's share of a core": round(processor / elapsed, 2),
        "waker reads /s": round((views - behind) / elapsed, 1),
        "followers' own reads /s": round(behind / elapsed, 1),
        "KB per follower, waiting": round((idle - empty) / followers / 1024, 1),
        "KB per follower, at most": round((peak - empty) / followers / 1024, 1),
        "seconds to drain": round(drained, 1),
    }


def judge(report: dict[str, Any]) -> None:
    """Raise if a follower costs too much memory."""
    if report["KB per follower, at most"] * 1024 > MOST_BYTES and report["followers"] >= 1_000:
        raise FollowersFailed(f"{report['KB per follower, at most']} KB per follower")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="sqlite")
    parser.add_argument("--followers", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--write", help="be the writer, to this URL")
    parser.add_argument("--end", action="store_true", help="leave end marks")
    options = parser.parse_args()
    if options.write:
        report: dict[str, Any] = asyncio.run(write(options.write, options.threads, options.seconds, end=options.end))
        print(json.dumps(report))
        return
    with tempfile.TemporaryDirectory() as directory:
        report = asyncio.run(run(options.engine, options.followers, options.threads, options.seconds, directory))
    for name, value in report.items():
        print(f"{name:28} {value}")
    judge(report)


if __name__ == "__main__":
    main()
