"""The machine: the product and the reference model do the same things, and every answer is compared.

`Machine` holds both, two clients of the product, and the clock. A step is one call on either client; every so often all
there is gets looked at on both sides. Clients come and go, processes die in the middle of a call, clocks jump.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from perdure import failpoints
from perdure.clock import ManualClock
from perdure.stores.cleanup import sweep
from perdure.stores.store import Store
from perdure.testkit.fuzz import commits, moves, queue, reads
from perdure.testkit.fuzz.moves import Call, Move, Scene
from perdure.testkit.fuzz.product import Tokens, call, first_difference, same
from perdure.testkit.kit import Provider
from perdure.testkit.reference.model import Model, Outcome

MOVES: dict[str, tuple[int, Move]] = {
    "create": (20, moves.create),
    "update": (25, moves.update),
    "delete": (12, moves.delete),
    "fork": (30, moves.fork),
    "on_branch": (35, moves.on_branch),
    "label": (12, moves.label),
    "put_state": (30, moves.put_state),
    "commit": (130, commits.commit),
    "guarded": (80, commits.guarded),
    "newborn": (25, commits.newborn),
    "with_run": (120, commits.with_run),
    "start": (35, commits.start),
    "again": (40, commits.again),
    "malformed": (12, commits.malformed),
    "enqueue": (40, queue.enqueue),
    "requeue": (30, queue.requeue),
    "freeze": (45, queue.freeze),
    "line": (60, reads.line),
    "of_thread": (60, reads.of_thread),
    "single": (40, reads.single),
    "first_page": (20, reads.first_page),
    "next_page": (50, reads.next_page),
    "waiting": (6, reads.waiting),
}
"""Every move, with how often it is drawn."""

JUMPS = (1, 1_000, 3_600_000, 8 * 24 * 3_600_000, -1, -5_000, -3_600_000)
"""Where the clock may jump to, in milliseconds from where it is; past the life of keys and tombstones too."""


_IN_COMMIT = ("commit.before_transact", "commit.after_transact")
DEATHS = {
    **dict.fromkeys(("commit", "runs.start", "runs.create", "pending.freeze"), _IN_COMMIT),
    "threads.delete": ("delete.after_tombstone", "delete.between_erasures"),
}
"""Where a process may die in a call, by the call's name."""

_A_SECOND = 1_000


class Difference(Exception):
    """The product and the model did not agree."""


class _Died(BaseException):
    """Raised at a failpoint: this process is gone."""


def _die(_: str) -> None:
    raise _Died


@dataclass
class Tally:
    """What a run of the machine did: calls by name, how they ended, and what happened to the clients."""

    calls: Counter[str] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)

    @property
    def operations(self) -> int:
        """How many calls were made and compared, full looks not counted."""
        return self.calls.total()

    @property
    def success_share(self) -> float:
        """The part of the calls that succeeded."""
        return self.succeeded.total() / max(1, self.operations)


