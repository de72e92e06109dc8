"""The fuzzer: makes the same random calls on the product and on the reference, and compares every answer.

`Fuzzer` holds both, two clients of the product, and the clock. A step is one call on either client; now and then it
reads and compares everything. Clients close and reopen, processes die in the middle of a call, clocks jump.
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
from perdure.testkit.fuzz import commit_calls, pending_calls, profile_calls, random_calls, read_calls
from perdure.testkit.fuzz.random_calls import Call, Move, Scene
from perdure.testkit.fuzz.store_adapter import Tokens, call, first_difference, same
from perdure.testkit.kit import Provider
from perdure.testkit.reference.store import Outcome, ReferenceStore

MOVES: dict[str, tuple[int, Move]] = {
    "create": (20, random_calls.create),
    "update": (25, random_calls.update),
    "delete": (12, random_calls.delete),
    "fork": (30, random_calls.fork),
    "checkout": (12, random_calls.checkout),
    "on_branch": (35, random_calls.on_branch),
    "label": (12, random_calls.label),
    "put_state": (30, random_calls.put_state),
    "commit": (130, commit_calls.commit),
    "guarded": (80, commit_calls.guarded),
    "newborn": (25, commit_calls.newborn),
    "with_run": (120, commit_calls.with_run),
    "start": (35, commit_calls.start),
    "rerun": (30, commit_calls.rerun),
    "decide": (30, commit_calls.decide),
    "cancel": (6, commit_calls.cancel),
    "again": (40, commit_calls.again),
    "malformed": (12, commit_calls.malformed),
    "enqueue": (40, pending_calls.enqueue),
    "requeue": (30, pending_calls.requeue),
    "freeze": (45, pending_calls.freeze),
    "put_profile": (40, profile_calls.put),
    "read_profile": (40, profile_calls.read),
    "line": (60, read_calls.line),
    "of_thread": (60, read_calls.of_thread),
    "single": (40, read_calls.single),
    "first_page": (20, read_calls.first_page),
    "next_page": (50, read_calls.next_page),
    "waiting": (6, read_calls.waiting),
}
"""Every move, with how often it is drawn."""

JUMPS = (1, 1_000, 3_600_000, 8 * 24 * 3_600_000, -1, -5_000, -3_600_000)
"""Where the clock may jump to, in milliseconds from where it is; past the life of keys and tombstones too."""


_IN_COMMIT = ("commit.before_transact", "commit.after_transact")
DEATHS = {
    **dict.fromkeys("commit runs.start runs.create runs.rerun runs.cancel runs.decide".split(), _IN_COMMIT),
    **dict.fromkeys("pending.freeze branches.fork".split(), _IN_COMMIT),
    "threads.delete": ("delete.after_tombstone", "delete.between_erasures"),
}
"""Where a process may die in a call, by the call's name."""

_A_SECOND = 1_000


class Difference(Exception):
    """The product and the reference gave different answers."""


class _Died(BaseException):
    """Raised at a failpoint: this process is gone."""


def _die(_: str) -> None:
    raise _Died


@dataclass
class Tally:
    """What the fuzzer did: calls by name, how they ended, and what happened to the clients."""

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


