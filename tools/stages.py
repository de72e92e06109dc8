"""Run named commands one after another and close with a table of what each of them said.

`make check` and `make test` are lists of such stages. All of them run even after one has failed, so that one
run tells everything; the exit status is 0 only if all were green. Output streams through as it comes, and the
last line of a stage (for pytest its counts) is repeated in the table, because that is what people look for.

    tools/stages.py NAME 'COMMAND' [NAME 'COMMAND' ...]
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Outcome:
    name: str
    status: int
    seconds: float
    last_line: str

    def line(self) -> str:
        verdict = "ok  " if self.status == 0 else "FAIL"
        return f"  {verdict} {self.name:<12} {self.seconds:6.1f} s  {self.last_line}"


def run_stage(name: str, command: str) -> Outcome:
    print(f"\n== {name}: {command}", flush=True)
    started = time.monotonic()
    last_line = ""
    with subprocess.Popen(
        shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as process:
        for line in process.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            last_line = COLOUR.sub("", line).strip("= \n") or last_line
    return Outcome(name, process.returncode, time.monotonic() - started, last_line)


def main(arguments: list[str]) -> int:
    if not arguments or len(arguments) % 2:
        print(__doc__, file=sys.stderr)
        return 2
    # A terminal that cannot show a sign of the output must not end the run.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    outcomes = [run_stage(name, command) for name, command in zip(arguments[::2], arguments[1::2], strict=True)]
    print("\n== summary")
    for outcome in outcomes:
        print(outcome.line())
    failed = [outcome.name for outcome in outcomes if outcome.status != 0]
    print(f"\nFAILED: {', '.join(failed)}" if failed else "\nall green")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
