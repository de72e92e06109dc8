"""Every hostile file on every engine: `python -m tests.imports.every_file [engine …]`, some minutes.

Prints how many files were refused and accepted on each engine; ends with an error if one was treated wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from tests.imports.test_hostile import judge_all
from tests.support.servers import fresh_database, server

from perdure.engines.memory import open_memory
from perdure.engines.sqlite import open_sqlite
from perdure.opening import open_engine
from perdure.stores.schema import SCHEMA

ENGINES = ("memory", "sqlite", "postgres", "mysql", "redis")


async def _try(name: str, folder: Path) -> None:
    began = time.monotonic()
    if name == "memory":
        engine = await open_memory(SCHEMA)
    elif name == "sqlite":
        engine = await open_sqlite(str(folder / "store.db"), SCHEMA, durability="process")
    else:
        engine = await open_engine(await fresh_database(server(name), "hostile"), read_only=False, durability="process")
    judge = await judge_all(engine)
    print(f"{name}: {judge.refused} refused, {judge.accepted} accepted, {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    """Try the engines that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", choices=[*ENGINES, []])
    for name in parser.parse_args().engines or ENGINES:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_try(name, Path(folder)))


if __name__ == "__main__":
    main()
