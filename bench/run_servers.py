"""Measure Perdure on database servers beside raw drivers and its peers, every case in this one process.

    python bench/run_servers.py                       # postgres, redis and mysql: under ten minutes
    python bench/run_servers.py --engine redis        # one engine
    python bench/run_servers.py --engine postgres --only crowd --only exact --quick

Servers are private to the run and sync every acknowledged commit; each says so itself, and the run stops if one does
not. Only ratios travel between machines: read those.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import os
import platform
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import note
from report import Report
from servers import started

from perdure.testkit.kit import ServerMissing

ENGINES = ("postgres", "redis", "mysql")
PACKAGES = ("asyncpg", "psycopg", "redis", "asyncmy", "openai-agents", "langgraph-checkpoint-postgres", "msgspec")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Perdure on servers, beside raw drivers and its peers.")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="this engine only (may be repeated)")
    parser.add_argument("--only", action="append", help="run this case only (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, noisier")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    return parser.parse_args()


def measure(report: Report, name: str, options: argparse.Namespace) -> None:
    """One engine on a server of its own."""
    begun = time.perf_counter()
    try:
        server = started(name)
    except ServerMissing as missing:
        report.failure(f"{name}: no server", str(missing))
        return
    try:
        report.facts[name] = server.version
        asyncio.run(measure_cases(report, name, server.url, options))
    finally:
        server.dispose()
    note(f"  ({name}: {time.perf_counter() - begun:.0f} s)")


async def measure_cases(report: Report, name: str, url: str, options: argparse.Namespace) -> None:
    """The engine's cases; one that breaks is shown in the table and does not end the run."""
    module: Any = importlib.import_module(f"server_{name}")
    async with module.opened(report, url) as setting:
        for case_name, case in module.CASES.items():
            if options.only and case_name not in options.only:
                continue
            begun = time.perf_counter()
            try:
                await case(report, setting, quick=options.quick)
            except Exception as error:  # noqa: BLE001 - shown, never hidden
                traceback.print_exc()
                report.failure(f"{name}, {case_name}", f"{type(error).__name__}: {error}")
            note(f"  ({name}, {case_name}: {time.perf_counter() - begun:.0f} s)")


def import_peers() -> None:
    """Now, so that the collector need not walk their modules at everybody's expense."""
    for module in ("agents.extensions.memory", "langgraph.checkpoint.postgres.aio", "langchain_core.messages"):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def main() -> None:
    options = arguments()
    report = Report()
    report.facts = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        **{package: version(package) for package in PACKAGES},
    }
    print(", ".join(f"{name} {value}" for name, value in report.facts.items()))
    import_peers()
    for name in options.engine or ENGINES:
        measure(report, name, options)
    report.finish(options.json)


if __name__ == "__main__":
    main()
