"""Perdure beside raw sqlite3, openai-agents SQLiteSession and LangGraph AsyncSqliteSaver, interleaved in one process.

    make bench                                      everything, under ten minutes on two cores
    python bench/run.py --quick                     fewer rounds, about a minute and a half
    python bench/run.py --only loads --only listing
    python bench/run.py --json result.json

Every subject syncs each acknowledged commit to the disk (WAL, synchronous=FULL); the first table shows what each one's
own connections report, and the run stops if one of them does less. Only ratios travel between machines: read those.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import resource
import shutil
import sqlite3
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import commits
import lengths
import reads
from harness import note
from peers import LangGraphSaver, OpenAISession
from perdure_adapter import Perdure
from report import Report, duration
from tracing import recorded_connections, settings
from workload import bare, history

CASES = {
    "one-client": commits.one_client,
    "many-clients": commits.many_clients,
    "growth": commits.growth,
    "lengths": lengths.lengths,
    "loads": reads.loads,
    "unknown": reads.unknown,
    "listing": reads.listing,
    "sizes": lengths.sizes,
}

NO_DISK = 20e-6
"""A sync faster than this reached no disk (a file system in memory), and every ratio here would mislead."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Perdure against raw sqlite3 and its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: about a minute and a half, noisier")
    parser.add_argument("--only", action="append", choices=sorted(CASES), help="run this case only (may be repeated)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--dir", type=Path, help="directory on the disk to measure (default: temporary)")
    return parser.parse_args()


def sync_floor(home: Path, count: int = 200) -> float:
    """Median seconds of appending 8 KB to a file and syncing it: what the disk alone costs a commit."""
    block, spent = os.urandom(8192), []
    with (home / "floor").open("wb", buffering=0) as file:
        for _ in range(count):
            started = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            spent.append(time.perf_counter() - started)
    return statistics.median(spent)


async def durability(home: Path) -> tuple[int, list[list[str]]]:
    """What every subject's own connections report; raises if one of them syncs less than the others."""
    rows = []
    page_size = 0
    for name in ("perdure", "openai", "langgraph"):
        with recorded_connections() as opened:
            subject: Any = await _open(name, home)
            await subject.create("probe", history(2))
            await subject.commit("probe", subject.prepare(bare(0)))
            found = await _settings_of(subject, opened)
            await subject.close()
        mode, level, page = found
        if (mode, level) != ("wal", 2):
            raise RuntimeError(f"{subject.name} runs with journal_mode={mode}, synchronous={level}: not comparable")
        page_size = page if name == "perdure" else page_size
        rows.append([subject.name, mode, "FULL", str(page)])
    return page_size, [["raw sqlite3", "wal", "FULL", str(page_size)], *rows]


async def _open(name: str, home: Path) -> Any:
    path = home / f"{name}-probe.db"
    if name == "openai":
        return OpenAISession(path)
    return await (Perdure if name == "perdure" else LangGraphSaver).open(path)


async def _settings_of(subject: Any, opened: list[sqlite3.Connection]) -> tuple[str, int, int]:
    """Settings of the connection that wrote."""
    if isinstance(subject, LangGraphSaver):
        return await subject.settings()
    writers = [connection for connection in opened if _wrote(connection)]
    if not writers:
        raise RuntimeError(f"{subject.name}: no connection that wrote was seen")
    return await asyncio.to_thread(settings, writers[-1])


def _wrote(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes > 0
    except sqlite3.ProgrammingError:  # closed: the one that made the tables
        return False


async def measure(options: argparse.Namespace, home: Path) -> Report:
    report = Report()
    page_size, rows = await durability(home)
    gc.collect()
    gc.freeze()  # by now all peers are imported; the collector must not walk their modules at everybody's expense
    packages = ("openai-agents", "langgraph", "langgraph-checkpoint-sqlite", "msgspec")
    floor = sync_floor(home)
    if floor < NO_DISK:
        note(f"  a sync takes {duration(floor)}: {home} is not on a disk; name one with --dir")
    report.facts = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "page_size": page_size,
        "write_8k_and_sync": duration(floor),
        **{package: version(package) for package in packages},
    }
    print(", ".join(f"{name} {value}" for name, value in report.facts.items()))
    report.table("Durability, as each subject's connection reports it", ["subject", "journal", "sync", "page"], rows)
    for name, case in CASES.items():
        if options.only and name not in options.only:
            continue
        started = time.perf_counter()
        place = home / name
        place.mkdir()
        await case(report, place, page_size, quick=options.quick)
        shutil.rmtree(place)
        note(f"  ({name}: {time.perf_counter() - started:.0f} s)")
    return report


def main() -> None:
    options = arguments()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # SQLiteSession keeps a connection per session and worker
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=options.dir) as home:
        report = asyncio.run(measure(options, Path(home)))
    report.facts["seconds"] = round(time.perf_counter() - started)
    report.finish(options.json)


if __name__ == "__main__":
    main()
