"""Cut the connection after every byte of a commit's exchange, in both directions, and make the commit again by its key.

    python -m tests.faults.cuts --engine postgres --cuts 1000000

A store talks to the server through a proxy. Its connection is warm: the same commit went through it on another thread,
so the next bytes are the commit's own exchange and nothing else. The proxy lets n of them pass in one direction and
then closes both sides, for n = 0, 1, 2 … until a commit gets through uncut; `--cuts` spreads fewer of them evenly. The
caller may see a receipt, `OutcomeUnknown` or `UnavailableError`, nothing else. Then the commit is made again, by turns
over the same store and over one that was never cut: there is exactly one effect, and the receipts agree.
"""

from __future__ import annotations

import argparse
import collections
import sys
from typing import Any

from tests.faults.link import DOWN, UP, Link
from tests.faults.shell import UNCERTAIN, FaultFound, Figures, audit, bounded, insist, main, opened, parser_of, tell
from tests.support.proxy import Direction
from tests.support.servers import server

from perdure import Message, Receipt, Run, Store
from perdure.audit import verify_threads
from perdure.errors import OutcomeUnknown

THREADS: dict[Direction, str] = {UP: "cut-up", DOWN: "cut-dn"}
WARM = "cut-no"
"""Names of one length, so that every exchange has the same number of bytes."""
AUDIT_EVERY = 250
MEASURES = 8
SLACK = 64
"""How far past the measured length to look for the first commit that gets through."""


class Cuts:
    """The store behind the proxy, one beside it, and what each thread must hold by now."""

    def __init__(self, cut: Store, whole: Store, link: Link) -> None:
        self.cut = cut
        self.whole = whole
        self.link = link
        self.runs: dict[str, Run] = {}
        self.expected: dict[str, list[str]] = collections.defaultdict(list)
        self.warmed = 0
        self.figures: collections.Counter[str] = collections.Counter()

    async def prepare(self) -> None:
        """Each thread has a run, whose steps the commits are."""
        for thread in (*THREADS.values(), WARM):
            self.runs[thread] = await self.whole.runs.start(thread, "agent")

    async def measure(self) -> dict[Direction, int]:
        """The length of the exchange in each direction, once every statement has been sent before."""
        lengths = [await self._warm() for _ in range(MEASURES)]
        return {way: min(length[way] for length in lengths[MEASURES // 2 :]) for way in (UP, DOWN)}

    async def _warm(self) -> dict[Direction, int]:
        """A commit of the same shape and length on another thread, so that the connection has carried one whole;
        returns how many bytes that took. Then whatever follows it, such as a hint, gets time to pass."""
        self.warmed += 1
        before = self.link.passed()
        receipt = await insist(lambda: self._commit(self.cut, WARM, self.warmed), "warming the connection")
        after = self.link.passed()
        self.runs[WARM] = receipt.run or self.runs[WARM]
        await self.link.quiet()
        return {way: after[way] - before[way] for way in (UP, DOWN)}

    async def _commit(self, store: Store, thread: str, number: int) -> Receipt:
        name = f"{number:08d}"
        return await store.commit(
            thread, messages=[Message.user("m", id=name)], run=self.runs[thread].step(), state={"n": name}, key=name
        )

    async def cut_after(self, way: Direction, allowed: int, number: int) -> bool:
        """One cut; False if the commit got through before it."""
        thread = THREADS[way]
        await self._warm()
        first: Receipt | None = None
        unknown = False
        struck = self.link.cut_after(way, allowed)
        try:
            first = await bounded(self._commit(self.cut, thread, number), "a commit that is cut")
        except UNCERTAIN as error:
            unknown = isinstance(error, OutcomeUnknown)
        happened = await self.link.struck(struck)
        again = self.cut if number % 2 else self.whole
        second = await insist(lambda: self._commit(again, thread, number), "the commit made again")
        self._judge(thread, number, first, second, unknown)
        self.figures["cuts"] += happened
        self.figures["receipts in spite of the cut"] += happened and first is not None
        self.figures["outcome unknown"] += unknown
        self.figures["unavailable"] += first is None and not unknown
        self.figures["landed"] += first is None and second.replayed
        return happened

    def _judge(self, thread: str, number: int, first: Receipt | None, second: Receipt, unknown: bool) -> None:
        name = f"{number:08d}"
        self.expected[thread].append(name)
        where = f"{thread} {name}: first {first}, unknown {unknown}, then {second}"
        if second.message_ids != [name] or second.seqs != [len(self.expected[thread])]:
            raise FaultFound(f"not one effect at the right place: {where}")
        if first is not None and first.replayed:
            raise FaultFound(f"a commit was sent twice: {where}")
        if second.replayed != (first is not None) and not unknown:
            raise FaultFound(f"the second answer contradicts the first: {where}")
        if first is not None and _facts(first) != _facts(second):
            raise FaultFound(f"the receipts differ: {where}")
        if second.run is None or second.run.steps != len(self.expected[thread]):
            raise FaultFound(f"the run has the wrong steps: {where}")
        self.runs[thread] = second.run

    async def check(self) -> None:
        """Both threads against what they must hold."""
        for thread in THREADS.values():
            history = await self.whole.messages.history(thread)
            found = [record.message_id for record in history]
            doc = await self.whole.state.find(thread, "n")
            if found != self.expected[thread] or (doc is not None and doc.value != found[-1]):
                raise FaultFound(f"{thread}: {len(found)} stored, {len(self.expected[thread])} made, state {doc}")
        findings = await verify_threads(self.whole, [*THREADS.values(), WARM])
        if findings:
            raise FaultFound("; ".join(map(str, findings[:5])))


def _facts(receipt: Receipt) -> tuple[Any, ...]:
    return receipt.thread_id, receipt.version, receipt.message_ids, receipt.seqs, receipt.at, receipt.durable


async def walk(cuts: Cuts, lengths: dict[Direction, int], most: int) -> None:
    """Every chosen byte of one direction, then of the other."""
    step = max(1.0, sum(lengths.values()) / most)
    tell("total", round(sum(lengths.values()) / step) + 2)
    number = 0
    for way in (UP, DOWN):
        at, length = 0.0, lengths[way]
        while await cuts.cut_after(way, round(at), number := number + 1):
            tell("progress", number)
            if number % AUDIT_EVERY == 0:
                await cuts.check()
            if at > length + SLACK:
                raise FaultFound(f"{way}: {length} bytes were measured, and a cut after {at:.0f} still hits a commit")
            at = max(at, min(at + step, length)) if at < length else at + 1
        if at < length - SLACK:
            raise FaultFound(f"{way}: {length} bytes were measured, and a cut after {at:.0f} hit nothing")
        cuts.figures[f"bytes {way}"] = length
    await cuts.check()


async def run(asked: argparse.Namespace) -> Figures:
    """The program."""
    url = server(asked.engine, durable=True).url
    async with Link.to(url) as link, opened(url) as whole, opened(f"{link.url}?connections=1") as cut:
        cuts = Cuts(cut, whole, link)
        await cuts.prepare()
        lengths = await cuts.measure()
        await walk(cuts, lengths, asked.cuts)
    await audit(url)
    return dict(cuts.figures)


if __name__ == "__main__":
    sys.exit(main("tests.faults.cuts", run, parser_of(__doc__, "cuts", 60)))
