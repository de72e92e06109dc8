"""What each format can carry comes back equal; `python -m tests.formats.round_trips` runs many more conversations."""

from __future__ import annotations

import random

import pytest
from tests.formats.round_trips import FORMATS, travel

from perdure import Audio, Base64Source, InvalidError, Message, Text, Thinking, ToolUse, UrlSource, Video
from perdure.formats import anthropic, openai, openai_responses

COUNT = 300


@pytest.mark.parametrize("name", FORMATS)
def test_conversations_come_back_equal(name: str) -> None:
    first = random.randrange(10**9)
    print(f"replay: python -m tests.formats.round_trips --conversations {COUNT} --seed {first}")
    for seed in range(first, first + COUNT):
        travel(name, seed)


WRITERS = {
    "openai": openai.to_messages,
    "anthropic": lambda messages, **options: anthropic.to_messages(messages, **options)[1],
    "openai_responses": openai_responses.to_input,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_cannot_be_carried_is_refused_or_left_out(name: str) -> None:
    write = WRITERS[name]
    film = Message.user([Text("Look."), Video(UrlSource("https://example.com/a.mp4"))])
    with pytest.raises(InvalidError, match=r"messages\[0\]\.content\[1\].*skip_unsupported"):
        write([film])
    assert write([film], skip_unsupported=True) == write([Message.user("Look.")])
    result = Message.tool("c1", [Text("x"), Audio(Base64Source("audio/wav", "aGk="))])
    with pytest.raises(InvalidError, match="skip_unsupported"):
        write([result])
    assert write([result], skip_unsupported=True) == write([Message.tool("c1", "x")])
    with pytest.raises(InvalidError, match="role"):
        write([Message(role="critic", content=[Text("Hm.")])])
    with pytest.raises(InvalidError, match="not a Message"):
        write([{"role": "user", "content": "x"}])


@pytest.mark.parametrize("name", WRITERS)
def test_what_belongs_to_another_format_is_not_sent(name: str) -> None:
    write = WRITERS[name]
    others = [other for other in WRITERS if other != name]
    plain = Message.assistant([Text("x"), ToolUse("c1", "f", {"a": 1})])
    for other in others:
        extra = {other: {"anything": 1}, "unknown": 2}
        marked = Message.assistant([Text("x", extra=extra), ToolUse("c1", "f", {"a": 1}, extra=extra)], extra=extra)
        assert write([marked]) == write([plain])
    thought = Message.assistant([Thinking("Hm."), Text("x")])
    assert write([thought]) == write([Message.assistant("x")]), "thinking that nobody signed is left out"


def test_results_stand_directly_behind_their_calls() -> None:
    call = Message.assistant([ToolUse("c1", "f", {}), ToolUse("c2", "f", {})])
    talk = [call, Message.tool("c1", "one"), Message.user("Hurry!"), Message.tool("c2", "two")]
    assert [message["role"] for message in openai.to_messages(talk)] == ["assistant", "tool", "tool", "user"]
    _, turns = anthropic.to_messages(talk)
    assert [turn["role"] for turn in turns] == ["assistant", "user", "user"]
    assert [block["tool_use_id"] for block in turns[1]["content"]] == ["c1", "c2"]
