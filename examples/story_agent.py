"""The agent of the story: a loop, two tools and a model that follows a script. No key, no network.

It is a program of its own, because in the story it is killed. `work` starts a run on what a person said; `resume` goes
on with a run that somebody else left. What it does is told as lines of JSON on stdout; what matters is in the store.
Its loop is all there is to know about writing an agent that survives a crash:

1. commit the tool call *before* the tool runs, together with the run's step;
2. commit the result after it;
3. when taking over, ask the store for calls without a result, and the tool whether it may run again.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import perdure
from perdure import Message, MessageRecord, Run, RunChange, Store, Text, ToolUse

AGENT = "planner"
KILLED_IN = "find_rooms"


@dataclass(frozen=True)
class Tool:
    """What the agent can do, and whether it may be done again if nobody knows whether it was done."""

    run: Callable[[dict[str, Any]], str]
    replay: Literal["safe", "never", "ask"]


def weather(given: dict[str, Any]) -> str:
    return f"{given['city']}: rain on Saturday, sun on Sunday."


def find_rooms(given: dict[str, Any]) -> str:
    return f"Free for {given['nights']} night near {given['near']}: Ryokan Sawa (18,000 yen), Hotel Kamo (11,000 yen)."


TOOLS = {"weather": Tool(weather, replay="safe"), "find_rooms": Tool(find_rooms, replay="safe")}


def model(history: Sequence[MessageRecord]) -> Message:
    """A stand-in for a language model: what it says depends on the history it is shown, and on nothing else."""
    asked = [record.text for record in history if record.role == "user"][-1]
    known = {record.message.tool_call_id for record in history}
    if "temples" in asked:
        return Message.assistant("Saturday under roofs: Sanjusangen-do, Nishi Hongan-ji. Sunday: Fushimi Inari.")
    if "call-weather" not in known:
        call = ToolUse("call-weather", "weather", {"city": "Kyoto"})
        return Message.assistant([Text("I will look at the weather first."), call])
    if "call-rooms" not in known:
        call = ToolUse("call-rooms", "find_rooms", {"near": "Gion", "nights": 1})
        return Message.assistant([Text("Now a room."), call])
    return Message.assistant("Saturday: the Railway Museum, then tea. Night at Hotel Kamo. Sunday: Arashiyama on foot.")


def tell(event: str, **facts: Any) -> None:
    """Say what happened, at once: whoever started this process may kill it any moment."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


class Agent:
    """One process's hands on one run."""

    def __init__(self, store: Store, thread: str, run: Run, *, slow: bool) -> None:
        self.store, self.thread, self.run, self.slow = store, thread, run, slow

    async def commit(self, what: str, message: Message, change: RunChange) -> None:
        started = time.perf_counter()
        receipt = await self.store.commit(self.thread, messages=[message], run=change)
        if receipt.run is None:
            raise RuntimeError("the commit lost its run")
        self.run = receipt.run
        took = (time.perf_counter() - started) * 1000
        tell("committed", what=what, version=receipt.version, durable=receipt.durable, ms=round(took, 2))

    async def use(self, call: ToolUse) -> None:
        """Run a tool and commit its result. `slow` is the provider that does not answer for a long time."""
        tell("running", tool=call.name)
        if self.slow and call.name == KILLED_IN:
            await asyncio.sleep(600)
        result = TOOLS[call.name].run(call.input)
        await self.commit(f"the result of {call.name}", Message.tool(call.id, result), self.run.step())

    async def recover(self) -> None:
        """Settle what an earlier process left open. Only a tool that is safe to repeat is run again."""
        for left in await self.store.messages.unfinished_calls(self.thread, run_id=self.run.id):
            policy = TOOLS[left.call.name].replay
            tell("unfinished", tool=left.call.name, call=left.call.id, policy=policy)
            if policy == "safe":
                await self.use(left.call)
            else:
                refusal = Message.tool(left.call.id, "interrupted; it was not run again", is_error=True)
                await self.commit(f"a refusal to repeat {left.call.name}", refusal, self.run.step())

    async def go_on(self) -> None:
        """Model, tools, model, … until the model is done."""
        while True:
            said = model(await self.store.messages.history(self.thread, branch=self.run.branch))
            if not said.tool_calls:
                await self.commit("the answer", said, self.run.finish(said.text))
                tell("finished", run=self.run.id, steps=self.run.steps)
                return
            names = ", ".join(call.name for call in said.tool_calls)
            await self.commit(f"the call of {names}", said, self.run.step(output_tokens=len(said.text)))
            for call in said.tool_calls:
                await self.use(call)


async def main(action: str, url: str, thread: str, text: str, *, slow: bool) -> None:
    async with perdure.open(url) as store:
        if action == "work":
            run = await store.runs.start(thread, AGENT, messages=[Message.user(text)])
        else:
            left = (await store.threads.get(thread)).active_run_id
            if left is None:
                raise RuntimeError("there is no run to resume")
            run = await store.runs.get(left)
        tell("started" if action == "work" else "resumed", run=run.id, status=run.status)
        agent = Agent(store, thread, run, slow=slow)
        await agent.recover()
        await agent.go_on()


if __name__ == "__main__":
    action, url, thread, *rest = sys.argv[1:]
    asyncio.run(main(action, url, thread, rest[0] if rest else "", slow="--slow" in rest))
