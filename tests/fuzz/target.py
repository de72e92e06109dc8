"""What a fuzzer is: cases, and a check that every one of them must pass.

A check calls the product and compares. What the product refuses with an error of its own is an outcome; an invariant
that does not hold raises `Broken`; any other exception is a foreign one, which is a failure by itself. A failure has a
`kind` that does not change with the case, so that a fuzzer reports each defect once and goes on to find the next.
"""

from __future__ import annotations

import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy
from tests.fuzz.spelling import read, spell

from perdure.errors import PerdureError

CORPUS = Path(__file__).parent / "corpus"
HANG_SECONDS = 60
"""How long one case may take. No limit for speed: it ends a loop that has no end."""

Check = Callable[[Any], str]


class Broken(Exception):
    """An invariant does not hold. `kind` names it, `told` says what was seen."""

    def __init__(self, kind: str, told: str = "") -> None:
        super().__init__(f"{kind}: {told}" if told else kind)
        self.kind = kind


class Hangs(BaseException):
    """A case has not ended in time. No `Exception`, so that nothing on the way takes it for a refusal."""


@dataclass(frozen=True)
class Target:
    """One part of the product under fuzzing."""

    name: str
    about: str
    cases: Callable[[Sequence[Any]], SearchStrategy[Any]]
    """A strategy for cases, given seeds to begin from."""
    check: Check
    """Raises if a case breaks something; else says in a few words how it went."""
    short: int
    """How many cases `make test` tries: about two seconds of them."""


@dataclass(frozen=True)
class Failure:
    """What went wrong with a case."""

    target: str
    case: Any
    kind: str
    told: str

    def lines(self) -> str:
        """For people: what happened, and the one line that replays it."""
        return f"{self.target}: {self.kind}\n  {self.told[:600]}\n  replay: {replay_line(self.target, self.case)}"


def replay_line(target: str, case: Any) -> str:
    """The command that runs one case again."""
    spelled = spell(case).replace("'", "\\u0027")
    return f"python -m tests.fuzz --target {target} --replay '{spelled}'"


def corpus(target: str) -> dict[str, Any]:
    """The cases in a target's folder by their file's name."""
    files = sorted((CORPUS / target).glob("*.json"))
    return {f"{target}/{file.stem}": read(file.read_text(encoding="utf-8")) for file in files}


def judge(target: Target, case: Any, *, seconds: float = HANG_SECONDS) -> Failure | str:
    """Run one case: the outcome, or what went wrong."""
    try:
        with _no_hang(seconds):
            return target.check(case)
    except Broken as broken:
        return Failure(target.name, case, broken.kind, str(broken))
    except Hangs:
        return Failure(target.name, case, "hang", f"no end within {seconds:g} s")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not ours
        return Failure(target.name, case, _kind(error), f"{type(error).__name__}: {error}")


def refusal(error: PerdureError) -> str:
    """A refusal as an outcome: its words without what they quote."""
    words = re.sub(r"'[^']*'|\"[^\"]*\"|\[\d+\]|\d[\d,]*", "…", error.message)
    return f"{type(error).__name__}: {words[:120]}"


def _kind(error: Exception) -> str:
    name = type(error).__name__
    if isinstance(error, RecursionError):  # where the stack ended is chance
        return f"foreign {name}"
    frames = traceback.extract_tb(error.__traceback__)
    # Since Python 3.12 a comprehension is no frame of its own.
    ours = [frame for frame in frames if "/perdure/" in frame.filename and not frame.name.startswith("<")]
    where = f"{ours[-1].filename.rpartition('/perdure/')[2]}:{ours[-1].name}" if ours else "the check"
    return f"foreign {name} in {where}"


@contextmanager
def _no_hang(seconds: float) -> Iterator[None]:
    """Raise `Hangs` in a case that does not end; a regular expression too looks at signals now and then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