class Machine:
    """A product and a model in lockstep."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.clock = ManualClock()
        self.model = Model(self.clock.now)
        self.tokens = Tokens()
        self.tally = Tally()
        self._clients: list[Store] = []

    @property
    def durable(self) -> bool:
        """Does the data outlive its clients?"""
        return "durable" in self.provider.features

    async def start(self) -> None:
        """Fresh data and two clients."""
        await self.provider.start(self.clock)
        await self._open_clients()

    async def stop(self) -> None:
        """Close the clients and throw the data away."""
        await self._close_clients()
        await self.provider.stop()

    async def _open_clients(self) -> None:
        for _ in range(2):
            store = await self.provider.open(self.clock)
            await sweep(store._core)  # noqa: SLF001 - what housekeeping does, at a moment that the model knows
            self._clients.append(store)
            self.model.reopen()

    async def _close_clients(self) -> None:
        for store in self._clients:
            await store.close()
        self._clients.clear()

    async def reopen(self) -> None:
        """Close every client, open them again, and look at everything."""
        self.tally.events["reopened"] += 1
        await self._close_clients()
        await self._open_clients()
        await self.compare_everything()

    async def crash(self) -> None:
        """Lose every client without a close, open new ones, and look at everything."""
        self.tally.events["crashed"] += 1
        if self.durable:
            await self.provider.crash()
        await self._close_clients()
        await self._open_clients()
        await self.compare_everything()

    def jump(self, ms: int) -> None:
        """Move both clocks."""
        if abs(ms) >= _A_SECOND:
            self.tally.events["clock jumped " + ("on" if ms > 0 else "back")] += 1
        self.clock.advance(ms)
        self.model.jump(ms)

    async def step(self, asked: Call) -> Outcome:
        """One call on both sides; raises `Difference` unless the answers are the same."""
        for look in self._unknown_revs(asked):
            await self._compare(look)
        found = await self._ask(asked)
        if found is None:
            return await self._after_death(asked)
        outcome = self._judge(asked, found)
        self.tally.calls[asked.name] += 1
        self.tally.events[f"answered through client {asked.client}"] += 1
        if isinstance(outcome.value, dict) and outcome.value.get("replayed"):
            self.tally.events["replayed by key"] += 1
        if outcome.error is None:
            self.tally.succeeded[asked.name] += 1
        else:
            self.tally.errors[f"{asked.name} {outcome.error}"] += 1
        return outcome

    async def _compare(self, asked: Call) -> Outcome:
        return self._judge(asked, await self._ask(asked) or Outcome())

    async def _ask(self, asked: Call) -> Outcome | None:
        """The product's answer, or None if it died on the way."""
        if asked.crash is not None:
            failpoints.arm(asked.crash, _die)
        try:
            return Outcome(*await call(self._clients[asked.client], self.tokens, asked.name, asked.arguments))
        except _Died:
            return None
        finally:
            failpoints.disarm()

    def _judge(self, asked: Call, found: Outcome) -> Outcome:
        expected = self.model.apply(asked.name, asked.arguments)
        if found.error != expected.error or not same(self.tokens, expected.value, found.value):
            raise Difference(_describe(asked, expected, found))
        self.tokens.settle_runs()
        return expected

    def _unknown_revs(self, asked: Call) -> list[Call]:
        """What must be looked at before this call can be made: a guard names a rev that somebody has read."""
        where: dict[str, Any] = {
            name: asked.arguments[name] for name in ("thread_id", "run_id") if name in asked.arguments
        }
        looks = [
            Call("state.find", {**where, "name": name})
            for name, tick in asked.arguments.get("expect_state", {}).items()
            if not self.tokens.knows(tick)
        ]
        if not self.tokens.knows(asked.arguments.get("if_rev")):
            name = asked.arguments.get("name")
            looks.append(Call("threads.find", where) if name is None else Call("state.find", {**where, "name": name}))
        return looks

    async def _after_death(self, asked: Call) -> Outcome:
        """Before its transaction a call that died did nothing; after it, everything. Nobody got an answer."""
        self.tally.events[f"died at {asked.crash}"] += 1
        if asked.crash != "commit.before_transact":
            half = {"crashed": True} if asked.name == "threads.delete" else {}
            expected = self.model.apply(asked.name, {**asked.arguments, **half})
            if expected.error is not None:
                raise Difference(_describe(asked, expected, Outcome("written")))
        await self.crash()
        return Outcome()

    async def compare_everything(self) -> None:
        """Look at all there is on both sides, lists to their end, through both clients in turn."""
        self.tally.events["looked at everything"] += 1
        for turn, asked in enumerate(reads.everything(self.model.world)):
            asked.client = turn % len(self._clients)
            outcome = await self._compare(asked)
            while isinstance(outcome.value, dict) and outcome.value.get("next_cursor") is not None:
                asked.arguments = {**asked.arguments, "cursor": outcome.value["next_cursor"]}
                outcome = await self._compare(asked)


def _describe(asked: Call, expected: Outcome, found: Outcome) -> str:
    where, ours, theirs = first_difference(expected.error or expected.value, found.error or found.value)
    return "\n".join(
        [
            f"the product and the model differ on {asked.name} (client {asked.client})",
            f"  arguments: {json.dumps(asked.arguments, ensure_ascii=False)}",
            f"  at:      {where or 'the answer'}",
            f"  model:   {ours!r:.2000}",
            f"  product: {theirs!r:.2000}",
        ]
    )


async def drive(
    provider: Provider,
    operations: int,
    seed: int,
    *,
    look_every: int = 500,
    reopen_every: int = 2_000,
    progress: Callable[[Tally], None] | None = None,
) -> Tally:
    """The fast driver: so many calls drawn from a seed. Raises `Difference` where the product leaves the model."""
    machine = Machine(provider)
    random = Random(seed)
    scene = Scene(machine.model.world, random)
    names, weights = list(MOVES), [weight for weight, _ in MOVES.values()]
    told = 10_000
    await machine.start()
    try:
        while machine.tally.operations < operations:
            await one_move(machine, scene, random.choices(names, weights)[0])
            if random.random() < 1 / look_every:
                await machine.compare_everything()
            if random.random() < 1 / reopen_every:
                await random.choice([machine.reopen, machine.crash])()
            if random.random() < 0.002:
                machine.jump(random.choice(JUMPS))
            if progress is not None and machine.tally.operations >= told:
                progress(machine.tally)
                told += 10_000
        await machine.crash()
    finally:
        await machine.stop()
    return machine.tally


async def one_move(machine: Machine, scene: Scene, name: str) -> None:
    """Draw one move and make it, on either client, a moment later than the one before."""
    drawn: Any = MOVES[name][1](scene)
    if drawn is None:
        return
    machine.jump(scene.random.randrange(3))
    drawn.client = scene.random.randrange(2)
    points = DEATHS.get(drawn.name)
    if points is not None and scene.chance(0.05 if drawn.name == "threads.delete" else 0.003):
        drawn.crash = scene.pick(points)
    outcome = await machine.step(drawn)
    if outcome.error is None:
        scene.learn(drawn, outcome.value)
