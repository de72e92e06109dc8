"""A store reached through links, after its writer was killed: every reader sees the commits that are still in the log.

    python -m tests.crash.links

A process commits and dies, so that its last commits are only in the log. Through a symbolic link to the file, or to
its directory, a read-only store, a copy and the auditor must find all of them; a hard link, where no
log can be found, is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.crash.forking import in_child

import perdure
from perdure import Message, UnavailableError
from perdure.audit.verify import verify_engine
from perdure.copy import copy_store

COMMITS = 50
DEADLINE = 120.0


class CommitsMissed(Exception):
    """A reader did not see what was acknowledged, or saw it where it could not know."""


async def commit_and_die(path: str) -> int:
    """Leave all but the first commit in the log alone."""
    async with perdure.open(path) as first:
        await first.commit("t", messages=[Message.user("x")])
    store = await perdure.open(path)
    for _ in range(COMMITS - 1):
        await store.commit("t", messages=[Message.user("x")])
    return COMMITS


async def version(path: str) -> int:
    """What a read-only store sees."""
    async with perdure.open(path, read_only=True) as store:
        findings = await verify_engine(store.engine)
        if findings:
            raise CommitsMissed(f"{path}: {findings[0]}")
        return (await store.threads.get("t")).version


def expect(what: str, seen: int) -> None:
    """All commits, or it is an error."""
    if seen != COMMITS:
        raise CommitsMissed(f"{what}: {seen} of {COMMITS} commits")


def refuses(path: str, *, read_only: bool) -> None:
    """A file with two names is opened by nobody."""

    async def opened() -> None:
        async with perdure.open(path, read_only=read_only):
            return

    try:
        asyncio.run(opened())
    except UnavailableError as error:
        if "hard links" in str(error):
            return
        raise
    raise CommitsMissed(f"{path} has two names and was opened, read_only={read_only}")


def run(folder: Path) -> dict[str, int]:
    """Everything; returns the figures."""
    real = folder / "data"
    real.mkdir()
    path, link = real / "agents.db", folder / "link.db"
    in_child(lambda: commit_and_die(str(path)), DEADLINE)
    if not Path(f"{path}-wal").exists():
        raise CommitsMissed("the killed writer left no log")
    link.symlink_to(path)
    (folder / "current").symlink_to(real, target_is_directory=True)
    for name in (link, folder / "current" / "agents.db"):
        expect(f"read-only through {name.name}", asyncio.run(version(str(name))))
        target = folder / f"copy-{name.parent.name}.db"
        asyncio.run(copy_store(str(name), str(target)))
        expect(f"a copy through {name.name}", asyncio.run(version(str(target))))
    other = real / "other.db"
    os.link(path, other)
    for name in (path, other, link):
        refuses(str(name), read_only=True)
        refuses(str(name), read_only=False)
    other.unlink()
    expect("with one name again", asyncio.run(version(str(link))))
    return {"commits": COMMITS, "refusals": 6}


def main() -> int:
    """Run from the command line."""
    with tempfile.TemporaryDirectory(prefix="perdure-links-") as folder:
        try:
            figures = run(Path(folder))
        except CommitsMissed as error:
            print(f"CommitsMissed: {error}", file=sys.stderr)
            return 1
    print(json.dumps({"figures": figures}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
