"""`make run`: an agent is killed in mid-run, and nothing is lost. Thirty seconds, one file, no key.

Everything shown is what the store, the agent's process or the `perdure` program said; nothing is canned. Every claim is
checked: if one does not hold, the story ends with an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import perdure

AGENT = Path(__file__).with_name("story_agent.py")
THREAD = "kyoto"
QUESTION = "Plan a weekend in Kyoto for me."
SECOND_THOUGHT = "Actually, I want to see temples. Assume the weather stays as it is."
PAUSE = 1.5
"""Seconds between acts, for people; none when nobody is watching."""

console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


class UntrueError(Exception):
    """The story claimed something that is not so."""


def claim(holds: object, sentence: str) -> None:
    """Say something, if it is true."""
    if not holds:
        raise UntrueError(sentence)
    console.print(Text().append("  ✓ ", "bold green").append(sentence))


def act(number: int, title: str, *sentences: str) -> None:
    if console.is_terminal and number > 1:
        time.sleep(PAUSE)
    console.print()
    console.print(Text(f"{number}. {title}", "bold"))
    for sentence in sentences:
        console.print(Text(f"   {sentence}", "dim"))


def tell(event: dict[str, Any]) -> None:
    """A line of the agent's process."""
    what = event.pop("event")
    facts = ", ".join(f"{name} {value}" for name, value in event.items() if name not in ("what", "tool"))
    thing = event.get("what") or event.get("tool") or ""
    console.print(Text().append("  agent │ ", "cyan").append(f"{what} {thing}".strip()).append(f"  {facts}", "dim"))


def start(action: str, url: str, *rest: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(AGENT), action, url, THREAD, *rest]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
    console.print(Text(f"  process {process.pid} begins", "dim"))
    return process


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    if process.stdout is None:
        raise UntrueError("the agent has no voice")
    for line in process.stdout:
        event = json.loads(line)
        tell(dict(event))
        yield event


