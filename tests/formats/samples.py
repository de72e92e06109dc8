"""Answers as each provider sends them, whole and in chunks."""

from __future__ import annotations

import json
from typing import Any

from perdure import ToolUse

CALLS = [ToolUse("call_1", "weather", {"city": "Kyoto"}), ToolUse("call_2", "book_table", {"seats": 2})]


def _function(call: ToolUse) -> dict[str, Any]:
    return {"name": call.name, "arguments": json.dumps(call.input, separators=(",", ":"))}


USAGE: dict[str, Any] = {
    "prompt_tokens": 120,
    "completion_tokens": 18,
    "total_tokens": 138,
    "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 16, "audio_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 10, "audio_tokens": 0},
}
COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-x-2026",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": "Let me look.",
                "refusal": None,
                "annotations": [],
                "tool_calls": [{"id": c.id, "type": "function", "function": _function(c)} for c in CALLS],
            },
        }
    ],
    "usage": USAGE,
}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {**_CHUNK, "choices": [choice], "usage": None}


_CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x-2026"}


def _call_chunks(index: int, call: ToolUse) -> list[dict[str, Any]]:
    function = _function(call)
    opened = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    pieces = [function["arguments"][:5], function["arguments"][5:]]
    deltas = [opened, *({"index": index, "function": {"arguments": piece}} for piece in pieces)]
    return [_chunk({"tool_calls": [delta]}) for delta in deltas]


CHUNKS: list[dict[str, Any]] = [
    _chunk({"role": "assistant", "content": "", "refusal": None}),
    *(_chunk({"content": piece}) for piece in ("Let ", "me ", "look.")),
    *(chunk for index, call in enumerate(CALLS) for chunk in _call_chunks(index, call)),
    _chunk({}, "tool_calls"),
    {**_CHUNK, "choices": [], "usage": USAGE},
]

ANSWER_USAGE = {
    "input_tokens": 40,
    "output_tokens": 18,
    "cache_read_input_tokens": 64,
    "cache_creation_input_tokens": 16,
    "output_tokens_details": {"thinking_tokens": 10},
    "service_tier": "standard",
}
ANSWER: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "text", "text": "Let me look.", "citations": None},
        *({"type": "tool_use", "id": c.id, "name": c.name, "input": c.input} for c in CALLS),
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": ANSWER_USAGE,
}


def _delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    start = {"type": "content_block_start", "index": index, "content_block": begun}
    return [start, *(_delta(index, **delta) for delta in deltas), {"type": "content_block_stop", "index": index}]


def _use(index: int, call: ToolUse) -> list[dict[str, Any]]:
    text = json.dumps(call.input)
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", text[:4], text[4:])]
    return _block(index, {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, *pieces)


EVENTS: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {
            **ANSWER,
            "content": [],
            "stop_reason": None,
            "usage": {**ANSWER_USAGE, "output_tokens": 1, "output_tokens_details": None},
        },
    },
    {"type": "ping"},
    *_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "H"},
        {"type": "thinking_delta", "thinking": "m."},
        {"type": "signature_delta", "signature": "sig"},
    ),
    *_block(
        1,
        {"type": "text", "text": ""},
        *({"type": "text_delta", "text": piece} for piece in ("Let ", "me ", "look.")),
    ),
    *_use(2, CALLS[0]),
    *_use(3, CALLS[1]),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 18, "output_tokens_details": {"thinking_tokens": 10}},
    },
    {"type": "message_stop"},
]

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-x-2026",
    "status": "completed",
    "output": [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "abc",
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "Let me ", "annotations": []},
                {"type": "output_text", "text": "look.", "annotations": []},
            ],
        },
        *(
            {"type": "function_call", "id": f"fc_{c.id}", "call_id": c.id, "status": "completed", **_function(c)}
            for c in CALLS
        ),
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 120,
        "output_tokens": 18,
        "total_tokens": 138,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 16},
        "output_tokens_details": {"reasoning_tokens": 10},
    },
}
RESPONSE_EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "status": "in_progress", "output": []}},
    *(
        {
            "type": "response.output_text.delta",
            "sequence_number": i,
            "item_id": "msg_1",
            "output_index": 1,
            "content_index": 0,
            "delta": piece,
            "logprobs": [],
        }
        for i, piece in enumerate(("Let ", "me ", "look."), 1)
    ),
    {"type": "response.completed", "sequence_number": 4, "response": RESPONSE},
]
