"""Files of a gigabyte: `python -m tests.imports.big_file --gigabytes 1 --folder FOLDER [kind …]`.

Each kind is written to FOLDER, then imported into a SQLite store and exported again, each in a process of its own whose
peak memory is printed. The export must equal the file.

    threads    many small threads
    messages   one thread of a million messages
    rows       one thread that is runs, keys, labels and state documents for the most part
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import perdure
from perdure.stores.transfer.export import export_lines, import_lines, read_lines

MOST_MEMORY = 256 * 1024
"""In kilobytes, as `getrusage` counts on Linux."""

Line = dict[str, Any]
DIGEST = "0" * 32


def _row(table: str, key: list[Any], columns: Line, **body: Any) -> Line:
    return {"table": table, "key": key, "columns": columns, **body}


def _message(thread: str, seq: int, text: str = "x") -> Line:
    columns = {"id": f"m{seq}", "role": "user", "branch": 0, "visibility": "all", "at": 1}
    body = {"content": [{"type": "text", "text": text}]}
    return {"log": "messages", "partition": thread, "seq": seq, "columns": columns, "body": body}


def _end(thread: str, length: int, **head: Any) -> list[Line]:
    """The rows that depend on how many messages there are; the branch's row comes before them in a file."""
    columns = {"version": length, "branch": 0, "branches": 1, "created_at": 1, "updated_at": 1, **head}
    return [_row("thread_heads", [thread], columns)]


def _begin(thread: str, length: int) -> list[Line]:
    branch = {
        "fork_seq": 0,
        "head_seq": length,
        "length": length,
        "created_at": 1,
        "head": f"m{length}",
        "name": "main",
    }
    return [_row("threads", [thread], {"created_at": 1}, body={}), _row("branches", [thread, 0], branch)]


def threads(size: int) -> Iterator[Line]:
    """Threads of a hundred messages."""
    for number in range(size // 40_000):
        name = f"t{number:09}"
        yield from _begin(name, 100)
        yield from (_message(name, seq, "x" * 220) for seq in range(1, 101))
        yield from _end(name, 100)


def messages(size: int) -> Iterator[Line]:
    """One thread: a gigabyte has a million messages."""
    length = size // 1_000
    yield from _begin("t", length)
    yield from (_message("t", seq, "x" * 830) for seq in range(1, length + 1))
    yield from _end("t", length)


def rows(size: int) -> Iterator[Line]:
    """For every message a label, a run, a key and a state document of the run."""
    length = size // 860
    names = sorted(str(n) for n in range(1, length + 1))
    yield from _begin("t", length)
    yield from (_row("labels", ["t", f"m{n}"], {"seq": int(n), "at": 1, "label": "x"}) for n in names)
    counters = {"branch": 0, "created_at": 1, "updated_at": 1, "steps": 0, "input_tokens": 0, "output_tokens": 0}
    run = {"thread": "t", "agent_id": "a", "status": "created", **counters, "output_count": 0}
    yield from (_row("runs", [f"r{n}"], run, body={}) for n in names)
    yield from (_row("state", ["t", f"r{n}", "s"], {"schema": 1, "at": 1}, body=1) for n in names)
    for n in names:
        columns = {"version": int(n), "count": 1, "at": 1, "digest": DIGEST, "run": f"r{n}"}
        yield _row("keys", ["t", f"k{n}"], columns, body=[f"m{n}"])
    yield from (_message("t", seq) for seq in range(1, length + 1))
    yield from _end("t", length, latest_run="r1")


KINDS = {"threads": threads, "messages": messages, "rows": rows}


def lines_of(kind: str, size: int) -> Iterator[bytes]:
    """The lines of a file of about so many bytes."""
    count = closed = 0
    yield b'{"perdure":1,"schema":2,"scope":"default"}'
    for line in KINDS[kind](size):
        yield json.dumps(line, separators=(",", ":")).encode()
        count += 1
        closed += line.get("table") == "thread_heads"
    yield b'{"end":{"threads":%d,"lines":%d}}' % (closed, count)


async def _import(path: Path, url: str) -> None:
    def source() -> Iterator[bytes]:
        with path.open("rb") as opened:
            yield from read_lines(opened)

    async with perdure.open(url, durability="process", housekeeping=False) as store:
        await import_lines(store, source)


async def _export(url: str, wanted: str) -> None:
    digest = hashlib.sha256()
    async with perdure.open(url, read_only=True) as store:
        async for line in export_lines(store):
            digest.update(line + b"\n")
    if digest.hexdigest() != wanted:
        raise AssertionError("the export is not the file that was imported")


def _child(work: str, *arguments: str) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.imports.big_file", f"--{work}", *arguments], check=True, stdout=subprocess.PIPE
    )
    peak = int(done.stdout)
    print(f"  {work}: peak {peak // 1024} MB, {time.monotonic() - began:.0f} s", flush=True)
    if peak > MOST_MEMORY:
        raise AssertionError(f"{peak:,} kB of memory, the limit is {MOST_MEMORY:,}")


def _judge(kind: str, size: int, folder: Path) -> None:
    path, store = folder / f"{kind}.jsonl", folder / f"{kind}.db"
    count = 0
    with path.open("wb") as file:
        for line in lines_of(kind, size):
            file.write(line + b"\n")
            count += 1
    with path.open("rb") as file:
        wanted = hashlib.file_digest(file, "sha256").hexdigest()
    print(f"{kind}: {count:,} lines, {path.stat().st_size / 2**30:.2f} GB", flush=True)
    _child("import", str(path), f"sqlite:///{store}")
    _child("export", f"sqlite:///{store}", wanted)


def main() -> None:
    """Judge the kinds that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--import", dest="import_", nargs=2, metavar=("FILE", "URL"), help=argparse.SUPPRESS)
    parser.add_argument("--export", nargs=2, metavar=("URL", "DIGEST"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.import_ or given.export:
        work = _import(Path(given.import_[0]), given.import_[1]) if given.import_ else _export(*given.export)
        asyncio.run(work)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return
    for kind in given.kinds:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            _judge(kind, int(given.gigabytes * 2**30), Path(folder))


if __name__ == "__main__":
    main()
