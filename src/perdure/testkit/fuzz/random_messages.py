"""Random messages for the fuzzer: every kind of block and role, mostly in an order that makes sense.

Messages are plain JSON in their shortest form (defaults left out), which is how records return them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from perdure.testkit.reference.records import Json, Thread

WORDS = ("plan", "  spaced\n out ", "naïve", "日本", "x" * 90, "ok")


class Messages:
    """A source of messages for one thread (None: for one that does not exist yet)."""

    def __init__(self, random: Random, thread: Thread | None, fresh: Callable[[str], str]) -> None:
        self._random = random
        self._thread = thread
        self._fresh = fresh
        self._calls: list[str] = []
        log = [] if thread is None else thread.log[-12:]
        self._calls = [b["id"] for m in log for b in m.body["content"] if b["type"] == "tool_use"]

    def some(self, most: int) -> list[Json]:
        """One to `most` messages."""
        return [self.one(offset) for offset in range(self._random.randrange(most) + 1)]

    def one(self, offset: int = 0) -> Json:
        """One message, `offset` messages behind the end of the log."""
        drawn = self._random.random()
        if drawn < 0.3:
            message = self._text_message("user")
        elif drawn < 0.5:
            message = self._text_message("assistant")
        elif drawn < 0.7:
            message = self._call_message()
        elif drawn < 0.93:
            message = self._result_message(retracts=drawn > 0.89)
        else:
            message = self._summary(offset)
        return self._adorned({"role": message.pop("role"), "content": message.pop("content"), **message})

    def _text(self) -> Json:
        return {"type": "text", "text": self._random.choice(WORDS)}

    def _text_message(self, role: str) -> Json:
        content = [self._text()]
        if self._random.random() < 0.1:
            content.append({"type": "hologram", "depth": 3})
        if role == "assistant" and self._random.random() < 0.2:
            content.insert(0, {"type": "thinking", "thinking": "hm"})
        if self._random.random() < 0.03:
            content = []
        return {"role": role, "content": content}

    def _call_message(self) -> Json:
        content = [self._text()] if self._random.random() < 0.5 else []
        for _ in range(self._random.randrange(2) + 1):
            known = self._calls and self._random.random() < 0.08
            call = self._random.choice(self._calls) if known else self._fresh("c")
            if call not in [block.get("id") for block in content]:
                content.append({"type": "tool_use", "id": call, "name": "search", "input": {"q": [1, "ä"]}})
                self._calls.append(call)
        return {"role": "assistant", "content": content}

    def _result_message(self, *, retracts: bool) -> Json:
        unknown = not self._calls or self._random.random() < 0.1
        result: Json = {"type": "tool_result", "tool_use_id": "c0" if unknown else self._random.choice(self._calls)}
        if self._random.random() < 0.8:
            result["content"] = [self._text()]
        if self._random.random() < 0.1:
            result["is_error"] = True
        message: Json = {"role": "tool", "content": [result]}
        return {**message, "visibility": "internal"} if retracts else message

    def _summary(self, offset: int) -> Json:
        own = (0 if self._thread is None else len(self._thread.log)) + offset + 1
        if own < 2:
            return self._text_message("user")
        last = self._random.randrange(1, own)
        first = self._random.randrange(1, last + 1)
        mark = {"from_seq": first, "to_seq": last + (own - last if self._random.random() < 0.03 else 0)}
        return {"role": "user", "content": [self._text()], "visibility": "internal", "compaction": mark}

    def _adorned(self, message: Json) -> Json:
        """Add the id, and now and then what few messages carry."""
        message["id"] = self._fresh("m")
        if self._random.random() < 0.06 and "visibility" not in message:
            message["visibility"] = self._random.choice(["internal", "internal", "team"])
        if self._random.random() < 0.03:
            message["metadata"] = {"k": [None, 0.5]}
        if self._random.random() < 0.03:
            message["from_the_future"] = {"a": 1}
        if self._random.random() < 0.05:
            message["usage"] = self._random.choice([{"input_tokens": 7, "output_tokens": 2}, {}, "a string"])
            message["model"] = self._random.choice(["m-1", 3])
        if self._random.random() < 0.03:
            message["step"] = self._random.randrange(4)
        if self._random.random() < 0.03 and self._thread is not None and self._thread.latest_run_id is not None:
            message["run_id"] = self._thread.latest_run_id
        return message
