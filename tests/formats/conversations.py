"""Random conversations that hold what a format can carry, for its round trips.

`Maker` draws messages from a seed; what differs from one format to the next is in `Abilities`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from perdure import (
    Audio,
    Base64Source,
    Block,
    Document,
    Extra,
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
)
from perdure.model.faithful import Untyped

WORDS = ("Hello", "naïve\n\ttext", "日本", '"quoted" \\ back', "x" * 300, "emoji 🙂", " ", "{}", "null")
INPUTS: tuple[Any, ...] = (
    {},
    {"city": "Kyoto"},
    {"deep": [{"a": None, "b": [1, -2.5, True, 10**20]}], "é": "ü"},
    {"text": '{"not": "parsed"}'},
)


@dataclass(frozen=True)
class Abilities:
    """What a format carries: functions that draw a block of it."""

    form: str
    media: tuple[Callable[[Random], Block], ...]
    answer_blocks: tuple[Callable[[Random], Block], ...] = ()
    result_blocks: tuple[Callable[[Random], Block], ...] = ()
    text_extras: tuple[dict[str, Any], ...] = ()
    call_extras: tuple[dict[str, Any], ...] = ()
    message_extras: tuple[dict[str, Any], ...] = ()
    system_first: bool = False
    any_input: bool = True
    errors: bool = False
    text_first: bool = False
    several_answers: bool = True
    blank_text: bool = True
    refuses: bool = False


def image(random: Random) -> Block:
    if random.random() < 0.5:
        return Image(UrlSource("https://example.com/a.png"))
    return Image(Base64Source("image/png", "aGVsbG8="))


def inline_file(random: Random) -> Block:
    return Document(Base64Source("application/pdf", "aGVsbG8="), random.choice([None, "plan.pdf"]))


def file_by_url(random: Random) -> Block:
    return Document(UrlSource("https://example.com/a.pdf"), random.choice([None, "plan.pdf"]))


def sound(random: Random) -> Block:
    return Audio(Base64Source(random.choice(["audio/wav", "audio/mpeg"]), "aGVsbG8="))


def signed_thought(random: Random) -> Block:
    return Thinking(random.choice(WORDS), "sig-1")


def reasoning(random: Random) -> Block:
    fields: dict[str, Any] = {"id": f"rs_{random.randrange(99)}", "encrypted_content": "abc"}
    if random.random() < 0.5:
        return Thinking(random.choice(WORDS), extra=Extra(openai_responses=fields))
    summary = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    return Thinking("one\n\ntwo", extra=Extra(openai_responses={**fields, "summary": summary}))


def opaque(**fields: Any) -> Callable[[Random], Block]:
    return lambda _random: Opaque(Untyped(fields))


OPENAI = Abilities(
    "openai",
    (
        image,
        sound,
        inline_file,
        lambda _: Image(UrlSource("https://example.com/b.png"), extra=Extra(openai={"image_url": {"detail": "low"}})),
        opaque(type="openai", item={"type": "file", "file": {"file_id": "file-1"}}),
    ),
    call_extras=({"arguments": '{"city": "Kyoto"}'},),
    message_extras=({"name": "ann"},),
    text_first=True,
    refuses=True,
)
ANTHROPIC = Abilities(
    "anthropic",
    (
        image,
        inline_file,
        file_by_url,
        lambda _: Document(Opaque(Untyped(type="text", media_type="text/plain", data="notes")), "notes"),
        opaque(type="search_result", source="s", title="t", content=[{"type": "text", "text": "x"}]),
    ),
    answer_blocks=(signed_thought, opaque(type="redacted_thinking", data="abc")),
    result_blocks=(image, inline_file),
    text_extras=({"cache_control": {"type": "ephemeral"}},),
    call_extras=({"cache_control": {"type": "ephemeral"}},),
    system_first=True,
    any_input=False,
    errors=True,
    blank_text=False,
)
RESPONSES = Abilities(
    "openai_responses",
    (
        image,
        inline_file,
        file_by_url,
        lambda _: Image(UrlSource("https://example.com/b.png"), extra=Extra(openai_responses={"detail": "low"})),
        opaque(type="openai_responses", item={"type": "input_image", "file_id": "file-1", "detail": "auto"}),
    ),
    answer_blocks=(
        reasoning,
        opaque(
            type="openai_responses",
            item={"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGVsbG8="},
        ),
        lambda random: Text(
            random.choice(WORDS),
            extra=Extra(openai_responses={"item": {"id": f"msg_{random.randrange(99)}", "status": "completed"}}),
        ),
    ),
    result_blocks=(image, inline_file),
    call_extras=({"id": "fc_1", "status": "completed"}, {"arguments": '{"city": "Kyoto"}'}),
    several_answers=False,
)


def _is_thought(block: Block) -> bool:
    return isinstance(block, Thinking) or (isinstance(block, Opaque) and block.kind == "redacted_thinking")


class Maker:
    """Draws one conversation."""

    def __init__(self, seed: int, abilities: Abilities) -> None:
        self._random = Random(seed)
        self._can = abilities
        self._calls = 0

    def conversation(self) -> list[Message]:
        """Turns of people and models in order, calls with their results."""
        messages = [self._system()] if self._random.random() < 0.5 else []
        for _ in range(self._random.randrange(1, 5)):
            messages += [self._user() for _ in range(self._random.choice([1, 1, 2]))]
            for _ in range(self._random.randrange(3)):
                messages += self._step()
            if self._can.several_answers or messages[-1].role != "assistant":
                messages.append(self._answer(0))
            if not self._can.system_first and self._random.random() < 0.1:
                messages.append(self._system())
        return messages

    def _system(self) -> Message:
        developer = self._can.form != "anthropic" and self._random.random() < 0.3
        extra = Extra({self._can.form: {"role": "developer"}}) if developer else Extra()
        return Message.system([self._text()], extra=extra)

    def _user(self) -> Message:
        content = self._some(self._said, 1, 4)
        extras = self._can.message_extras
        carried = {self._can.form: self._random.choice(extras)} if extras and self._random.random() < 0.2 else {}
        return Message.user(content, extra=Extra(carried))

    def _said(self) -> Block:
        return self._text() if self._random.random() < 0.5 else self._media()

    def _step(self) -> list[Message]:
        """A message with calls, and their results."""
        answer = self._answer(self._random.randrange(1, 4))
        return [answer, *(self._result(call.id) for call in answer.tool_calls)]

    def _answer(self, calls: int) -> Message:
        content = self._some(self._answer_block, 0 if calls else 1, 3)
        if self._can.refuses and self._random.random() < 0.1:  # after the text, and once
            content.append(Text("I cannot help with that.", extra=Extra({self._can.form: {"type": "refusal"}})))
        content += [self._call() for _ in range(calls)]
        if not self._can.text_first:
            self._random.shuffle(content)
        if content and _is_thought(content[-1]):
            content.append(self._text())  # what nothing follows is not sent
        return Message.assistant(content)

    def _answer_block(self) -> Block:
        if self._can.answer_blocks and self._random.random() < 0.4:
            return self._random.choice(self._can.answer_blocks)(self._random)
        return self._text()

    def _call(self) -> Block:
        self._calls += 1
        extras = self._can.call_extras
        carried = self._random.choice(extras) if extras and self._random.random() < 0.2 else {}
        value = {"city": "Kyoto"} if "arguments" in carried else self._random.choice(INPUTS)
        if self._can.any_input and not carried and self._random.random() < 0.1:
            value = self._random.choice(["text", [1], 7])
        extra = Extra({self._can.form: carried}) if carried else Extra()
        return ToolUse(f"call_{self._calls}", self._random.choice(["weather", "book_table"]), value, extra=extra)

    def _result(self, call: str) -> Message:
        content: list[Block] = self._some(self._text, 0, 2)
        if self._can.result_blocks and self._random.random() < 0.3:
            content.append(self._random.choice(self._can.result_blocks)(self._random))
        failed = bool(content) and self._can.errors and self._random.random() < 0.2
        return Message(role="tool", content=[ToolResult(call, content, failed)])

    def _text(self) -> Block:
        extras = self._can.text_extras
        if extras and self._random.random() < 0.15:
            return Text(self._word(), extra=Extra({self._can.form: self._random.choice(extras)}))
        return Text(self._word())

    def _word(self) -> str:
        return self._random.choice([word for word in WORDS if self._can.blank_text or word.strip()])

    def _media(self) -> Block:
        return self._random.choice(self._can.media)(self._random)

    def _some(self, draw: Callable[[], Block], least: int, most: int) -> list[Block]:
        return [draw() for _ in range(self._random.randrange(least, most + 1))]
