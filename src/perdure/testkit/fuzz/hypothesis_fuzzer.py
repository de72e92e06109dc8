"""The fuzzer under Hypothesis: the same calls, chosen by Hypothesis and shrunk to the shortest sequence that differs.

`lockstep(provider)` is a `RuleBasedStateMachine`; its `TestCase` is a test. A sequence begins with two threads and
a run; then come calls, and now and then a clock jump, clients that close and reopen, or a process that dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from perdure.testkit.fuzz.fuzzer import JUMPS, MOVES, Fuzzer, one_move
from perdure.testkit.fuzz.random_calls import THREADS, Call, Scene
from perdure.testkit.kit import Provider

_SHARE = 6
_HEAVY_FIRST = sorted(MOVES, key=lambda name: -MOVES[name][0])
NAMES = [name for name in _HEAVY_FIRST for _ in range(max(1, MOVES[name][0] // _SHARE))]
"""Every move, as often as it weighs; Hypothesis likes the first ones best."""


class Lockstep(RuleBasedStateMachine):
    """The product and the reference in lockstep, one fresh pair per example."""

    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._fuzzer = Fuzzer(provider)
        self._scene = Scene(self._fuzzer.reference.world, Random(0))
        self._runner.run(self._fuzzer.start())
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
            await self._fuzzer.step(Call("threads.create", {"thread_id": name}))
        message = {"role": "user", "content": text, "id": self._scene.fresh("m")}
        run = {"thread_id": THREADS[0], "agent_id": "planner", "run_id": self._scene.fresh("r"), "messages": [message]}
        await self._fuzzer.step(Call("runs.start", run))

    @rule(name=st.sampled_from(NAMES), chance=st.randoms(use_true_random=False))
    def make(self, name: str, chance: Random) -> None:
        """Make one move, with Hypothesis as the source of chance."""
        self._scene.random = chance
        self._do(one_move(self._fuzzer, self._scene, name))

    @rule(event=st.sampled_from(["none"] * 8 + ["reopen", "crash"]), ms=st.sampled_from(JUMPS))
    def interrupt(self, event: str, ms: int) -> None:
        """The clock jumps, and perhaps all clients close and reopen, or crash and reopen."""
        self._fuzzer.jump(ms)
        if event != "none":
            self._do(self._fuzzer.reopen() if event == "reopen" else self._fuzzer.crash())

    @rule(name=st.sampled_from(NAMES), chance=st.randoms(use_true_random=False))
    def go_on(self, name: str, chance: Random) -> None:
        """Another move: moves are drawn twice as often as interruptions."""
        self.make(name, chance)

    def teardown(self) -> None:
        """Look at everything once more, unless a difference was found already."""
        try:
            if self._sound:
                self._runner.run(self._fuzzer.compare_everything())
        finally:
            self._runner.run(self._fuzzer.stop())
            self._runner.close()


def lockstep(provider: Callable[[], Provider]) -> type[Lockstep]:
    """The state machine for one engine."""

    class LockstepOn(Lockstep):
        def __init__(self) -> None:
            super().__init__(provider())

    return LockstepOn
