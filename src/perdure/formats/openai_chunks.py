"""Deltas of a Chat Completions stream, merged into the message that they are pieces of."""

from __future__ import annotations

from typing import Any

from perdure.formats.shared import plain

_ONCE = frozenset(("id", "type", "role", "name", "index"))
"""Fields that servers may repeat in every chunk; all other text is a piece of a longer one."""


def merge(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to what came before it."""
    for name, piece in delta.items():
        if piece is None:
            continue
        before = whole.get(name)
        if name == "tool_calls" and isinstance(piece, list):
            _merge_calls(whole.setdefault(name, []), piece)
        elif before is None or type(before) is not type(piece) or (name in _ONCE and not before):
            whole[name] = dict(piece) if isinstance(piece, dict) else piece
        elif isinstance(piece, dict):
            merge(before, piece)
        elif isinstance(piece, list) or (isinstance(piece, str) and name not in _ONCE):
            whole[name] = before + piece
        elif name not in _ONCE:
            whole[name] = piece


def _merge_calls(calls: list[dict[str, Any]], pieces: list[Any]) -> None:
    """Pieces of calls name the call by its index; a server that does not begins a new call with a new id."""
    for item in pieces:
        piece = plain(item, "chunk.tool_calls")
        index = piece.get("index")
        if index is not None:
            call = next((call for call in calls if call.get("index") == index), None)
        else:
            last = calls[-1] if calls else None
            call = None if last is None or piece.get("id") not in (None, last.get("id")) else last
        if call is None:
            call = {}
            calls.append(call)
        merge(call, piece)