def to_the_end(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    with process:
        told = list(events(process))
    if process.returncode != 0:
        raise UntrueError(f"the agent ended with {process.returncode}")
    return told


def perdure_says(url: str, *arguments: str) -> None:
    """Run the `perdure` program itself, in a process of its own, on our terminal."""
    console.print(Text(f"  $ perdure {' '.join(arguments)}", "bold cyan"))
    environment = {**os.environ, "PERDURE_STORE": url}
    code = subprocess.run([sys.executable, "-m", "perdure.cli", *arguments], env=environment, check=False).returncode
    if code != 0:
        raise UntrueError(f"perdure {arguments[0]} ended with {code}")


def killed_in_mid_run(url: str) -> dict[str, Any]:
    """Start the agent and kill it while a tool runs; the last commit it was told of."""
    last: dict[str, Any] = {}
    with start("work", url, QUESTION, "--slow") as process:
        for event in events(process):
            if event["event"] == "committed":
                last = event
            if event["event"] == "running" and event["tool"] == "find_rooms":
                process.kill()
    claim(process.returncode == -9, f"process {process.pid} is dead: SIGKILL, while find_rooms was running")
    return last


async def look_at_the_wreck(url: str, last: dict[str, Any]) -> str:
    """What is there after the kill; the run's id."""
    async with perdure.open(url, read_only=True) as store:
        thread = await store.threads.get(THREAD)
        claim(thread.version == last["version"], f"all {thread.version} messages that were acknowledged are there")
        open_calls = await store.messages.unfinished_calls(THREAD)
        claim([left.call.name for left in open_calls] == ["find_rooms"], "one call has no result: find_rooms")
        history = await store.messages.history(THREAD)
        shown = {call.id for record in history for call in record.message.tool_calls}
        half = {left.call.id for left in open_calls} & shown
        claim(not half, "the history for the model leaves that call out, so no model ever sees half a pair")
        run = await store.runs.get(thread.active_run_id or "")
        claim(run.status == "running", f"run {run.id} is still {run.status}: somebody must go on")
        return run.id


async def check_the_end(url: str, run_id: str) -> None:
    async with perdure.open(url, read_only=True) as store:
        run = await store.runs.get(run_id)
        claim(run.status == "done" and run.outcome is not None, f"the same run {run_id} is {run.status}")
        claim(not await store.messages.unfinished_calls(THREAD), "every call has its result")
        claim((await store.threads.get(THREAD)).active_run_id is None, "no run is active any more")


async def go_back(url: str) -> list[str]:
    """The person returns to the weather and asks for something else; the older line, to compare later."""
    async with perdure.open(url) as store:
        history = await store.messages.history(THREAD)
        weather = next(record for record in history if record.role == "tool")
        await store.branches.label(THREAD, history[-1].message_id, "plan A")
        branch = await store.branches.fork(THREAD, at=weather.message_id, name="temples", switch=True)
        untouched = branch.length == 0 and (await store.threads.get(THREAD)).version == len(history)
        claim(
            branch.current and untouched,
            f"branch {branch.name!r} goes on after message {weather.seq}; nothing is copied",
        )
        return [record.message_id for record in history]


async def compare(url: str, before: list[str]) -> None:
    async with perdure.open(url, read_only=True) as store:
        main = [record.message_id for record in await store.messages.history(THREAD, branch="main")]
        claim(main == before, f"the first plan is untouched: {len(main)} messages on main")
        new = [record.message_id for record in await store.messages.history(THREAD)]
        shared = [one for one, other in zip(main, new, strict=False) if one == other]
        claim(len(shared) == 3, f"the new branch shares its first {len(shared)} messages and copies none")
        total = (await store.threads.get(THREAD)).version
        claim(total == len(set(main) | set(new)), f"the log holds each of the {total} messages once")


def story(url: str) -> None:
    act(1, "An agent works", "It commits every step: the tool call before the tool runs, the result after it.")
    last = killed_in_mid_run(url)
    act(2, "Another process looks at the file", "No repair, no recovery script: it opens the file and reads.")
    perdure_says(url, "log", THREAD)
    run_id = asyncio.run(look_at_the_wreck(url, last))
    act(3, "A new process resumes the run", "It finds the open call and asks the tool whether it may run again.")
    told = to_the_end(start("resume", url))
    found = next((event for event in told if event["event"] == "unfinished"), {"tool": "nothing", "policy": "none"})
    again = {"event": "running", "tool": found["tool"]} in told
    claim(again and found["policy"] == "safe", f"{found['tool']} declares itself safe to repeat, so it ran again")
    asyncio.run(check_the_end(url, run_id))
    act(4, "The person changes their mind", "They go back to the weather report and try something else from there.")
    before = asyncio.run(go_back(url))
    to_the_end(start("work", url, SECOND_THOUGHT))
    asyncio.run(compare(url, before))
    act(5, "The whole conversation, as a tree", "• marks the current line; both plans are there.")
    perdure_says(url, "tree", THREAD)
    act(6, "And is everything in order?")
    perdure_says(url, "doctor", "verify", "--all-scopes")


def main() -> int:
    started = time.monotonic()
    path = Path(tempfile.mkdtemp(prefix="perdure-story-")) / "agents.db"
    console.print(Text("Perdure: an agent that survives its own death", "bold"))
    console.print(Text(f"one SQLite file, {path}", "dim"))
    try:
        story(f"sqlite:///{path}")
    except UntrueError as lie:
        console.print(Text().append("  ✗ ", "bold red").append(f"not true: {lie}"))
        return 1
    size = path.stat().st_size // 1024
    console.print()
    console.print(Text(f"All true, in {time.monotonic() - started:.1f} seconds and {size} KB.", "bold green"))
    invite(path)
    return 0


def invite(path: Path) -> None:
    """The file stays: say how to look at it, and how to be rid of it."""
    program = Path(sys.executable).with_name("perdure")
    near = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    console.print(Text("The file is still there. Look around in it, then remove it:", "dim"))
    for command in ("show kyoto", "log kyoto --branch main", "runs"):
        console.print(Text(f"  {near} --store sqlite:///{path} {command}", "cyan"))
    console.print(Text(f"  rm -r {path.parent}", "cyan"))


if __name__ == "__main__":
    sys.exit(main())
