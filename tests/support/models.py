"""A server on this machine that speaks the streaming protocols of OpenAI and Anthropic, with a model that has a script.

What it answers depends on the tool results in the request alone: first it asks for the weather, then for a table, then
it sums up. The real SDKs talk to it; `requests` holds what they sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Event = dict[str, Any]
STEPS: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    ("Let me look. ", "weather", {"city": "Kyoto"}),
    ("Sunny! ", "book_table", {"seats": 2}),
    ("A table for two is booked.", None, {}),
)
UNSURE: tuple[str, str | None, dict[str, Any]] = (
    "I cannot tell whether the table is booked. Did you get a confirmation?",
    None,
    {},
)


class ModelServer(ThreadingHTTPServer):
    """The server; `requests` are the bodies it got, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Any] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """What leads the SDKs here."""
        keys = {"OPENAI_API_KEY": "test", "ANTHROPIC_API_KEY": "test"}
        return {**keys, "OPENAI_BASE_URL": f"{self.url}/v1", "ANTHROPIC_BASE_URL": self.url}


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """A server for as long as the block runs."""
    with ModelServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        """Answer a request as a stream of server-sent events."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        speaks_openai = self.path.endswith("/chat/completions")
        step = _step(_openai_results(body) if speaks_openai else _anthropic_results(body))
        events = openai_events(*step) if speaks_openai else anthropic_events(*step)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if speaks_openai:
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _step(results: list[str]) -> tuple[str, str | None, dict[str, Any]]:
    if any("may or may not" in result for result in results):
        return UNSURE
    return STEPS[len(results)]


def _openai_results(body: Event) -> list[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def _anthropic_results(body: Event) -> list[str]:
    turns = [turn["content"] for turn in body["messages"] if isinstance(turn["content"], list)]
    return [block["content"] for blocks in turns for block in blocks if block["type"] == "tool_result"]


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def openai_events(text: str, tool: str | None, arguments: dict[str, Any]) -> list[Event]:
    """A chat completion in chunks, with its usage in the last."""
    deltas: list[Event] = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in _halves(text))]
    if tool:
        opened = {"index": 0, "id": f"call_{tool}", "type": "function", "function": {"name": tool, "arguments": ""}}
        pieces = _halves(json.dumps(arguments))
        deltas.append({"tool_calls": [opened]})
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5.5"}
    finish = "tool_calls" if tool else "stop"
    choices: list[Event] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    usage_details = {"prompt_tokens_details": {"cached_tokens": 64}}
    return [
        *({**chunk, "choices": [choice], "usage": None} for choice in choices),
        {**chunk, "choices": [], "usage": {**usage, **usage_details}},
    ]


def anthropic_events(text: str, tool: str | None, arguments: dict[str, Any]) -> list[Event]:
    """A message in events."""
    usage = {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": []}
    begun = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    deltas = [{"type": "text_delta", "text": piece} for piece in _halves(text)]
    events = [{"type": "message_start", "message": begun}, *_block(0, {"type": "text", "text": ""}, deltas)]
    if tool:
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in _halves(json.dumps(arguments))]
        events += _block(1, {"type": "tool_use", "id": f"call_{tool}", "name": tool, "input": {}}, pieces)
    ended = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    return [
        *events,
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]


def _block(index: int, begun: Event, deltas: list[Event]) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]
