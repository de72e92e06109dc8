"""Logs whose oldest entries are removed: where they begin, and reads that would miss something.

The *base* of a partition is the seq before its first entry. No engine stores it: the newest entry always stays, so the
first entry tells it. A read asks for the entries after a seq (the cursor of whoever reads). If the base has passed that
seq, entries that the reader has not seen are gone, and skipping them in silence would be a wrong answer. `view_whole`
raises `CursorExpired` instead; `Kernel.view` goes through it, so every store gets this check. A reader that wants what
is left begins at the base (`Kernel.bases`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.errors import CursorExpired
from perdure.kernel.engine import Engine
from perdure.kernel.ops import Heads, Read, ReadOp
from perdure.kernel.schema import Schema

_RESTART = "start again from what is left, and reload what the missing entries changed"


def trimmed_logs(schema: Schema) -> frozenset[str]:
    """The logs that may be trimmed."""
    return frozenset(log.name for log in schema.logs if log.trim)


async def view_whole(engine: Engine, trimmed: frozenset[str], scope: str, reads: Sequence[ReadOp]) -> list[Any]:
    """The answers to a view; raises `CursorExpired` if one of them lacks entries that were trimmed.

    The first entry of an unfiltered read says it. For any other read the first entry of the partition is read as well,
    in the same view.
    """
    asked: list[ReadOp] = list(reads)
    firsts: dict[tuple[str, str], int] = {}
    for read in reads:
        if not isinstance(read, Read) or read.log not in trimmed or _shows_gap(read):
            continue
        if (read.log, read.partition) not in firsts:
            firsts[read.log, read.partition] = len(asked)
            asked.append(Read(read.log, read.partition, limit=1))
    answers = await engine.view(scope, asked)
    for read, answer in zip(reads, answers, strict=False):
        if isinstance(read, Read) and read.log in trimmed:
            first = firsts.get((read.log, read.partition)) if not _shows_gap(read) else None
            _refuse_expired(read, answer, answer if first is None else answers[first])
    return answers[: len(reads)]


def _shows_gap(read: Read) -> bool:
    """Whether the answer itself shows that entries before it are gone: it begins with the first after the cursor."""
    return read.upto is None and not read.desc and not read.where and read.segments is None and read.limit != 0


def _refuse_expired(read: Read, answer: Sequence[Any], oldest: Sequence[Any]) -> None:
    """`oldest` begins with the first entry that there is after the cursor, or at all."""
    base = oldest[0][0] - 1 if oldest else 0
    after, upto = _window(read)
    if base <= after or (upto is not None and upto <= after):
        return
    if read.desc and read.limit is not None and len(answer) == read.limit:
        return  # the newest ones were asked for, and they are all there
    raise CursorExpired(
        f"{read.log} {read.partition!r:.80} begins after {base}: what follows {after} was removed", hint=_RESTART
    )


def _window(read: Read) -> tuple[int, int | None]:
    """The seqs between which a read looks: its own, narrowed by the first and the last of its segments."""
    if read.segments is None:
        return read.after, read.upto
    if not read.segments:
        return read.after, read.after
    ends = [end for end in (read.upto, read.segments[-1].upto) if end is not None]
    return max(read.after, read.segments[0].after), min(ends, default=None)


async def bases_of(engine: Engine, scope: str, log: str, partitions: Sequence[str]) -> list[int]:
    """The seq before the first entry of each partition; 0 for an empty one."""
    if not partitions or not engine.schema.log[log].trim:
        return [0] * len(partitions)
    answers = await engine.view(scope, [Read(log, partition, limit=1) for partition in partitions])
    return [entries[0][0] - 1 if entries else 0 for entries in answers]


async def ends_of(engine: Engine, scope: str, log: str, partition: str) -> tuple[int, int]:
    """The base and the last seq of a partition, of one moment."""
    first, (last,) = await engine.view(scope, [Read(log, partition, limit=1), Heads(log, [partition])])
    return (first[0][0] - 1 if first else 0), last
