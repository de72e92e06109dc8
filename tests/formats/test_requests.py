"""What is sent: nothing that a provider is known to refuse, and nothing that it did not ask back."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.formats.test_sdk_types import CHAT, ITEMS, SYSTEM, TURNS, insist

from perdure import (
    Base64Source,
    Block,
    Document,
    Extra,
    Image,
    InvalidError,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
)
from perdure.formats import anthropic, openai, openai_responses
from perdure.model.faithful import Untyped

PICTURE = Image(Base64Source("image/png", "aGk="))
REASONING = Thinking("", extra=Extra(openai_responses={"id": "rs_1", "summary": []}))
THOUGHTS: list[list[Block]] = [
    [Thinking("Hm.", "sig")],
    [Opaque(Untyped(type="redacted_thinking", data="abc"))],
    [Thinking("Hm.", "sig"), Text(" \n")],
    [REASONING],
    [REASONING, Text("")],
]


def turns(messages: list[Message], **options: Any) -> list[dict[str, Any]]:
    return anthropic.to_messages(messages, **options)[1]


WRITERS: dict[str, Any] = {"openai": openai.to_messages, "anthropic": turns, "responses": openai_responses.to_input}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("content", THOUGHTS)
def test_thinking_that_nothing_follows_is_left_out(write: Any, content: list[Block]) -> None:
    question, answer = Message.user("Well?"), Message.assistant([Text("Yes."), *content])
    assert write([question, Message.assistant([*content]), question])[0] == write([question])[0]
    kinds = str(write([question, answer]))
    assert "thinking" not in kinds
    assert "rs_1" not in kinds


def test_an_incomplete_response_of_reasoning_alone_is_not_sent() -> None:
    output = [{"type": "reasoning", "id": "rs_1", "summary": []}]
    details = {"reason": "max_output_tokens"}
    cut = openai_responses.from_response({"status": "incomplete", "incomplete_details": details, "output": output})
    assert openai_responses.to_input([Message.user("Go."), cut]) == [{"role": "user", "content": "Go."}]


def test_blank_text_and_empty_errors_are_not_sent_to_anthropic() -> None:
    asked = Message.assistant([Text("\n\n"), ToolUse("c1", "f", {})])
    sent = turns([Message.user(" "), asked, Message.tool("c1", "  ", is_error=True)])
    call, result = sent[0]["content"], sent[1]["content"]
    assert call == [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]
    assert result == [{"type": "tool_result", "tool_use_id": "c1", "content": "error", "is_error": True}]


def test_call_ids_that_anthropic_refuses_get_a_stable_substitute() -> None:
    talk = [Message.assistant([ToolUse("functions.f:0", "f", {}), ToolUse("functions.f_0", "f", {})])]
    talk += [Message.tool("functions.f_0", "b"), Message.tool("functions.f:0", "a")]
    sent = turns(talk)
    calls = [block["id"] for block in sent[0]["content"]]
    assert [block["tool_use_id"] for block in sent[1]["content"]] == calls[::-1]
    assert len(set(calls)) == 2
    assert all(name.replace("-", "").replace("_", "").isalnum() for name in calls)
    assert turns(talk) == sent
    assert turns([Message.assistant([ToolUse("toolu_1-a", "f", {})])])[0]["content"][0]["id"] == "toolu_1-a"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openai", Message.system([Text("x"), PICTURE])),
        ("openai", Message.assistant([Text("x"), PICTURE])),
        ("anthropic", Message.system([Text("x"), PICTURE])),
        ("anthropic", Message.assistant([Text("x"), PICTURE])),
        ("anthropic", Message.user([Text("x"), Image(Base64Source("image/bmp", "aGk="))])),
        ("anthropic", Message.user([Text("x"), Document(Base64Source("application/zip", "aGk="))])),
        ("responses", Message.assistant([Text("x"), PICTURE])),
    ],
)
def test_a_block_without_a_place_is_refused_or_left_out(name: str, message: Message) -> None:
    with pytest.raises(InvalidError, match=r"content\[1\].*skip_unsupported"):
        WRITERS[name]([message])
    assert "aGk=" not in str(WRITERS[name]([message], skip_unsupported=True))


def test_media_types_are_sent_without_parameters() -> None:
    picture = Image(Base64Source("image/png; charset=utf-8", "aGk="))
    notes = Document(Base64Source("text/plain;charset=utf-8", "aGk="), "notes")
    sent = turns([Message.user([picture, notes])])
    insist(TURNS, sent)
    assert sent[0]["content"][0]["source"]["media_type"] == "image/png"
    assert sent[0]["content"][1]["source"] == {"type": "text", "media_type": "text/plain", "data": "hi"}
    part = openai.to_messages([Message.user([picture])])[0]["content"][0]
    assert part["image_url"]["url"] == "data:image/png;base64,aGk="


def test_fields_of_a_chat_answer_that_no_request_takes_stay_here() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}}}
    answer = {"role": "assistant", "content": "x", "parsed": {"a": 1}, "annotations": [{"type": "url_citation"}]}
    answer |= {"tool_calls": [{**call, "surprise": 1}], "audio": {"id": "a1", "data": "aGk=", "expires_at": 1}}
    message = openai.from_message(answer)
    sent = openai.to_messages([message])
    insist(CHAT, sent)
    assert sent[0]["audio"] == {"id": "a1"}
    assert message.extra["openai"]["parsed"] == {"a": 1}, "the record keeps it"


def test_reasoning_and_signatures_of_other_chat_servers_go_back() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer = {"role": "assistant", "content": "x", "reasoning_content": "Hm."}
    answer["tool_calls"] = [{**call, "extra_content": {"google": {"thought_signature": "s"}}}]
    assert openai.to_messages([openai.from_message(answer)]) == [answer]


def test_fields_of_an_anthropic_answer_that_no_request_takes_stay_here() -> None:
    place = {"type": "char_location", "cited_text": "c", "document_index": 0, "document_title": None}
    cited = {**place, "start_char_index": 0, "end_char_index": 1}
    text = {"type": "text", "text": "x", "parsed_output": {"a": 1}, "citations": [{**cited, "file_id": None}]}
    answer = {
        "role": "assistant",
        "content": [text],
        "context_management": {"applied_edits": [1]},
        "container": {"a": 1},
    }
    sent = turns([anthropic.from_response(answer)])
    insist(TURNS, sent)
    assert sent == [{"role": "assistant", "content": [{"type": "text", "text": "x", "citations": [cited]}]}]


def test_fields_of_a_response_that_no_request_takes_stay_here() -> None:
    part = {"type": "output_text", "text": "x", "annotations": [], "parsed": {"a": 1}}
    output: list[dict[str, Any]] = [
        {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]},
        {"type": "function_call", "id": "f", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "custom_tool_call", "id": "g", "call_id": "c2", "name": "g", "input": "x", "status": "completed"},
        {"type": "apply_patch_call", "id": "p", "call_id": "c3", "status": "completed", "created_by": "x"},
        {"type": "compaction", "id": "k", "encrypted_content": "abc", "created_by": "x"},
    ]
    output[1] |= {"parsed_arguments": {"a": 1}, "created_by": "x"}
    output[3]["operation"] = {"type": "delete_file", "path": "x"}
    sent = openai_responses.to_input([openai_responses.from_response({"status": "completed", "output": output})])
    insist(ITEMS, sent)
    assert [item["type"] for item in sent] == [item["type"] for item in output]


HOSTED: dict[str, tuple[dict[str, Any], Message, Any]] = {
    "shell_call": (
        {"action": {"commands": ["ls"]}},
        Message.tool("c1", "a.txt"),
        [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    ),
    "apply_patch_call": ({"operation": {"type": "delete_file", "path": "x"}}, Message.tool("c1", "gone"), "gone"),
    "computer_call": (
        {"id": "i", "action": {"type": "screenshot"}, "pending_safety_checks": []},
        Message.tool("c1", [PICTURE]),
        {"type": "computer_screenshot", "image_url": "data:image/png;base64,aGk="},
    ),
}


@pytest.mark.parametrize("kind", HOSTED)
def test_results_of_hosted_calls_have_their_own_shape(kind: str) -> None:
    fields, result, output = HOSTED[kind]
    call = {"type": kind, "call_id": "c1", "status": "completed", **fields}
    answer = openai_responses.from_response({"status": "completed", "output": [call]})
    sent = openai_responses.to_input([answer, result])
    insist(ITEMS, sent)
    assert sent[0] == call
    assert sent[1]["output"] == output
    again = openai_responses.from_input(sent)
    assert openai_responses.to_input(again) == sent


def test_a_result_that_cannot_be_shaped_says_how_to_give_it() -> None:
    call = {"type": "mystery_call", "call_id": "c1", "status": "completed"}
    answer = openai_responses.from_response({"status": "completed", "output": [call]})
    with pytest.raises(InvalidError, match="Extra"):
        openai_responses.to_input([answer, Message.tool("c1", "x")])
    own = ToolResult("c1", [], extra=Extra(openai_responses={"output": {"a": 1}}))
    sent = openai_responses.to_input([answer, Message(role="tool", content=[own])])
    assert sent[1] == {"type": "mystery_call_output", "call_id": "c1", "output": {"a": 1}}
    shot = {"type": "computer_call", "call_id": "c1", "status": "completed"}
    answer = openai_responses.from_response({"status": "completed", "output": [shot]})
    with pytest.raises(InvalidError, match="screenshot"):
        openai_responses.to_input([answer, Message.tool("c1", "x")])


def test_what_another_provider_ran_or_hid_is_left_out() -> None:
    hosted = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}
    claude = anthropic.from_response({"content": [{"type": "redacted_thinking", "data": "z"}, hosted, _text("Hi.")]})
    assert openai.to_messages([claude]) == [{"role": "assistant", "content": "Hi."}]
    assert openai_responses.to_input([claude]) == [{"role": "assistant", "content": "Hi."}]
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "x"}}
    refusal = {"type": "refusal", "refusal": "No."}
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [refusal]}
    gpt = openai_responses.from_response({"status": "completed", "output": [search, said]})
    assert gpt.text == "No."
    assert turns([gpt]) == openai.to_messages([gpt]) == [{"role": "assistant", "content": "No."}]
    assert openai_responses.to_input([gpt]) == [search, said]
    insist(ITEMS, [search, said])


def test_people_see_a_refusal_and_its_format_gets_it_back() -> None:
    said = {"role": "assistant", "content": None, "refusal": "No."}
    gpt = openai.from_response({"choices": [{"message": said, "finish_reason": "stop"}]})
    assert gpt.text == "No."
    assert openai.to_messages([gpt]) == [{"role": "assistant", "content": "", "refusal": "No."}]
    assert openai_responses.to_input([gpt]) == [{"role": "assistant", "content": "No."}]
    assert turns([gpt]) == [{"role": "assistant", "content": "No."}]
    both = {"role": "assistant", "content": "Hm.", "refusal": "No.", "tool_calls": [_called("{}")]}
    read = openai.from_message(both)
    assert [type(block).__name__ for block in read.content] == ["Text", "Text", "ToolUse"]
    assert openai.to_messages([read]) == [{**both, "content": "Hm."}]
    assert openai.from_message({"role": "assistant", "content": "Hi.", "refusal": ""}) == Message.assistant("Hi.")
    stored = Message.assistant([], extra=Extra(openai={"refusal": "No."}))
    assert openai.to_messages([stored]) == [{"role": "assistant", "content": "", "refusal": "No."}]


def _called(arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize("arguments", ["", " ", '{"seats": 2', "{'seats': 2}", '{"a": NaN}', "[" * 2_000])
def test_arguments_that_are_not_json_are_sent_as_json(arguments: str) -> None:
    """Many servers read the arguments of earlier calls, and refuse the whole conversation."""
    (read,) = openai.from_messages([{"role": "assistant", "content": None, "tool_calls": [_called(arguments)]}])
    item = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments}
    (other,) = openai_responses.from_input([item])
    expected: Any = arguments if arguments.strip() else {}
    assert read.tool_calls[0].input == other.tool_calls[0].input == expected
    (call,) = openai.to_messages([read])[0]["tool_calls"]
    (called,) = openai_responses.to_input([other])
    assert json.loads(call["function"]["arguments"]) == json.loads(called["arguments"]) == expected
    (spelled,) = openai.from_messages([{"role": "assistant", "content": None, "tool_calls": [_called('{"a" : 1}')]}])
    assert openai.to_messages([spelled])[0]["tool_calls"][0]["function"]["arguments"] == '{"a" : 1}'
    stored = ToolUse("c1", "f", expected, extra=Extra(openai={"arguments": arguments}))
    (call,) = openai.to_messages([Message.assistant([stored])])[0]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == expected


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_caller_may_change_what_is_sent(write: Any) -> None:
    extra = {"openai_responses": {"type": "shell_call"}}
    call = ToolUse("c1", "f", {"deep": [{"a": 1}]}, extra=extra)
    opaque = Opaque(Untyped(type="search_result", content=[{"a": 1}]))
    other = Opaque(Untyped(type="openai", item={"type": "file", "file": {"file_id": "f"}}))
    talk = [Message.user([opaque, other, Image(UrlSource("https://x"))]), Message.assistant([call])]
    before = copy.deepcopy(talk)
    _spoil(write(talk, skip_unsupported=True))
    assert talk == before


def _spoil(value: Any) -> None:
    """Change everything that can be changed."""
    for item in list(value.values() if isinstance(value, dict) else value):
        if isinstance(item, (dict, list)):
            _spoil(item)
    value.clear()


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_the_first_result_of_a_call_is_sent(write: Any) -> None:
    """Providers refuse a second one, which raw records may hold."""
    asked = [Message.user("q"), Message.assistant([ToolUse("c1", "f", {})]), Message.tool("c1", "first")]
    again = [Message.assistant([ToolUse("c1", "f", {})]), Message.tool("c1", "third"), Message.user("thanks")]
    second, last = Message.tool("c1", "second"), Message.tool("c1", "fourth")
    assert write([*asked, second, *again, last]) == write([*asked, *again])


def test_system_blocks_are_valid() -> None:
    marked = Text("x", extra=Extra(anthropic={"cache_control": {"type": "ephemeral"}, "surprise": 1}))
    insist(SYSTEM, anthropic.to_messages([Message.system([marked, Text(" ")])])[0])
