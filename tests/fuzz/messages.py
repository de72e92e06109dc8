"""Messages: `from_json`, `to_json`, a commit, and the way back out.

What `from_json` takes loses nothing; what a commit takes comes back equal, can be shown, exported and imported; what is
refused leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.comparing import alike, check_shown, insist_alike
from tests.fuzz.mutate import ODD, edited, values
from tests.fuzz.spelling import deep
from tests.fuzz.target import Broken, Target, refusal

import perdure.sync
from perdure import Message, ToolUse
from perdure.errors import PerdureError
from perdure.stores.transfer.export import check_lines, export_lines
from perdure.sync.driver import Driver

_KEYS = (
    *("role", "content", "id", "visibility", "run_id", "step", "sender_agent_id", "compaction", "metadata", "extra"),
    *("type", "text", "source", "media_type", "data", "url", "title", "name", "input", "tool_use_id", "is_error"),
    *("thinking", "signature", "from_seq", "to_seq", "tool_calls", "function_call", "tool_call_id"),
    *("model", "stop_reason", "usage", "input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens"),
)
_DEFAULTS: tuple[Any, ...] = (None, False, "all", [], {}, 0)
_TYPES = ("text", "image", "audio", "video", "document", "tool_use", "tool_result", "thinking", "base64", "url")
_numbers = count()


@cache
def _store() -> perdure.sync.Store:
    return perdure.sync.open("memory://", housekeeping=False)


@cache
def _empty() -> perdure.sync.Store:
    return perdure.sync.open("memory://", housekeeping=False)


def _cases(seeds: Sequence[Any]) -> st.SearchStrategy[Any]:
    return edited(seeds, odd=ODD, keys=_KEYS) | values


def _check(case: Any) -> str:
    try:
        message = Message.from_json(case)
    except PerdureError as error:
        return refusal(error)
    data = message.to_json()
    insist_alike(Message.from_json(data).to_json(), data, "to_json and from_json do not meet")
    with deep():
        _insist_kept(case, data, "message")
    return _commit(message, data)


def _insist_kept(given: Any, kept: Any, path: str) -> None:
    """Nothing of what was given is lost but what a known field has by default."""
    if path == "message" or (isinstance(given, dict) and given.get("type") == "tool_result"):
        given = _spelled_out(given)
    if isinstance(given, dict) and isinstance(kept, dict) and ("type" not in given or given["type"] in _TYPES):
        for name, value in given.items():
            if name in kept:
                _insist_kept(value, kept[name], f"{path}.{name}")
            elif name not in _KEYS or not any(alike(value, default) for default in _DEFAULTS):
                raise Broken("from_json loses a field", f"{path}.{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for place, (one, other) in enumerate(zip(given, kept, strict=True)):
            _insist_kept(one, other, f"{path}[{place}]")
    elif not alike(given, kept):
        raise Broken("from_json changes a value", f"{path}: {given!r:.200} became {kept!r:.200}")


def _spelled_out(given: dict[str, Any]) -> dict[str, Any]:
    """Content as blocks: plain text is one of them, null is none."""
    content = given.get("content", [])
    if content is None:
        return {**given, "content": []}
    return {**given, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else given


def _commit(message: Message, data: dict[str, Any]) -> str:
    store = _store()
    thread = f"t{next(_numbers)}"
    store.threads.create(thread)
    store.commit(thread, messages=[Message.assistant([ToolUse("c1", "look")], id="call")])
    before = store.threads.get(thread)
    try:
        store.commit(thread, messages=[message])
    except PerdureError as error:
        if store.threads.get(thread) != before or len(store.messages.list(thread).items) != 1:
            raise Broken("a refused commit left something") from error
        return f"commit: {refusal(error)}"
    else:
        _compare(store, thread, data)
        return f"committed {sorted(block.get('type', '') for block in data['content'])}"[:80]
    finally:
        store.threads.delete(thread)


def _compare(store: perdure.sync.Store, thread: str, data: dict[str, Any]) -> None:
    record = store.messages.list(thread).items[1]
    insist_alike(record.message.to_json(), {**data, "id": record.message_id}, "a commit changes the message")
    if record.message_id != data.get("id", record.message_id):
        raise Broken("a commit changes the id")
    store.load(thread)
    store.messages.unfinished_calls(thread)
    store.branches.list(thread)
    check_shown(record)
    lines = list(Driver().iterate(export_lines(store._inner, [thread])))
    try:
        Driver().run(check_lines(_empty()._inner, lambda: lines))
    except PerdureError as error:
        raise Broken("an export cannot be imported", str(error)) from error


MESSAGES = Target("messages", "Message.from_json, commit, read, show, export", _cases, _check, short=220)
