"""The machine as Hypothesis drives it: the same moves, chosen and shrunk until the shortest story that differs is left.

`lockstep(provider)` is a `RuleBasedStateMachine`; its `TestCase` is a test. A story begins with two threads and a run;
then come moves, and now and then a clock that jumps, clients that close and reopen, a process that dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from perdure.testkit.fuzz.machine import JUMPS, MOVES, Machine, one_move
from perdure.testkit.fuzz.moves import THREADS, Call, Scene
from perdure.testkit.kit import Provider

_SHARE = 6
_HEAVY_FIRST = sorted(MOVES, key=lambda name: -MOVES[name][0])
NAMES = [name for name in _HEAVY_FIRST for _ in range(max(1, MOVES[name][0] // _SHARE))]
"""Every move, as often as it weighs; Hypothesis likes the first ones best."""


class Lockstep(RuleBasedStateMachine):
    """Product and model in lockstep, one fresh pair per example."""

    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._machine = Machine(provider)
        self._scene = Scene(self._machine.model.world, Random(0))
        self._runner.run(self._machine.start())
        self._sound = True

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._sound = False
        self._runner.run(work)
        self._sound = True

    @initialize()
    def begin(self) -> None:
        """Two threads, one of them with a run."""
        self._do(self._two_threads())

    async def _two_threads(self) -> None:
        text = [{"type": "text", "text": "hello"}]
        for name in THREADS[:2]:
            await self._machine.step(Call("threads.create", {"thread_id": name}))
        message = {"role": "user", "content": text, "id": self._scene.fresh("m")}
        run = {"thread_id": THREADS[0], "agent_id": "planner", "run_id": self._scene.fresh("r"), "messages": [message]}
        await self._machine.step(Call("runs.start", run))

    @rule(name=st.sampled_from(NAMES), chance=st.randoms(use_true_random=False))
    def make(self, name: str, chance: Random) -> None:
        """Make one move, with Hypothesis as the source of chance."""
        self._scene.random = chance
        self._do(one_move(self._machine, self._scene, name))

    @rule(event=st.sampled_from(["none"] * 8 + ["reopen", "crash"]), ms=st.sampled_from(JUMPS))
    def interrupt(self, event: str, ms: int) -> None:
        """The clock jumps, and perhaps everybody closes and opens again, or dies and comes back."""
        self._machine.jump(ms)
        if event != "none":
            self._do(self._machine.reopen() if event == "reopen" else self._machine.crash())

    @rule(name=st.sampled_from(NAMES), chance=st.randoms(use_true_random=False))
    def go_on(self, name: str, chance: Random) -> None:
        """Another move: moves are drawn twice as often as interruptions."""
        self.make(name, chance)

    def teardown(self) -> None:
        """Look at everything once more, unless a difference was found already."""
        try:
            if self._sound:
                self._runner.run(self._machine.compare_everything())
        finally:
            self._runner.run(self._machine.stop())
            self._runner.close()


def lockstep(provider: Callable[[], Provider]) -> type[Lockstep]:
    """The state machine for one engine."""

    class LockstepOn(Lockstep):
        def __init__(self) -> None:
            super().__init__(provider())

    return LockstepOn
