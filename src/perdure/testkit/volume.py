"""The fuzzer for volume: many calls from one seed, then a report of what they were and how they ended.

`python -m perdure.testkit.volume --engine sqlite --operations 100000 --seed 7`; the engine may also be any
provider, as `package.module:Class`. A difference ends the run with the line that replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence

from perdure.testkit.fuzz.fuzzer import Tally, drive
from perdure.testkit.providers import provider_named, provider_names

_READS = ("get", "find", "list", "children", "validate_parent", "range", "external", "history", "unfinished_calls")
_MORE_READS = ("load", "current", "labels", "latest", "threads")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer with the options of a command line; 0 if nothing differed."""
    parser = argparse.ArgumentParser(prog="python -m perdure.testkit.volume", description=__doc__)
    parser.add_argument("--engine", default="memory", help=f"{', '.join(provider_names())}, or package.module:Class")
    parser.add_argument("--operations", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    line = replay_line(options.engine, options.operations, seed)
    print(line, flush=True)
    began = time.perf_counter()
    try:
        tally = asyncio.run(drive(provider_named(options.engine), options.operations, seed, progress=_progress))
    except Exception:  # noqa: BLE001 - whatever it is, the line that replays it belongs below it
        traceback.print_exc()
        print(f"replay: {line}", file=sys.stderr)
        return 1
    print(report(tally, time.perf_counter() - began))
    return 0


def replay_line(engine: str, operations: int, seed: int) -> str:
    """The command that does exactly this again."""
    return f"python -m perdure.testkit.volume --engine {engine} --operations {operations} --seed {seed}"


def _progress(tally: Tally) -> None:
    print(f"  {tally.operations:,} operations, {tally.success_share:.1%} succeeded", flush=True)


def report(tally: Tally, seconds: float) -> str:
    """What was done, in a table or three."""
    writes = Counter({name: count for name, count in tally.calls.items() if not is_read(name)})
    wrote = sum(tally.succeeded[name] for name in writes) / max(1, writes.total())
    lines = [
        f"{tally.operations:,} operations in {seconds:.0f} s, no difference",
        f"  succeeded: {tally.success_share:.1%} of all, {wrote:.1%} of {writes.total():,} writes",
        "",
        "  operation                    calls   succeeded",
    ]
    for name, count in tally.calls.most_common():
        lines.append(f"  {name:26}{count:8,}{tally.succeeded[name] / count:12.0%}")
    lines += ["", "  refused, the same on both sides"]
    lines += [f"  {name:44}{count:8,}" for name, count in tally.errors.most_common()]
    lines += ["", "  happened"]
    lines += [f"  {name:44}{count:8,}" for name, count in tally.events.most_common()]
    return "\n".join(lines)


def is_read(name: str) -> bool:
    """Whether this operation only reads."""
    return name.rpartition(".")[2] in (*_READS, *_MORE_READS)


if __name__ == "__main__":
    sys.exit(main())
