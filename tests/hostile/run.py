"""Every hostile input through the library and the command line, on every engine.

    python -m tests.hostile.run [--engine sqlite …] [--sample 200] [--kind url …]

A URL names its engine itself, so URLs are tried once, with the first engine; on every server come some that reach it.
Ends with a table: per engine and kind how many inputs the library took and refused, and how the commands ended.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.command_line import CommandLine
from tests.hostile.inputs import CANARY, COUNTS, Input, hostile_inputs, reachable_urls, sample
from tests.hostile.known import LEAKS
from tests.hostile.library import Broken, Library
from tests.support.providers import BUILTIN, ServerProvider, SqliteProvider, provider_named
from tests.support.servers import fresh_database, server

from perdure.clock import system_clock
from perdure.testkit.kit import Provider


@dataclass
class Tally:
    """What happened on one engine."""

    engine: str
    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    ends: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    leaked: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def fail(self, where: str, item: Input | None, problem: Exception) -> None:
        """Note a failure, unless it is a known leak."""
        told = f"{type(problem).__name__}: {problem}" if not isinstance(problem, Broken) else str(problem)
        if item is not None and item.kind == "url" and "the secret" in told:
            self.leaked.add(item.trick)
            if item.trick in LEAKS:
                return
        named = "at the end" if item is None else f"{item.kind} ({item.trick}) {item.text!r:.80}"
        self.failures.append(f"{self.engine}, {where}, {named}: {told}")


def run_engine(engine: str, inputs: Sequence[Input]) -> Tally:
    """All inputs on one engine: the library first, then the command line on what the library left."""
    tally = Tally(engine)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-hostile-") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        provider = provider_named(engine)
        taken = asyncio.run(_library(provider, inputs, folder / "files", tally))
        try:
            _command_line(provider, inputs, folder / "files", taken, tally)
        finally:
            asyncio.run(provider.stop())
    tally.seconds = time.monotonic() - begun
    return tally


async def _library(provider: Provider, inputs: Sequence[Input], folder: Path, tally: Tally) -> set[int]:
    await provider.start(system_clock)
    store = await provider.open(system_clock)
    library, taken = Library(store, folder), set[int]()
    try:
        await library.start()
        for number, item in enumerate(inputs):
            try:
                if await library.attempt(item, number):
                    taken.add(number)
            except Exception as problem:  # noqa: BLE001 - all of them are wanted in the table
                tally.fail("library", item, problem)
            (tally.taken if number in taken else tally.refused)[item.kind] += 1
        try:
            await library.finish()
        except Exception as problem:  # noqa: BLE001
            tally.fail("library", None, problem)
    finally:
        await store.close()
    return taken


def _command_line(provider: Provider, inputs: Sequence[Input], folder: Path, taken: set[int], tally: Tally) -> None:
    url = _url(provider)
    shell = CommandLine(url, folder)
    if isinstance(provider, ServerProvider):
        for item in reachable_urls(asyncio.run(fresh_database(server(provider.name), "hostile"))):
            try:
                tally.ends.update(("url", code) for code in shell.opened(item))
            except Exception as problem:  # noqa: BLE001
                tally.fail("command line", item, problem)
    for number, item in enumerate(inputs):
        try:
            codes = shell.attempt(item, number, taken=number in taken)
            tally.ends.update((item.kind, code) for code in codes)
        except Exception as problem:  # noqa: BLE001
            tally.fail("command line", item, problem)
    if url != "memory://":
        try:
            shell.about_all()
        except Exception as problem:  # noqa: BLE001
            tally.fail("command line", None, problem)


def _url(provider: Provider) -> str:
    if isinstance(provider, SqliteProvider):
        return f"sqlite:///{provider.path}"
    if isinstance(provider, ServerProvider):
        # The server of the tests takes any password; so a secret is there to be shown in every command.
        return provider.url.replace("postgres@", f"postgres:{CANARY}@")
    return "memory://"


def strict_leaks(tallies: Sequence[Tally]) -> list[str]:
    """Known leaks that are none any more."""
    leaked = set().union(*(tally.leaked for tally in tallies))
    return [f"{form!r} does not leak any more: take it out of LEAKS" for form in sorted(LEAKS - leaked)]


def table(tallies: Sequence[Tally]) -> str:
    """Kinds down, engines across: taken/refused by the library, exit codes 0/1/2 of the commands."""
    head = ["inputs", *[tally.engine for tally in tallies]]
    rows = [head]
    for kind in COUNTS:
        row = [kind]
        for tally in tallies:
            ends = "/".join(str(tally.ends[kind, code]) for code in (0, 1, 2))
            row.append(f"{tally.taken[kind]}+{tally.refused[kind]} {ends}")
        rows.append(row)
    rows.append(["failures", *[str(len(tally.failures)) for tally in tallies]])
    rows.append(["seconds", *[f"{tally.seconds:.0f}" for tally in tallies]])
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "library: taken+refused; commands, on a terminal and with --json: exit codes 0/1/2"])


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", nargs="*", default=list(BUILTIN), choices=list(BUILTIN))
    parser.add_argument("--kind", nargs="*", default=list(COUNTS), choices=list(COUNTS))
    parser.add_argument("--sample", type=int, default=0, help="so many inputs instead of all")
    asked = parser.parse_args()
    chosen = sample(asked.sample) if asked.sample else hostile_inputs()
    inputs = [item for item in chosen if item.kind in asked.kind]
    elsewhere = [item for item in inputs if item.kind != "url"]
    tallies = [run_engine(engine, elsewhere if number else inputs) for number, engine in enumerate(asked.engine)]
    failures = [failure for tally in tallies for failure in tally.failures]
    if not asked.sample and "url" in asked.kind and len(asked.engine) == len(BUILTIN):
        failures += strict_leaks(tallies)
    print(table(tallies))
    leaked = sorted(set().union(*(tally.leaked for tally in tallies)))
    print(f"{len(inputs)} inputs, {len({item.text for item in inputs})} different texts, {len(failures)} failures")
    if leaked:
        print(f"forms of URLs whose secret was shown: {', '.join(leaked)}")
    for failure in failures[:200]:
        print(f"- {failure}".encode(errors="backslashreplace").decode())
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
