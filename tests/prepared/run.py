"""Every prepared store, once: `python -m tests.prepared.run [sqlite] [redis]`. A sample of them runs in `make test`."""

from __future__ import annotations

import faulthandler
import sys
import tempfile
import time
from pathlib import Path

from tests.prepared.examine import Stores, Verdict, check_sound, examine
from tests.prepared.excuses import EXCUSES, LEAKS
from tests.prepared.redis_stores import RedisStores
from tests.prepared.sqlite_stores import SqliteStores

ENGINES = ("sqlite", "redis")
_HANGS_AFTER = 900


def opened(engine: str, folder: Path) -> Stores:
    """The prepared stores of an engine."""
    return SqliteStores(folder) if engine == "sqlite" else RedisStores()


def main(engines: list[str]) -> int:
    """Examine all, print the figures, and say what is wrong."""
    faulthandler.dump_traceback_later(_HANGS_AFTER, exit=True)
    problems: list[str] = []
    for engine in engines or ENGINES:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            stores = opened(engine, Path(folder))
            try:
                check_sound(stores)
                verdict = examine(stores, stores.damages())
            finally:
                stores.close()
        problems += verdict.problems + idle(engine, verdict)
        print(
            f"{engine}: {verdict.stores} prepared stores, {verdict.noticed} noticed by the auditor, "
            f"{verdict.refused} refused by a call, {len(verdict.problems)} problems, {time.monotonic() - began:.0f} s"
        )
    print("\n".join(problems))
    return 1 if problems else 0


def idle(engine: str, verdict: Verdict) -> list[str]:
    """Excuses that excuse nothing."""
    due = [excuse for excuse in (*EXCUSES, *LEAKS) if not excuse.engines or engine in excuse.engines.split()]
    return [f"{engine}: excuses nothing: {excuse}" for excuse in due if excuse not in verdict.used]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
