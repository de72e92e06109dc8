"""Deltas of a Chat Completions stream, collected into the message that they are pieces of.

Text is kept in pieces and joined once at the end: joining at every delta would take time that grows with its square.
"""

from __future__ import annotations

from typing import Any

from perdure.formats.reading import plain
from perdure.model.halves import with_whole_characters

_ONCE = frozenset(("id", "type", "role", "name", "index"))
"""Fields that servers may repeat in every chunk; all other text is a piece of a longer one."""


class _Pieces(list[str]):
    """A text that is still arriving."""


class _Calls:
    """Tool calls that are still arriving.

    Their pieces name the call by its index. An id that differs from the one before begins a new call: some servers
    send no index, and some send the same one for every call.
    """

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        self._latest: dict[int | None, dict[str, Any]] = {}
        self._by_id: dict[tuple[int | None, str], dict[str, Any]] = {}

    def add(self, piece: dict[str, Any]) -> None:
        """Merge a piece into its call, or begin one."""
        index = piece["index"] if type(piece.get("index")) is int else None
        name = piece.get("id") if isinstance(piece.get("id"), str) else None
        call = self._calls[-1] if index is None and self._calls else self._latest.get(index)
        if call is not None and name and call.get("id") and call["id"] != name:
            call = self._by_id.get((index, name))
        if call is None:
            call = {}
            self._calls.append(call)
        self._latest[index] = call
        if name:
            self._by_id[index, name] = call
        merge(call, piece)

    def in_order(self) -> list[dict[str, Any]]:
        """The calls by their index, or as they came where they have none."""
        if all(type(call.get("index")) is int for call in self._calls):
            return sorted(self._calls, key=lambda call: int(call["index"]))
        return self._calls


def merge(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to what came before it."""
    for name, piece in delta.items():
        if piece is None:
            continue
        before = whole.get(name)
        if name == "tool_calls" and isinstance(piece, list):
            calls = whole[name] = before if isinstance(before, _Calls) else _Calls()
            for item in piece:
                calls.add(plain(item, "chunk.tool_calls"))
        elif name in _ONCE:
            if not before:
                whole[name] = piece
        elif isinstance(piece, str):
            _append(whole, name, piece)
        elif isinstance(piece, dict):
            if not isinstance(before, dict):
                whole[name] = {}
            merge(whole[name], piece)
        elif isinstance(piece, list) and type(before) is list:
            before += piece
        else:
            whole[name] = list(piece) if isinstance(piece, list) else piece


def _append(whole: dict[str, Any], name: str, piece: str) -> None:
    before = whole.get(name)
    if isinstance(before, _Pieces):
        before.append(piece)
    else:
        whole[name] = _Pieces([piece])


def joined(value: Any) -> Any:
    """What was collected, as plain data."""
    if isinstance(value, _Pieces):
        return with_whole_characters("".join(value))
    if isinstance(value, _Calls):
        return [joined(call) for call in value.in_order()]
    if isinstance(value, dict):
        return {name: joined(item) for name, item in value.items()}
    return value
