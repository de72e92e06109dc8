"""What every subject of the benchmark is asked to store: the same words, the same sizes, made once from a fixed seed.

A *bare* commit is two messages of 2 KB, one step of a run and the thread's pointers; with *state* it carries two
documents of 1 KB more. A *turn* is five messages in four commits, about 2.5 KB a message, as an agent with two tool
calls writes them. Messages here are plain JSON values in block form; each subject turns them into what its own API
takes before the clock starts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_WORDS = (
    "the a of to and in is it for on with as at by from agent tool call result error file line value config server "
    "request response user message table index commit thread state query return class def import async await None "
    "True False path pkg/libs src test data json id 0 1 2 3 42 100 2024 http status ok failed retry timeout cache key "
    "node edge graph step"
).split()


def prose(size: int, rng: random.Random) -> str:
    """`size` bytes of text that compresses about 3:1, like real transcripts do."""
    words: list[str] = []
    length = 0
    while length < size:
        word = rng.choice(_WORDS) if rng.random() < 0.9 else f"{rng.getrandbits(40):x}"
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size]


@dataclass(frozen=True)
class Commit:
    """One commit as every subject gets it; peers that know no run or state leave those out."""

    messages: tuple[Json, ...]
    state: dict[str, Json] = field(default_factory=dict)


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


def text_message(role: str, text: str) -> Json:
    """A message of one text block."""
    return {"role": role, "content": _text(text)}


_RNG = random.Random(7)
_TEXTS = [prose(2048, _RNG) for _ in range(128)]
_DOCS = [prose(1000, _RNG) for _ in range(16)]


def bare(index: int) -> Commit:
    """Two messages of 2 KB."""
    question, answer = _TEXTS[2 * index % 128], _TEXTS[(2 * index + 1) % 128]
    return Commit((text_message("user", question), text_message("assistant", answer)))


def with_state(index: int) -> Commit:
    """A bare commit and two documents of 1 KB."""
    plan, notes = _DOCS[index % 16], _DOCS[(index + 5) % 16]
    return Commit(bare(index).messages, {"plan": {"text": plan}, "notes": {"text": notes}})


def _turn(number: int) -> list[Commit]:
    calls = [f"call_{_RNG.getrandbits(64):016x}" for _ in range(2)]
    uses = [
        {"type": "tool_use", "id": call, "name": "run_query", "input": {"query": prose(980, _RNG), "turn": number}}
        for call in calls
    ]
    results = [
        {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": call, "content": _text(prose(4096, _RNG))}]}
        for call in calls
    ]
    return [
        Commit((text_message("user", prose(300, _RNG)),)),
        Commit(({"role": "assistant", "content": uses},)),
        Commit(tuple(results)),
        Commit((text_message("assistant", prose(1536, _RNG)),)),
    ]


_TURNS = [_turn(number) for number in range(32)]
TURN_MESSAGES = 5


def turn(index: int) -> list[Commit]:
    """The four commits of one agent turn."""
    return _TURNS[index % 32]


def history(length: int) -> Commit:
    """`length` messages of 2 KB, to fill a thread before the clock starts."""
    messages = [message for index in range((length + 1) // 2) for message in bare(index).messages]
    return Commit(tuple(messages[:length]))


def turns(length: int, *, unknown: bool = False) -> Commit:
    """`length` messages of agent turns with `usage`; with `unknown`, each has a field that Perdure does not know."""
    messages = [message for index in range(length) for commit in turn(index) for message in commit.messages][:length]
    usage = {"input_tokens": 1200, "output_tokens": 340}
    messages = [{**m, "usage": usage} if m["role"] == "assistant" else m for m in messages]
    vendor = {"trace": "0af7651916cd43dd", "cached": False}
    return Commit(tuple({**message, "vendor": vendor} for message in messages) if unknown else tuple(messages))


RUN_RECORD: Json = {
    "status": "running",
    "agent_id": "bench",
    "steps": 3,
    "input_tokens": 123456,
    "output_tokens": 7890,
    "started_at": 1735689600010,
    "updated_at": 1735689605000,
    "output": [3, 42, 40],
}
"""What a subject without runs of its own stores for one step of a run: as many bytes as Perdure's row, not more."""