class Fuzzer:
    """The product and the reference in lockstep."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.clock = ManualClock()
        self.reference = ReferenceStore(self.clock.now)
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
        """Close the clients and delete the data."""
        await self._close_clients()
        await self.provider.stop()

    async def _open_clients(self) -> None:
        for _ in range(2):
            store = await self.provider.open(self.clock)
            await sweep(store._context)  # noqa: SLF001 - what housekeeping does, at a moment that the reference knows
            self._clients.append(store)
            self.reference.reopen()

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
        self.reference.jump(ms)

    async def step(self, asked: Call) -> Outcome:
        """One call on both sides; raises `Difference` unless the answers are the same."""
        for look in self._unknown(asked):
            await self._compare(look)
        answer = await self._ask(asked)
        if answer is None:
            return await self._after_death(asked)
        outcome = self._judge(asked, answer)
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
        """The product's answer, or None if it died in the call."""
        if asked.crash is not None:
            failpoints.arm(asked.crash, _die)
        try:
            return Outcome(*await call(self._clients[asked.client], self.tokens, asked.name, asked.arguments))
        except _Died:
            return None
        finally:
            failpoints.disarm()

    def _judge(self, asked: Call, actual: Outcome) -> Outcome:
        expected = self.reference.apply(asked.name, asked.arguments)
        if actual.error != expected.error or not same(self.tokens, expected.value, actual.value):
            raise Difference(_describe(asked, expected, actual))
        self.tokens.settle_runs()
        return expected

    def _unknown(self, asked: Call) -> list[Call]:
        """What must be looked at before this call can be made: a rev or a made-up name in it that was read before."""
        where: dict[str, Any] = {
            name: asked.arguments[name] for name in ("thread_id", "run_id") if name in asked.arguments
        }
        looks = [
            Call("state.find", {**where, "name": name})
            for name, tick in asked.arguments.get("expect_state", {}).items()
            if not self.tokens.knows(tick)
        ]
        run = asked.arguments.get("run") or {}
        record = run.get("same") or run.get("change")
        if record is not None and not self.tokens.knows_run(record):
            looks.append(Call("runs.get", {"run_id": record["id"]}))
        if not self.tokens.knows_name(asked.arguments.get("branch")):
            looks.append(Call("branches.list", {"thread_id": asked.arguments["thread_id"]}))
        if not self.tokens.knows(asked.arguments.get("if_rev")):
            if "owner" in asked.arguments:
                return [Call("profiles.find", {name: asked.arguments[name] for name in ("owner", "key")})]
            name = asked.arguments.get("name")
            looks.append(Call("threads.find", where) if name is None else Call("state.find", {**where, "name": name}))
        return looks

    async def _after_death(self, asked: Call) -> Outcome:
        """Before its transaction a call that died did nothing; after it, everything. The caller gets no answer."""
        self.tally.events[f"died at {asked.crash}"] += 1
        if asked.crash != "commit.before_transact":
            half = {"crashed": True} if asked.name == "threads.delete" else {}
            expected = self.reference.apply(asked.name, {**asked.arguments, **half})
            if expected.error is not None:
                raise Difference(_describe(asked, expected, Outcome("written")))
        await self.crash()
        return Outcome()

    async def compare_everything(self) -> None:
        """Look at all there is on both sides, lists to their end, through both clients in turn."""
        self.tally.events["looked at everything"] += 1
        for turn, asked in enumerate(read_calls.everything(self.reference.world)):
            asked.client = turn % len(self._clients)
            outcome = await self._compare(asked)
            while isinstance(outcome.value, dict) and outcome.value.get("next_cursor") is not None:
                asked.arguments = {**asked.arguments, "cursor": outcome.value["next_cursor"]}
                outcome = await self._compare(asked)


def _describe(asked: Call, expected: Outcome, actual: Outcome) -> str:
    where, ours, theirs = first_difference(expected.error or expected.value, actual.error or actual.value)
    return "\n".join(
        [
            f"the product and the reference differ on {asked.name} (client {asked.client})",
            f"  arguments: {json.dumps(asked.arguments, ensure_ascii=False)}",
            f"  at:        {where or 'the answer'}",
            f"  reference: {ours!r:.2000}",
            f"  product:   {theirs!r:.2000}",
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
    """The fast driver: makes random calls from a seed. Raises `Difference` at the first answer that differs."""
    fuzzer = Fuzzer(provider)
    random = Random(seed)
    scene = Scene(fuzzer.reference.world, random)
    names, weights = list(MOVES), [weight for weight, _ in MOVES.values()]
    next_report = 10_000
    await fuzzer.start()
    try:
        while fuzzer.tally.operations < operations:
            await one_move(fuzzer, scene, random.choices(names, weights)[0])
            if random.random() < 1 / look_every:
                await fuzzer.compare_everything()
            if random.random() < 1 / reopen_every:
                await random.choice([fuzzer.reopen, fuzzer.crash])()
            if random.random() < 0.002:
                fuzzer.jump(random.choice(JUMPS))
            if progress is not None and fuzzer.tally.operations >= next_report:
                progress(fuzzer.tally)
                next_report += 10_000
        await fuzzer.crash()
    finally:
        await fuzzer.stop()
    return fuzzer.tally


async def one_move(fuzzer: Fuzzer, scene: Scene, name: str) -> None:
    """Draw one move and make it, on either client, a moment later than the one before."""
    drawn: Any = MOVES[name][1](scene)
    if drawn is None:
        return
    fuzzer.jump(scene.random.randrange(3))
    drawn.client = scene.random.randrange(2)
    points = DEATHS.get(drawn.name)
    if points is not None and scene.chance(0.05 if drawn.name == "threads.delete" else 0.003):
        drawn.crash = scene.pick(points)
    outcome = await fuzzer.step(drawn)
    if outcome.error is None:
        scene.learn(drawn, outcome.value)
