"""Run the recorded workload and report, or write the golden dumps anew.

    python -m tests.recorded [--engine sqlite]    compare with the golden dumps
    python -m tests.recorded --write              write them, from every engine, if all of them agree
    python -m tests.recorded --write-file         write the SQLite file anew that an older build left (tests/fixtures)
    python -m tests.recorded --counts             how much the golden dumps cover

Write them only when a change of behaviour is intended: they are the proof that there was none. The file proves that
what an older build wrote is still read: write it only to follow a change of the workload, with the older build's code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.recorded import golden
from tests.recorded.play import Played, play
from tests.recorded.support import ENGINES, engine_url, servers

FIXTURE = Path(__file__).parents[1] / "fixtures" / "recorded.db"


async def _played(engine: str, folder: Path) -> Played:
    return await play(await engine_url(engine, folder), folder)


def main() -> int:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", action="append", choices=ENGINES, help="all of them if left out")
    parser.add_argument("--write", action="store_true", help="write the golden dumps anew")
    parser.add_argument("--write-file", action="store_true", help="write the SQLite file of an older build anew")
    parser.add_argument("--counts", action="store_true", help="count steps, errors and texts of the golden dumps")
    options = parser.parse_args()
    if options.counts:
        return _count()
    try:
        if options.write_file:
            return _write_file()
        return _run(ENGINES if options.write else options.engine or ENGINES, write=options.write)
    finally:
        servers().stop_all()


def _run(engines: tuple[str, ...] | list[str], *, write: bool) -> int:
    played: dict[str, Played] = {}
    for engine in engines:
        with tempfile.TemporaryDirectory(prefix="perdure-recorded-") as folder:
            asyncio.run(_warm(engine, Path(folder)))
            began = time.monotonic()
            played[engine] = asyncio.run(_played(engine, Path(folder)))
            print(f"{engine}: {len(played[engine].outcomes)} steps in {time.monotonic() - began:.1f} s")
    return _write(played) if write else _compare(played)


def _write_file() -> int:
    with tempfile.TemporaryDirectory(prefix="perdure-recorded-") as folder:
        asyncio.run(_played("sqlite", Path(folder)))
        shutil.copyfile(Path(folder, "recorded.db"), FIXTURE)
    print(f"{FIXTURE.name}: {FIXTURE.stat().st_size:,} bytes")
    return 0


async def _warm(engine: str, folder: Path) -> None:
    """Start the server, so that its start is no part of the measure."""
    await engine_url(engine, folder)


def _compare(played: dict[str, Played]) -> int:
    bad = 0
    for engine, run in played.items():
        expected, unused = golden.with_changed_texts(golden.read("outcomes"), golden.changed_texts())
        problems = [golden.differences(expected, run.outcomes)]
        problems += [golden.differences(golden.read("contents"), run.contents), *run.findings]
        problems += [f"changed_texts.toml: no recorded error has {text!r}" for text in unused]
        for problem in filter(None, problems):
            bad += 1
            print(f"{engine}: {problem}")
    return 1 if bad else 0


def _write(played: dict[str, Played]) -> int:
    first = played["memory"]
    for engine, run in played.items():
        for name in ("outcomes", "contents"):
            problem = golden.differences(getattr(first, name), getattr(run, name))
            if problem or run.findings:
                print(f"{engine} differs from memory in its {name}, so nothing was written: {problem} {run.findings}")
                return 1
    golden.write("outcomes", first.outcomes)
    golden.write("contents", first.contents)
    facts = {engine: run.facts for engine, run in played.items()}
    (golden.FOLDER / "engines.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return _count()


def _count() -> int:
    lines = golden.read("outcomes")
    errors = [line["error"] for line in lines if "error" in line]
    texts = {(error["class"], error["message"], error.get("hint")) for error in errors}
    classes = Counter(error["class"] for error in errors)
    print(f"{len(lines)} steps, {len(errors)} refusals, {len(texts)} distinct texts")
    print(f"{len(classes)} classes: {dict(classes)}")
    print(f"{len({line['step'].split()[0] for line in lines})} calls, {len(golden.read('contents'))} lines of contents")
    return 0


if __name__ == "__main__":
    sys.exit(main())
