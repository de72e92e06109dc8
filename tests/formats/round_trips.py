"""Round trips through each format, from a seed: what went out comes back equal, and a second trip changes nothing.

`python -m tests.formats.round_trips --conversations 10000` runs that many per format.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.formats.conversations import ANTHROPIC, OPENAI, RESPONSES, Abilities, Maker

from perdure import Message
from perdure.formats import anthropic, openai, openai_responses


@dataclass(frozen=True)
class Format:
    """One format: what it carries, and its way out and back."""

    abilities: Abilities
    write: Callable[[list[Message]], Any]
    read: Callable[[Any], list[Message]]


FORMATS = {
    "openai": Format(OPENAI, openai.to_messages, openai.from_messages),
    "anthropic": Format(ANTHROPIC, anthropic.to_messages, lambda out: anthropic.from_messages(out[1], out[0])),
    "openai_responses": Format(RESPONSES, openai_responses.to_input, openai_responses.from_input),
}


class Changed(Exception):
    """A round trip changed something; the message says what, and how to see it again."""


def travel(name: str, seed: int) -> Any:
    """One conversation out and back; returns what was sent."""
    form = FORMATS[name]
    messages = Maker(seed, form.abilities).conversation()
    sent = form.write(messages)
    again = json.loads(json.dumps(sent))
    untouched = copy.deepcopy(again)
    read = form.read(again)
    if read != messages:
        different = next((pair for pair in zip(messages, read, strict=False) if pair[0] != pair[1]), (messages, read))
        raise Changed(f"{name}, seed {seed}: {different[0]!r}\nbecame {different[1]!r}")
    if again != untouched:
        raise Changed(f"{name}, seed {seed}: reading changed what was read")
    if form.write(read) != sent:
        raise Changed(f"{name}, seed {seed}: the second request differs from the first")
    return sent


def main() -> int:
    """Run as many as asked for, per format."""
    options = argparse.ArgumentParser(description="Round trips of generated conversations through every format.")
    options.add_argument("--conversations", type=int, default=10_000, help="for each format")
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    for i in range(chosen.conversations):
        for name in FORMATS:
            travel(name, chosen.seed + i)
        if i % 500 == 0:
            print(json.dumps({"progress": i}), flush=True)
    print(f"{chosen.conversations} conversations came back equal from each of {', '.join(FORMATS)}")
    print(json.dumps({"figures": {"round trips": chosen.conversations * len(FORMATS)}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
